"""Numerics compared as the text that they are, digit by digit: exact for any length, and for NaN and the infinities."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Bools

Signs = npt.NDArray[np.int64]

_NUMBER = r"\A(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*?)0*)?\z"
_ABOVE_ALL = {"NaN": 2, "Infinity": 1, "-Infinity": -1}


def compared_digits(text: pa.Array, value: Decimal) -> tuple[Signs, Bools]:
    """For each number whether it is below (-1), equal (0) or above (1) the value; and which are numbers at all.

    As in Postgres, NaN is above infinity.
    """
    parts = pc.extract_regex(text, _NUMBER)
    finite = _bools(pc.is_valid(parts))
    level = np.zeros(len(text), np.int64)
    for word, height in _ABOVE_ALL.items():
        level[_bools(pc.equal(text, word))] = height
    known = finite | (level != 0)
    if not value.is_finite():
        return np.sign(level - _ABOVE_ALL[str(value)]), known
    return np.where(finite, _finite(parts, value), np.sign(level)), known


def _finite(parts: pa.Array, value: Decimal) -> Signs:
    whole, part = _digits(value)
    own_whole, own_part = (pc.fill_null(pc.struct_field(parts, name), "") for name in ("whole", "part"))
    size = np.sign(pc.binary_length(own_whole).to_numpy(zero_copy_only=False).astype(np.int64) - len(whole))
    for own, other in ((own_whole, whole), (own_part, part)):
        size = np.where(size == 0, text_sign(own, other), size)
    zero = _bools(pc.and_(pc.equal(own_whole, "0"), pc.equal(own_part, "")))
    sign = np.where(zero, 0, np.where(_bools(pc.equal(pc.struct_field(parts, "sign"), "-")), -1, 1))
    other_sign = 0 if value == 0 else -1 if value < 0 else 1
    compared: Signs = np.where(sign == other_sign, size * other_sign, np.sign(sign - other_sign))
    return compared


def text_sign(own: pa.Array, other: str) -> Signs:
    above: Signs = _bools(pc.greater(own, other)).astype(np.int64)
    return above - _bools(pc.less(own, other)).astype(np.int64)


def _digits(value: Decimal) -> tuple[str, str]:
    whole, _, part = f"{value.copy_abs():f}".partition(".")
    return whole.lstrip("0") or "0", part.rstrip("0")


def _bools(array: pa.Array) -> Bools:
    found: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found
