"""The errors for values that cannot be cast, naming the table, the column, the type and the value."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Column
from penstock.errors import DecodeError, UnrepresentableValue

_SHOWN = 80  # characters of a value


def unrepresentable(column: Column, where: str, value: str, arrow_type: pa.DataType) -> UnrepresentableValue:
    return UnrepresentableValue(f"{_place(column, where)} holds {_shown(value)}, which {arrow_type} cannot represent.")


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
