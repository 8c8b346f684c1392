"""Taking turns at a DuckDB file: one process at a time may have it open for writing, and nobody may read it meanwhile.

DuckDB locks with ``fcntl``. Such locks belong to the process: when a process closes any descriptor of the file, all its locks
on the file are gone. So nothing here, and nothing else in Penstock, opens a file that this process has attached.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 8 << 20
_POLITE_SECONDS = 0.25  # for which a file may be open without a rest
_REST_SECONDS = 0.05  # longer than a waiting process pauses between two tries


def is_held_elsewhere(path: Path, read_only: bool) -> bool:
    """Whether another process has a lock that keeps us from attaching the file, which we have not attached."""
    try:
        with path.open("rb" if read_only else "r+b") as file:
            fcntl.lockf(file, (fcntl.LOCK_SH if read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def locked_bytes(path: Path) -> Iterator[bytes]:
    """The bytes of a file that we have not attached, while no other process may write to it. BlockingIOError if one does."""
    with path.open("rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        while block := file.read(_BLOCK_BYTES):
            yield block


class Rests:
    """Leaves the file alone for a moment now and then, however often it is needed, so that others get in.

    They try again and again, since a lock of ``fcntl`` has no queue. A file that is needed only now and then has such moments
    anyway, and nobody waits here.
    """

    def __init__(self) -> None:
        self._opened_at = self._closed_at = 0.0
        self._open_seconds = 0.0  # since the last rest

    def before_opening(self) -> None:
        rested = time.monotonic() - self._closed_at
        if self._open_seconds > _POLITE_SECONDS and rested < _REST_SECONDS:
            time.sleep(_REST_SECONDS - rested)
            rested = _REST_SECONDS
        if rested >= _REST_SECONDS:
            self._open_seconds = 0.0

    def opened(self) -> None:
        self._opened_at = time.monotonic()

    def closed(self) -> None:
        self._closed_at = time.monotonic()
        self._open_seconds += self._closed_at - self._opened_at

    @property
    def open_for(self) -> float:
        """Seconds, of a file that is open."""
        return time.monotonic() - self._opened_at
