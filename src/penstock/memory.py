"""Keeps a long-lived process small: large buffers go back to the operating system when they are freed."""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa

_M_MMAP_THRESHOLD = -3  # mallopt(3)
_LARGE = 256 << 10


def return_large_buffers() -> None:
    """Glibc raises this threshold by itself whenever a large buffer is freed, and then keeps such buffers on its heap."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGE)
            pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own would keep them too
