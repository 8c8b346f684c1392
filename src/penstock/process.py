"""Keeps a long-lived process small: large buffers go back to the operating system when they are freed.

Work that can wait, on a machine where something else cannot: Linux has a priority for each thread.

A thread inherits the priority of the one that starts it, and cannot raise it again without special rights. So what is to
be done at a low priority is done in a thread of its own, and ends with it.

The environment of Python processes that Penstock starts.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

import pyarrow as pa

# ``python -m`` looks for modules in the working directory first: a file there that is called like a module of a library would
# take its place. https://docs.python.org/3/using/cmdline.html#envvar-PYTHONSAFEPATH
WITHOUT_WORKING_DIRECTORY = {"PYTHONSAFEPATH": "1"}

_M_MMAP_THRESHOLD = -3  # mallopt(3)
_LARGE = 256 << 10


def return_large_buffers() -> None:
    """Glibc raises this threshold by itself whenever a large buffer is freed, and then keeps such buffers on its heap."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGE)
            pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own would keep them too


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
