"""numeric(p,s) as a decimal of 128 bits, where that holds every digit."""

from __future__ import annotations

import pyarrow as pa

from penstock.pgoutput.types.family import Family, matches

_HEADER = 4  # what Postgres adds to a type modifier (VARHDRSZ)


def precision_and_scale(modifier: int) -> tuple[int, int] | None:
    """Of numeric(p,s), if decimal128 can hold it; None for a numeric without limits or with unusual ones.

    The scale is 11 bits with a sign: since Postgres 15 it may be negative or larger than the precision.
    https://www.postgresql.org/docs/current/datatype-numeric.html
    """
    if modifier < _HEADER:
        return None
    packed = modifier - _HEADER
    precision = packed >> 16 & 0xFFFF
    scale = ((packed & 0x7FF) ^ 0x400) - 0x400
    return (precision, scale) if 1 <= precision <= 38 and 0 <= scale <= precision else None


class Numerics(Family):
    partial = True
    written = r"NaN|-?Infinity|-?[0-9]+(?:\.[0-9]+)?"
    alphabet = ("-", "9")

    def arrow_type(self, modifier: int) -> pa.DataType:
        limits = precision_and_scale(modifier)
        return pa.string() if limits is None else pa.decimal128(*limits)

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        return matches(text, "NaN|-?Infinity")
