"""Columns of Postgres text as JSON values.

Integers, floats, booleans and json are native JSON, arrays are arrays, bytea is base64, everything else is a string.
What has no native form (NaN, infinities, a value that a rule wrote into a number's column) is a string as well, so a
line always is valid JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Column
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.events.arrays import array_elements
from penstock.sinks.events.base64_text import base64_of_hex
from penstock.sinks.events.json_text import Line, as_mask, bytes_of, constant, flat, joined, replaced, string

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
