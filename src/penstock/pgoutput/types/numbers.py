"""int2, int4, int8 and oid.

float4 and float8, with extra_float_digits > 0: the shortest text that reads back as the same number.

numeric(p,s) as a decimal of 128 bits, where that holds every digit.

bool: ``t`` and ``f``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.family import Family, matches
from penstock.pgoutput.types.flat import data_of


class Integers(Family):
    written = "-?[0-9]+"
    alphabet = ("-", "9")

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._arrow_type = arrow_type

    def arrow_type(self, modifier: int) -> pa.DataType:
        return self._arrow_type


class ObjectIds(Family):
    """Unsigned in Postgres; 64 bits wide here, since few targets have unsigned columns."""

    written = "[0-9]+"

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.int64()

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        unsigned = _UNSIGNED.ordinary(text, modifier)
        return None if unsigned is None else pc.cast(unsigned, pa.int64())

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        return pc.cast(_UNSIGNED.careful(text, modifier), pa.int64())


_UNSIGNED = Integers(pa.uint32())


_INFINITE = "-?Infinity"


class Floats(Family):
    written = rf"NaN|{_INFINITE}|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
    alphabet = ("+", "e")  # the n of Infinity lies outside, NaN inside

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._arrow_type = arrow_type

    def arrow_type(self, modifier: int) -> pa.DataType:
        return self._arrow_type

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        numbers = super().ordinary(text, modifier)
        # Arrow reads a number that is too large as infinity.
        return None if numbers is None or pc.any(pc.is_inf(numbers)).as_py() else numbers

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        numbers = super().careful(text, modifier)
        if pc.any(pc.and_not(pc.is_inf(numbers), matches(text, _INFINITE))).as_py():
            raise pa.ArrowInvalid("a number beyond the type's range")
        return numbers


_HEADER = 4  # what Postgres adds to a type modifier (VARHDRSZ)


def precision_and_scale(modifier: int) -> tuple[int, int] | None:
    """Of numeric(p,s), if decimal128 can hold it; None for a numeric without limits or with unusual ones.

    Since Postgres 15 the scale may be larger than the precision, or negative; a negative one, of 11 bits, is read here
    as one above 1023.
    https://www.postgresql.org/docs/current/datatype-numeric.html
    """
    if modifier < _HEADER:
        return None
    packed = modifier - _HEADER
    precision, scale = packed >> 16 & 0xFFFF, packed & 0x7FF
    return (precision, scale) if scale <= precision <= 38 else None


class Numerics(Family):
    partial = True
    written = r"NaN|-?Infinity|-?[0-9]+(?:\.[0-9]+)?"
    alphabet = ("-", "9")

    def arrow_type(self, modifier: int) -> pa.DataType:
        limits = precision_and_scale(modifier)
        return pa.string() if limits is None else pa.decimal128(*limits)

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        return matches(text, "NaN|-?Infinity")


class Booleans(Family):
    written = "t|f"

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.bool_()

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        lengths = pc.min_max(pc.binary_length(text)).as_py()
        if lengths["min"] != 1 or lengths["max"] != 1:
            return None
        truth = pc.equal(text, "t")
        # Every value is one byte long, so those that are not `t` are all `f` if there are as many f bytes.
        falses = np.count_nonzero(data_of(text) == ord("f"))
        return truth if truth.true_count + falses == len(text) - text.null_count else None

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        return pc.equal(text, "t")
