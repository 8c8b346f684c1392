"""What a type family is: how one group of Postgres types goes from text to Arrow, fast where it can, else with care.

The errors for values that cannot be cast, naming the table, the column, the type and the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Column
from penstock.errors import DecodeError, UnrepresentableValue
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


_SHOWN = 80  # characters of a value


def unrepresentable(column: Column, where: str, value: str, target_type: str) -> UnrepresentableValue:
    return UnrepresentableValue(f"{_place(column, where)} holds {_shown(value)}, which {target_type} cannot represent.")


def malformed(column: Column, where: str, value: str) -> DecodeError:
    return DecodeError(f"{_place(column, where)} holds {_shown(value)}, which is not how Postgres writes that type.")


def first(text: pa.StringArray, mask: pa.BooleanArray) -> str | None:
    """The first value where the mask is true."""
    index = pc.index(mask, True).as_py()
    return None if index < 0 else str(text[index].as_py())


def first_refused(text: pa.StringArray, cast: Callable[[pa.StringArray], pa.Array]) -> str:
    """The first value that ``cast`` cannot take, given that it refused the whole array. By halving, not one by one."""
    while len(text) > 1:
        half = text[: len(text) // 2]
        try:
            cast(half)
        except pa.ArrowInvalid:
            text = half
        else:
            text = text[len(half) :]
    return str(text[0].as_py())


def _place(column: Column, where: str) -> str:
    return f'Column "{column.name}"{f" of {where}" if where else ""} ({column.type_name})'


def _shown(value: str) -> str:
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"
