"""Columns of Postgres text as JSON values.

Integers, floats, booleans and json are native JSON, arrays are arrays, bytea is base64, everything else is a string.
What has no native form (NaN, infinities, a value that a rule wrote into a number's column) is a string as well, so a
line always is valid JSON.

Changes sorted by what their events look like, so that within a shape only values differ between lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import DELETE, MESSAGE, TRUNCATE, ChangeBatch, Column
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.events.json_text import (
    Line,
    array_elements,
    as_mask,
    base64_of_hex,
    bytes_of,
    constant,
    flat,
    joined,
    replaced,
    string,
)

Numeric = Literal["string", "number"]
Encoder = Callable[[pa.Array], pa.Array]

_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_HEX_BYTES = r"^\\x([0-9a-fA-F]{2})*$"


def number(text: pa.Array) -> pa.Array:
    """JSON's grammar decides what is a number."""
    return _native_where(pc.match_substring_regex(text, _NUMBER), text, lambda native: native)


def boolean(text: pa.Array) -> pa.Array:
    return _native_where(
        pc.is_in(text, value_set=pa.array(["t", "f"], text.type)), text,
        lambda native: pc.if_else(pc.equal(native, constant("t")), constant("true"), constant("false")),
    )  # fmt: skip


def json_value(text: pa.Array) -> pa.Array:
    """Postgres keeps ``json`` as it was typed, so it may span lines. JSON allows that only between tokens."""
    data = bytes_of(text)
    for character in "\n\r":
        if (data == ord(character)).any():
            text = pc.replace_substring(text, character, " ")
    return text


def base64_string(text: pa.Array) -> pa.Array:
    return _native_where(
        pc.match_substring_regex(text, _HEX_BYTES), text,
        lambda native: joined(constant('"'), base64_of_hex(native), constant('"')),
    )  # fmt: skip


def _native_where(fits: pa.Array, text: pa.Array, encode: Encoder) -> pa.Array:
    """``encode`` for the values that fit, strings for the others, NULL for NULL. ``fits`` is NULL or False for NULL."""
    native = as_mask(fits)
    if native.all():
        return encode(text)
    odd = ~native & as_mask(pc.is_valid(text))
    encoded = replaced(text, native, encode(text.filter(pa.array(native))))
    return replaced(encoded, odd, string(text.filter(pa.array(odd)))) if odd.any() else encoded


_ENCODERS: dict[str, Encoder] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8"), number),
    **dict.fromkeys(("json", "jsonb"), json_value),
    "bool": boolean,
    "bytea": base64_string,
}


class Values:
    """Encodes columns; ``numeric`` says whether numeric is a string (which no reader can round) or a number."""

    def __init__(self, numeric: Numeric) -> None:
        self._encoders = {**_ENCODERS, "numeric": number} if numeric == "number" else _ENCODERS

    def append(self, line: Line, text: pa.Array, column: Column) -> None:
        """Adds the column to the line."""
        text = flat(text)
        if column.base in self._encoders or is_list(column):
            line.values(self.encode(text, column))
        else:
            line.strings(text)

    def encode(self, text: pa.Array, column: Column) -> pa.Array:
        """One JSON value for each row; NULL stays NULL."""
        text = flat(text)
        if is_list(column):
            return self._array(text, column)
        return self._encoders.get(column.base, string)(text)

    def _array(self, text: pa.Array, column: Column) -> pa.Array:
        parsed, lists = array_elements(text, column)
        element = replace(column, base=column.element or "text", element=None)
        values = pc.fill_null(self.encode(lists.flatten(), element), constant("null"))
        as_json = joined(constant("["), _elements_joined(lists, values), constant("]"))
        odd = ~parsed & as_mask(pc.is_valid(text))
        encoded = replaced(text, parsed, as_json)
        return replaced(encoded, odd, string(text.filter(pa.array(odd)))) if odd.any() else encoded


class TextValues(Values):
    """Every value as a string of Postgres's text."""

    def __init__(self) -> None:
        super().__init__("string")

    def append(self, line: Line, text: pa.Array, column: Column) -> None:
        line.strings(flat(text))

    def encode(self, text: pa.Array, column: Column) -> pa.Array:
        return string(flat(text))


def _elements_joined(lists: pa.ListArray, values: pa.Array) -> pa.Array:
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, values), constant(","))


MAX_ROWS = 32_768  # of one pass: large enough that the cost per call vanishes, small enough to stay in the caches
MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class Shape:
    """Changes of one operation that carry the same parts."""

    op: int
    old_kind: int
    partial: bool  # TOAST values are missing in some columns
    changes: ChangeBatch

    @property
    def has_new_row(self) -> bool:
        return self.op not in (DELETE, TRUNCATE, MESSAGE)


def slices(changes: ChangeBatch) -> Iterator[ChangeBatch]:
    """The changes in order, in pieces of bounded size."""
    bytes_per_row = max(1, changes.nbytes // max(1, len(changes)))
    step = max(1, min(MAX_ROWS, MAX_BYTES // bytes_per_row))
    for start in range(0, len(changes), step):
        yield _slice(changes, start, start + step) if step < len(changes) else changes


def lines_by_shape(changes: ChangeBatch, encode: Callable[[Shape], pa.Array]) -> pa.Array:
    """One line for each change, in the order of the changes."""
    partial = np.zeros(len(changes), bool)
    for mask in changes.unchanged.values():
        partial |= mask
    code = changes.op.astype(np.uint32) << 9 | changes.old_kind.astype(np.uint32) << 1 | partial
    codes = np.unique(code)
    if len(codes) == 1:
        return encode(_shape(int(codes[0]), changes))
    rows = [np.flatnonzero(code == each) for each in codes]
    lines = [encode(_shape(int(each), changes.take(some))) for each, some in zip(codes, rows, strict=True)]
    back = np.empty(len(changes), np.int64)
    back[np.concatenate(rows)] = np.arange(len(changes))
    return pa.concat_arrays(lines).take(pa.array(back))


def _shape(code: int, changes: ChangeBatch) -> Shape:
    return Shape(code >> 9, code >> 1 & 0xFF, bool(code & 1), changes)


def _slice(changes: ChangeBatch, start: int, stop: int) -> ChangeBatch:
    length = stop - start
    return replace(
        changes,
        op=changes.op[start:stop], commit_lsn=changes.commit_lsn[start:stop], sequence=changes.sequence[start:stop],
        xid=changes.xid[start:stop], commit_time=changes.commit_time[start:stop],
        new=[a.slice(start, length) for a in changes.new], old=[a.slice(start, length) for a in changes.old],
        old_kind=changes.old_kind[start:stop],
        unchanged={column: mask[start:stop] for column, mask in changes.unchanged.items() if mask[start:stop].any()},
        restarts_identity=changes.restarts_identity[start:stop] if changes.restarts_identity is not None else None,
    )  # fmt: skip
