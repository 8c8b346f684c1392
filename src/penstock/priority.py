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

A_LITTLE, FAR = 5, 10  # as nice(1) counts

_P = ParamSpec("_P")
_T = TypeVar("_T")


def step_back(nice: int = FAR) -> None:
    """From now on this thread, and whatever it starts, goes last. Where there are no such priorities, nothing happens."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


def in_a_thread(work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """The result of work that may step back."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments, **named).result()
