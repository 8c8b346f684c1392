"""Work that can wait, on a machine where something else cannot: Linux has a priority for each thread.

A thread inherits the priority of the one that starts it, and cannot raise it again without special rights. So what is to
be done at a low priority is done in a thread of its own, and ends with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

_NICE = 10

_P = ParamSpec("_P")
_T = TypeVar("_T")


def step_back() -> None:
    """From now on this thread, and whatever it starts, goes last. Where there are no such priorities, nothing happens."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def in_a_thread(work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """The result of work that may step back."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments, **named).result()
