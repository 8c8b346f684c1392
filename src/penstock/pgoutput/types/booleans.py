"""bool: ``t`` and ``f``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.family import Family
from penstock.pgoutput.types.flat import data_of


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
