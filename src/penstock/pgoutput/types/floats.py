"""float4 and float8, with extra_float_digits > 0: the shortest text that reads back as the same number."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.family import Family, matches

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
