"""time: a time of day. (timetz stays text: no Arrow type keeps its offset.)"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.calendar import Timestamps
from penstock.pgoutput.types.family import Family

_TIMESTAMPS = Timestamps()
_FIRST_DAY = "1970-01-01"


class Times(Family):
    """Arrow parses timestamps but no times; on the first day of its calendar the two are the same number."""

    partial = True
    written = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.time64("us")

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        moments = _TIMESTAMPS.ordinary(_on_first_day(text), -1)
        return None if moments is None else moments.view(pa.time64("us"))

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        return pc.equal(text, "24:00:00")

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        return _TIMESTAMPS.careful(_on_first_day(text), -1).view(pa.time64("us"))


def _on_first_day(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(_FIRST_DAY, text, " ")
