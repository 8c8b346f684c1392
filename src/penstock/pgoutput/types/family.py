"""What a type family is: how one group of Postgres types goes from text to Arrow, fast where it can, else with care."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.flat import data_of


class Family:
    """One family of types.

    ``ordinary`` is the fast path. It gives None whenever it meets anything it is not sure of; only then are the values
    held against ``written`` (what Postgres may write for the type, as a regular expression) and ``unrepresentable``,
    and what is left is cast by ``careful``.
    """

    partial: ClassVar[bool] = False  # has values that its Arrow type cannot hold
    written: ClassVar[str]
    # The lowest and the highest byte of ordinary values. Two passes at memory speed, and they keep out what Arrow's
    # parsers accept and Postgres never writes (0x1F, 1e5 as a numeric, 2024-01-01T00:00:00Z).
    alphabet: ClassVar[tuple[str, str]]

    def arrow_type(self, modifier: int) -> pa.DataType:
        raise NotImplementedError

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        data = data_of(text)
        lowest, highest = self.alphabet
        if data.size and not (ord(lowest) <= np.min(data) and np.max(data) <= ord(highest)):
            return None
        try:
            return pc.cast(text, self.arrow_type(modifier))
        except pa.ArrowInvalid:
            return None

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        """Which of the values are sound and yet have no place in the Arrow type; None: there is no such value."""
        return None

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        """Casts values that look like ``written``; raises ArrowInvalid if one is impossible anyway (30 February)."""
        return pc.cast(text, self.arrow_type(modifier))


def matches(text: pa.StringArray, pattern: str) -> pa.BooleanArray:
    """Whether the whole value matches; NULL for NULL."""
    return pc.match_substring_regex(text, rf"\A(?:{pattern})\z")
