"""Waiting for something to become true, in place of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_INTERVAL, _MOST = 0.02, 0.25
_REST = 3  # times as long as a question took: asking must not slow down what is waited for


def wait_until(condition: Callable[[], T | None], timeout: float = 180, what: str = "") -> T:
    """The first truthy value that ``condition`` returns; after ``timeout`` seconds AssertionError naming ``what``."""
    deadline, interval = time.monotonic() + timeout, _INTERVAL
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"Waited {timeout:g} s in vain for {what or 'a condition'}; it was {value!r} at last.")
        time.sleep(max(interval, min(_REST * (time.monotonic() - asked), 1.0)))
        interval = min(interval * 1.2, _MOST)
