"""Text of random characters.

Replaces what a regular expression finds.

The same for every row: a value, or NULL.

Made-up UUIDs.

One of a few given values.
"""

from __future__ import annotations

import json
import math
import string
from typing import Annotated, Any, ClassVar, Self
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, field_validator, model_validator

from penstock.changes.batch import Column, Int64s, UInt64s
from penstock.errors import PenstockError
from penstock.pgoutput.types import typed
from penstock.rules.transforms.contract import Example, Row, Transform
from penstock.rules.transforms.drawn_numbers import fixed_width, hexadecimal
from penstock.rules.transforms.generator import JSON, TEXT, Draws, Generator, base_of, not_of, not_text, whole_range
from penstock.rules.transforms.names import lengths_of
from penstock.settings.mistakes import mistake

_LENGTH = 0  # which number of a row's draws gives the length; the characters take those after it
_UNIQUE_BITS = 64
_AT_ONCE = 1 << 20  # characters


def drawn_characters(draws: Draws, lengths: Int64s, symbols: str) -> pa.StringArray:
    """Each row as many of these characters as it says. Drawn a part at a time, so that long text takes little memory."""
    places = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)  # of each row's first character among all
    widths = np.array([len(symbol.encode()) for symbol in symbols])
    sizes = np.zeros(len(lengths), np.int64)  # in bytes
    parts = []
    for begin in range(0, int(places[-1]), _AT_ONCE):
        end = min(begin + _AT_ONCE, int(places[-1]))
        first, last = (int(np.searchsorted(places, place, side="right")) for place in (begin, end - 1))
        edges = np.clip(places[first - 1 : last + 1], begin, end)
        here = edges[1:] - edges[:-1]  # characters of these rows in this part
        rows = np.repeat(np.arange(first - 1, last), here)
        # A draw of its own for each character: bits of the row and the place in it, mixed.
        bits = draws.bits[rows] ^ Draws((np.arange(begin, end) - places[rows]).astype(np.uint64)).number(0)
        chosen = Draws(bits).below(len(symbols), _LENGTH + 1)
        parts.append(_text(chosen, symbols))
        sizes[first - 1 : last] += np.bincount(rows - (first - 1), widths[chosen], last - first + 1).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("the made-up text of one batch is larger than 2 GiB")
    data = pa.py_buffer(b"".join(parts))
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets.astype(np.int32)), data)


def _text(chosen: UInt64s, symbols: str) -> bytes:
    """The chosen symbols one after the other, in UTF-8."""
    if symbols.isascii():
        return np.frombuffer(symbols.encode(), np.uint8)[chosen].tobytes()
    points = np.frombuffer(symbols.encode("utf-32-le"), np.uint32)
    return points[chosen].tobytes().decode("utf-32-le").encode()


class String(Generator):
    name: ClassVar = "string"
    summary: ClassVar = "Text of random characters."
    fits: ClassVar = "text of at least `max_length`"
    dynamic_parameters: ClassVar = ("min_length", "max_length")
    examples: ClassVar = (
        Example({"salt": "pepper"}, "ada", "3YHw3OGTMMFUjkH8MYj7TrXPVkfiF5EcPG9WaxSy2skKbBQGiyk2WJ77wVxPmaHBO3v6FNxX"),
        Example({"symbols": "01", "min_length": 8, "max_length": 8}, "ada", "01011101"),
        Example({"preserve_length": True, "symbols": "αβγδ"}, "ada", "αγα"),
    )

    symbols: str = Field(
        default=string.ascii_letters + string.digits, min_length=1, description="Characters to draw from."
    )
    min_length: int = Field(default=1, ge=0, description="Characters at least.")
    max_length: int = Field(default=100, ge=0, description="Characters at most.")
    preserve_length: bool = Field(default=False, description="As many characters as the value had.")

    @model_validator(mode="after")
    def _lengths_in_order(self) -> Self:
        if self.min_length > self.max_length:
            raise mistake("min_length is more than max_length; swap them")
        return self

    @property
    def keeps_uniqueness(self) -> bool:
        bits = self.min_length * math.log2(len(set(self.symbols)))
        return self.deterministic and not self.preserve_length and not self.dynamic and bits >= _UNIQUE_BITS

    def misfit(self, column: Column) -> str | None:
        return not_text(column, None if self.preserve_length else self.max_length, "set max_length")

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        if self.preserve_length:
            return drawn_characters(draws, lengths_of(values), self.symbols)
        shortest = self._lengths("min_length", self.min_length, row, len(values))
        longest = np.maximum(self._lengths("max_length", self.max_length, row, len(values)), shortest)
        room = (longest - shortest + 1).astype(np.uint64)
        return drawn_characters(draws, shortest + draws.below(room, _LENGTH).astype(np.int64), self.symbols)

    def _lengths(self, parameter: str, default: int, row: Row, count: int) -> Int64s:
        """A column gives lengths up to the setting's ``max_length``, so that results still fit."""
        column = self.dynamic_column(parameter, row)
        if column is None:
            return np.full(count, default, np.int64)
        small = pc.if_else(pc.match_substring_regex(column, r"\A[0-9]{1,9}\z"), column, None)
        lengths: Int64s = pc.fill_null(pc.cast(small, pa.int64()), default).to_numpy()
        return np.minimum(lengths, self.max_length)


class Regex(Transform):
    name: ClassVar = "regex"
    summary: ClassVar = "Replaces what a regular expression finds."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"pattern": "[0-9]", "replace": "#"}, "call 555-0100", "call ###-####"),
        Example({"pattern": r"^(\w+)@(.*)$", "replace": r"\2"}, "ada@example.com", "example.com"),
        Example({"pattern": "(?i)bad", "replace": "good", "count": 1}, "Bad, bad", "good, bad"),
    )

    pattern: str = Field(description="In [RE2's syntax](https://github.com/google/re2/wiki/Syntax).")
    replace: str = Field(
        default="", description=r"What to put there; `\1` is the first group, `\0` all that was found."
    )
    count: int | None = Field(default=None, ge=1, description="How many finds to replace, from the left; default: all.")

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            self.change(pa.array([""]), _NO_ROW)
        except pa.ArrowInvalid:
            raise mistake(
                "the pattern is not a regular expression in RE2's syntax, or the replacement names a group that it has not;"
                " mend it (RE2 has no look-around and no back-references)"
            ) from None
        return self

    def misfit(self, column: Column) -> str | None:
        return not_text(column)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pc.replace_substring_regex(values, self.pattern, self.replace, max_replacements=self.count)


class _NoRow:
    def column(self, name: str) -> pa.Array:
        raise KeyError(name)

    def unchanged(self, name: str) -> None:
        return None


_NO_ROW = _NoRow()


class LiteralText(Transform):
    name: ClassVar = "literal"
    summary: ClassVar = "The same value in every row."
    fits: ClassVar = "every type that the value is one of"
    takes_nulls = True
    examples: ClassVar = (
        Example({"value": "redacted"}, "anything", "redacted"),
        Example({"value": 0}, "42", "0"),
        Example({"value": {"hidden": True}}, '{"a": 1}', '{"hidden": true}'),
        Example({"value": True, "nulls": "replace"}, None, "t"),
    )

    value: str = Field(description="As Postgres writes a value of the column's type. Write it in quotes, or plainly.")

    @field_validator("value", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "t" if value else "f"
        if isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        return str(value) if isinstance(value, int | float) else value

    def misfit(self, column: Column) -> str | None:
        if base_of(column) in TEXT:
            return not_text(column, len(self.value))
        wrong = f"the value is not one of type {column.type_name}"
        return None if _is_one(self.value, column) else wrong

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pa.repeat(pa.scalar(self.value), len(values))


class Null(Transform):
    name: ClassVar = "null"
    summary: ClassVar = "NULL in every row."
    fits: ClassVar = "every column that may be NULL"
    examples: ClassVar = (Example({}, "anything", None),)

    def misfit(self, column: Column) -> str | None:
        return None

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pa.nulls(len(values), pa.string())


def _is_one(value: str, column: Column) -> bool:
    base = base_of(column)
    limits = whole_range(column)
    try:
        if limits is not None:
            return limits[0] <= int(value) <= limits[1]
        if base in JSON:
            json.loads(value)
        elif base == "uuid":
            UUID(value)
        else:
            typed(pa.array([value]), column, "null")
    except (PenstockError, ValueError):
        return False
    return True


_PLACES = [*range(8), *range(9, 13), *range(14, 18), *range(19, 23), *range(24, 36)]  # of the digits
_UUID_LENGTH = 36


class Uuid(Generator):
    """A UUID of version 4, or 8 ("custom") when it comes from the value: RFC 9562."""

    name: ClassVar = "uuid"
    summary: ClassVar = "A UUID: of version 8, which is for own ways to make one, by hash; of version 4 by chance."
    fits: ClassVar = "uuid, and text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "5a5b7a30-31d5-4d22-9a4f-0c1f4a6f2c11", "9f420347-1e82-8f14-9d89-779b63794f37"),
    )

    @property
    def keeps_uniqueness(self) -> bool:
        return self.deterministic

    def misfit(self, column: Column) -> str | None:
        return (
            not_text(column, _UUID_LENGTH)
            if not_of(column, TEXT, "") is None
            else not_of(column, {"uuid"}, "a uuid column")
        )

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        version = 0x8000 if self.deterministic else 0x4000
        high = (draws.number(0) & np.uint64(0xFFFF_FFFF_FFFF_0FFF)) | np.uint64(version)
        low = (draws.number(1) & np.uint64(0x3FFF_FFFF_FFFF_FFFF)) | np.uint64(0x8000_0000_0000_0000)
        characters = np.full((len(draws), _UUID_LENGTH), ord("-"), np.uint8)
        characters[:, _PLACES] = np.concatenate([hexadecimal(high), hexadecimal(low)], axis=1)
        return fixed_width(characters)


def _texts(values: Any) -> Any:
    if not isinstance(values, list | tuple):
        return values
    return tuple(("t" if value else "f") if isinstance(value, bool) else value if value is None else str(value)
                 for value in values)  # fmt: skip


class Choice(Generator):
    name: ClassVar = "choice"
    summary: ClassVar = "One of a few given values."
    fits: ClassVar = "every type that the values are of"
    examples: ClassVar = (
        Example({"choices": ["red", "green", "blue"], "salt": "pepper"}, "mauve", "green"),
        Example({"choices": ["yes", "no"], "weights": [1, 0]}, "maybe", "yes"),
        Example({"choices": [None]}, "maybe", None),
    )

    choices: Annotated[tuple[str | None, ...], BeforeValidator(_texts)] = Field(
        description="The values; `null` may be one of them."
    )
    weights: tuple[float, ...] | None = Field(default=None, description="How likely each one is; default: all alike.")

    @model_validator(mode="after")
    def _as_many_weights(self) -> Self:
        if not self.choices:
            raise mistake("there is nothing to choose from; write at least one value")
        weights = self.weights
        if weights is not None and (
            len(weights) != len(self.choices) or min(weights) < 0 or not 0 < sum(weights) < np.inf
        ):
            raise mistake("weights needs a number for each choice, none below zero and not all zero; mend it")
        return self

    def misfit(self, column: Column) -> str | None:
        for choice in self.choices:
            wrong = None if choice is None else LiteralText(value=choice).misfit(column)
            if wrong is not None:
                return wrong.replace("the value is not", "one of the choices is not")
        return None

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        choices = pa.array(self.choices, pa.string())
        if self.weights is None:
            return choices.take(pa.array(draws.below(len(choices), 0)))
        ends = np.cumsum(self.weights) / sum(self.weights)
        place = (draws.number(0) >> np.uint64(11)).astype(np.float64) / (1 << 53)
        last = int(np.flatnonzero(self.weights)[-1])  # rounding of the sums must not reach a choice without weight
        return choices.take(pa.array(np.minimum(np.searchsorted(ends, place, side="right"), last)))
