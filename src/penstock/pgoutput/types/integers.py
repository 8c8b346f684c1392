"""int2, int4, int8 and oid."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.family import Family


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
