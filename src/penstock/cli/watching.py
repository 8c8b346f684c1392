from contextlib import contextmanager


@contextmanager
def watched(p, n):
    yield
