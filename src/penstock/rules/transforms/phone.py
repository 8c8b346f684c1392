"""Phone numbers."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from penstock.changes.batch import Column
from penstock.pgoutput.types.flat import flatten
from penstock.rules.transforms import dictionaries
from penstock.rules.transforms.contract import Example, Row
from penstock.rules.transforms.dictionaries import DEFAULT_LOCALE, phone_numbers
from penstock.rules.transforms.generator import Draws, Generator, not_text
from penstock.rules.transforms.names import Locale, drawn, lengths_of
from penstock.rules.transforms.text import drawn_characters
from penstock.settings.mistakes import mistake

_ZERO, _NINE = ord("0"), ord("9")
_DEFAULT_LENGTHS = (6, 10)
_AT_ONCE = 4 << 20  # bytes
_PER_NUMBER = 16  # decimal digits that one draw of 64 bits gives
_POWERS = np.uint64(10) ** np.arange(_PER_NUMBER, dtype=np.uint64)


class Phone(Generator):
    name: ClassVar = "phone"
    summary: ClassVar = "A phone number: as they look in a locale, with a prefix, or in the value's own form."
    fits: ClassVar = "text"
    dynamic_parameters: ClassVar = ("prefix",)
    examples: ClassVar = (
        Example({"salt": "pepper"}, "+44 20 7946 0958", "916-349-8188"),
        Example({"salt": "pepper", "preserve_format": True}, "+44 20 7946 0958", "+85 62 4179 9658"),
        Example({"prefix": "+49", "min_length": 12, "max_length": 12}, "+44 20 7946 0958", "+49822751590"),
        Example({"max_length": 8}, "+44 20 7946 0958", "82275159"),
        Example({"dynamic": {"prefix": "code"}}, "+44 20 7946 0958", "+35882275", {"code": "+358"}),
        Example({"locale": "fr_FR"}, "+44 20 7946 0958", "02 50 37 62 20"),
    )

    locale: Locale = Field(
        default=DEFAULT_LOCALE, description="How numbers look, unless a prefix or a length is given."
    )
    prefix: str | None = Field(default=None, description="What numbers begin with; nothing but digits follows.")
    min_length: int | None = Field(
        default=None,
        ge=1,
        description=f"Of a number of digits: characters at least, with the prefix; {_DEFAULT_LENGTHS[0]}.",
    )
    max_length: int | None = Field(
        default=None,
        ge=1,
        description=f"Of a number of digits: characters at most, with the prefix; {_DEFAULT_LENGTHS[1]}.",
    )
    preserve_format: bool = Field(
        default=False, description="Only the digits are new: length, spaces, signs and letters are the value's."
    )

    @model_validator(mode="after")
    def _lengths_in_order(self) -> Self:
        shortest, longest = self._lengths
        if shortest > longest:
            raise mistake(f"min_length ({shortest}) is more than max_length ({longest}); set them in order")
        if self.preserve_format and self._is_digits:
            raise mistake("preserve_format keeps beginning and length; remove prefix and lengths, or preserve_format")
        return self

    @property
    def _is_digits(self) -> bool:
        given = (self.prefix, self.min_length, self.max_length, self.dynamic.get("prefix"))
        return any(parameter is not None for parameter in given)

    @property
    def _lengths(self) -> tuple[int, int]:
        """What is given; what is not makes room for it."""
        shortest, longest = _DEFAULT_LENGTHS
        shortest = min(shortest, self.max_length or shortest) if self.min_length is None else self.min_length
        return shortest, max(longest, shortest) if self.max_length is None else self.max_length

    def misfit(self, column: Column) -> str | None:
        if self.preserve_format:
            return not_text(column)
        if self._is_digits:
            return not_text(column, max(self._lengths[1], len(self.prefix or "")), "set max_length")
        heads, tails = phone_numbers(self.locale, self.name)
        return not_text(column, heads.longest + tails.longest, "set max_length")

    def prepare(self) -> None:
        if not self._is_digits and not self.preserve_format:
            dictionaries.load(self.name)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        if self.preserve_format:
            return _new_digits(draws, values)
        if self._is_digits:
            return self._prefixed(draws, row)
        heads, tails = phone_numbers(self.locale, self.name)
        return pc.binary_join_element_wise(drawn(heads, draws, 0), drawn(tails, draws, 1), "")

    def _prefixed(self, draws: Draws, row: Row) -> pa.StringArray:
        column = self.dynamic_column("prefix", row)
        default = pa.scalar(self.prefix or "")
        prefix = pa.repeat(default, len(draws)) if column is None else pc.fill_null(column, default)
        shortest, longest = self._lengths
        lengths = draws.below(longest - shortest + 1, 0).astype(np.int64) + shortest
        digits = np.maximum(lengths - lengths_of(prefix), 0)
        return pc.binary_join_element_wise(prefix, drawn_characters(draws, digits, "0123456789"), "")


def _new_digits(draws: Draws, values: pa.StringArray) -> pa.StringArray:
    """A part of the rows at a time: each digit takes some fifty bytes on the way."""
    if not len(values):
        return values
    rows = max(1, _AT_ONCE * len(values) // max(values.nbytes, 1))
    parts = [
        _with_new_digits(Draws(draws.bits[first : first + rows]), values.slice(first, rows))
        for first in range(0, len(values), rows)
    ]
    return pa.concat_arrays(parts)


def _with_new_digits(draws: Draws, values: pa.StringArray) -> pa.StringArray:
    """ASCII digits are one byte each in UTF-8 and nothing else is in their range, so they are replaced as bytes."""
    data, offsets = flatten(values)
    data = data.copy()
    places = np.flatnonzero((data >= _ZERO) & (data <= _NINE))
    rows = np.searchsorted(offsets, places, side="right") - 1
    first = np.searchsorted(places, offsets[:-1])  # each row's first digit
    ordinal = np.arange(len(places)) - first[rows]
    if ordinal.max(initial=0) < _PER_NUMBER:
        bits = draws.number(0)[rows]
    else:
        bits = Draws(draws.bits[rows]).number((ordinal // _PER_NUMBER).astype(np.uint64))
    shifted = bits // _POWERS[ordinal % _PER_NUMBER]
    data[places] = _ZERO + (shifted % np.uint64(10)).astype(np.uint8)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data))
