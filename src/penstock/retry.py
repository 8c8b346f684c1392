"""How long to wait: before trying again, and between two rounds of background work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

_SCALE_VARIABLE = "PENSTOCK_INTERVAL_SCALE"


def interval(seconds: float) -> float:
    """The time between two rounds of background work. The tests shorten all of them by one factor, in the environment, so that
    the processes which they start wait no longer than they do."""
    return seconds * float(os.environ.get(_SCALE_VARIABLE, "1"))


class Backoff(Iterator[float]):
    """Delays in seconds that grow from ``first`` by ``factor`` up to ``most``, without end.

    Each is varied by up to ``jitter`` of itself in both directions, so that many clients of one server that went away
    don't return in step; none exceeds ``most``. With a seeded ``random`` the delays are the same every time.
    """

    def __init__(
        self,
        first: float = 0.5,
        factor: float = 2.0,
        most: float = 30.0,
        jitter: float = 0.2,
        random: Random | None = None,
    ) -> None:
        if not (0 < first <= most and factor >= 1 and 0 <= jitter < 1):
            raise ValueError("a backoff needs 0 < first <= most, factor >= 1 and 0 <= jitter < 1")
        self._first, self._factor, self._most, self._jitter = first, factor, most, jitter
        self._random = random or Random()
        self._delay = first

    def __next__(self) -> float:
        delay = self._delay
        self._delay = min(delay * self._factor, self._most)
        return min(delay * self._random.uniform(1 - self._jitter, 1 + self._jitter), self._most)

    def reset(self) -> None:
        """After a success: the next failure waits ``first`` again."""
        self._delay = self._first
