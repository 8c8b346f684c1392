"""numeric(p,s) as a decimal of 128 bits, where that holds every digit."""

from __future__ import annotations

import pyarrow as pa

from penstock.pgoutput.types.family import Family, matches

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
