"""The bytes of a string array as NumPy sees them, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Bools, UInt8s

Int32s = npt.NDArray[np.int32]


def offsets_of(text: pa.StringArray) -> Int32s:
    """Where each value starts in the array's buffer, and where the last one ends."""
    if not len(text):
        return np.zeros(1, np.int32)
    return np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, text.offset * 4)


def data_of(text: pa.StringArray) -> UInt8s:
    """All bytes of the array's values, one after the other (with what lies in NULL slots, if anything does)."""
    offsets = offsets_of(text)
    buffer = text.buffers()[2]
    if buffer is None or offsets[-1] == offsets[0]:
        return np.zeros(0, np.uint8)
    return np.frombuffer(buffer, np.uint8, int(offsets[-1] - offsets[0]), int(offsets[0]))


def flatten(text: pa.StringArray) -> tuple[UInt8s, Int32s]:
    """The bytes, and each value's place in them counted from 0. A NULL has no bytes."""
    if text.null_count:
        text = pc.fill_null(text, "")
    offsets = offsets_of(text)
    return data_of(text), offsets - offsets[0]


def bitmap(valid: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def valid_rows(array: pa.Array) -> Bools:
    rows: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return rows


def validity(array: pa.Array) -> pa.Buffer | None:
    """The array's validity as a buffer of its own, for another array of the same length."""
    return bitmap(valid_rows(array)) if array.null_count else None
