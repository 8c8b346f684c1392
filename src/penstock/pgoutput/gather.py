"""Gathering byte ranges out of one buffer into an Arrow array, without touching them one by one.

Arrow's variable-length layout is one data buffer plus offsets. Offsets that alternate start, end, start, end … describe
value, gap, value, gap …; a ``take`` of the even elements gathers the values in C. The ranges must ascend.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.changes import Bools, Int64s, UInt8s


def gather(raw: pa.Buffer, starts: Int64s, ends: Int64s, kind: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """Element i is ``raw[starts[i]:ends[i]]``, or NULL where ``valid`` is false. ``kind``: pa.string() or pa.binary()."""
    count = len(starts)
    if count == 0:
        return pa.array([], kind)
    alternating = np.empty(2 * count, np.int32)
    alternating[0::2], alternating[1::2] = starts, ends
    with_gaps = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(alternating), raw])
    values = with_gaps.take(pa.array(np.arange(0, 2 * count - 1, 2)))
    if valid is None or valid.all():
        return values
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [bitmap, *values.buffers()[1:]])


class BigEndian:
    """Reads big-endian numbers at many places of a buffer at once. A place past the end reads the last number."""

    def __init__(self, data: UInt8s) -> None:
        self._data = data

    def _at(self, dtype: str, places: Int64s) -> Int64s:
        width = np.dtype(dtype).itemsize
        count = len(self._data) - width + 1
        if count <= 0 or len(places) == 0:
            return np.zeros(len(places), np.int64)
        overlapping: np.ndarray[tuple[int], np.dtype[np.int64]] = np.ndarray(
            (count,), dtype, buffer=self._data, strides=(1,)
        )
        # Not `take`: that would first copy the overlapping view, several times the buffer.
        return overlapping[np.minimum(places, count - 1)].astype(np.int64)

    def u16(self, places: Int64s) -> Int64s:
        return self._at(">u2", places)

    def u32(self, places: Int64s) -> Int64s:
        return self._at(">u4", places)

    def i64(self, places: Int64s) -> Int64s:
        return self._at(">i8", places)
