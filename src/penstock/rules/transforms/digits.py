"""Numbers as text, many at a time."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.changes import UInt8s, UInt64s

BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


@lru_cache(maxsize=16)
def counting(limit: int) -> pa.StringArray:
    """All numbers below a power of ten, with leading zeros."""
    width = len(str(limit - 1))
    return pa.array([f"{number:0{width}}" for number in range(limit)], pa.string())


def fixed_width(characters: UInt8s) -> pa.StringArray:
    """One text per row of a matrix of ASCII characters."""
    rows, width = characters.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(characters)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def base32(numbers: UInt64s) -> pa.StringArray:
    """All 64 bits, as 13 characters."""
    symbols = np.frombuffer(BASE32.encode(), np.uint8)
    characters = np.empty((len(numbers), 13), np.uint8)
    for place in range(13):
        characters[:, place] = symbols[(numbers >> np.uint64(5 * place)) & np.uint64(31)]
    return fixed_width(characters)


def hexadecimal(numbers: UInt64s) -> UInt8s:
    """Each number as a row of 16 characters, the highest digit first."""
    symbols = np.frombuffer(b"0123456789abcdef", np.uint8)
    raw = numbers.astype(">u8").view(np.uint8).reshape(len(numbers), 8)
    characters = np.empty((len(numbers), 16), np.uint8)
    characters[:, 0::2], characters[:, 1::2] = symbols[raw >> 4], symbols[raw & 15]
    return characters
