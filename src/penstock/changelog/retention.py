"""Which segments of the log may go."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.changelog.log import ChangeLog, Stretch
from penstock.lsn import LSN


def expired(
    stretches: Sequence[Stretch], needed_from: LSN, commit_time_of: dict[LSN, int], oldest: int
) -> list[Stretch]:
    """From the front: what every sink holds, and whose last commit is older than ``oldest`` (µs since 1970).

    The last stretch stays, so that the log always knows its own end.
    """
    gone = []
    for stretch in stretches[:-1]:
        if stretch.end > needed_from or commit_time_of[stretch.end] > oldest:
            break
        gone.append(stretch)
    return gone


class Retention:
    """Deletes segments from the front of the log. Remembers commit times, so that each file is opened once."""

    def __init__(self, log: ChangeLog, seconds: float) -> None:
        self._log = log
        self._seconds = seconds
        self._commit_times: dict[LSN, int] = {}

    def enforce(self, needed_from: LSN, now: float) -> int:
        """Deletes what may go; returns the bytes that stay."""
        contents = self._log.contents()
        stretches = contents.stretches
        self._commit_times = {s.end: self._commit_time(s, needed_from) for s in stretches[:-1]}
        oldest = int((now - self._seconds) * 1_000_000)
        bytes_kept = contents.bytes
        for stretch in expired(stretches, needed_from, self._commit_times, oldest):
            # What was merged into it first: without the union, some of these without the others would be a hole.
            self._log.delete(name for name in contents.merged if stretch.segments[-1].covers(name))
            self._log.delete(reversed(stretch.segments))  # the complete one first: parts alone are invisible
            bytes_kept -= stretch.bytes
        return bytes_kept

    def _commit_time(self, stretch: Stretch, needed_from: LSN) -> int:
        if self._seconds == 0 or stretch.end > needed_from:
            return 0
        if self._commit_times.get(stretch.end):
            return self._commit_times[stretch.end]
        return self._log.open(stretch.segments[-1]).last_commit_time
