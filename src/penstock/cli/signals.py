"""SIGINT and SIGTERM end a command in good order, with exit code 0."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stop(threading.Event):
    """Set by the first signal.

    Until somebody says ``heeded``, a signal interrupts whatever is going on, since that may be a long wait: Postgres makes
    a slot only when every running transaction has ended. From then on it is left to those who look at the event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heeded = False

    def heeded(self) -> None:
        self._heeded = True

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        first = not self.is_set()
        self.set()
        if first and not self._heeded:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop.receive) for number in _NUMBERS}
    try:
        yield stop
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
