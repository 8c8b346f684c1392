"""Text of random characters."""

from __future__ import annotations

import math
import string
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from penstock.changes import Column, Int64s, UInt64s
from penstock.config.mistakes import mistake
from penstock.rules.transforms.contract import Example, Row
from penstock.rules.transforms.fit import not_text
from penstock.rules.transforms.generator import Generator
from penstock.rules.transforms.keyed_hash import Draws
from penstock.rules.transforms.names import lengths_of

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
