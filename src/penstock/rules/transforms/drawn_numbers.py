"""Made-up integers, floats and booleans.

Arithmetic on numbers as Postgres writes them, without losing a digit.

A number is taken apart into a whole number and a scale: 12.50 is 1250 with scale 2. Those of up to 18 digits are computed
as 64-bit integers, all of one scale together; longer ones and those with an exponent (floats) one by one with Python's
integers. NaN and the infinities are left as they are, as is everything that is no number.

Numbers as text, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from penstock.changes.batch import Bools, Column, Int64s, UInt8s, UInt64s
from penstock.rules.transforms.contract import Example, Row, flags, put
from penstock.rules.transforms.generator import (
    INTEGERS,
    NUMBERS,
    TEXT,
    Draws,
    Generator,
    not_of,
    not_text,
    too_many_digits,
    whole_range,
)
from penstock.settings.mistakes import mistake

Wholes = npt.NDArray[Any]  # int64, or Python's integers as objects
Change = Callable[[Wholes, int, Int64s], tuple[Wholes, int]]
"""From whole numbers, their scale and the rows that they stand in, to others and theirs."""

_PLAIN = r"\A-?[0-9]+(\.[0-9]+)?\z"
_NUMBER = r"\A-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?\z"
_DIGITS = 16  # that leave room for what is computed with them in 64 bits


def rewritten(values: pa.StringArray, change: Change) -> pa.StringArray:
    """Every number of the column changed."""
    plain = flags(pc.match_substring_regex(values, _PLAIN)) & flags(pc.less_equal(pc.binary_length(values), _DIGITS))
    result = values
    for scale, rows in _by_scale(values, plain):
        wholes = pc.cast(pc.replace_substring(values.filter(pa.array(rows)), ".", ""), pa.int64()).to_numpy()
        changed, new_scale = change(wholes, scale, np.flatnonzero(rows))
        result = put(result, rows, written(changed, new_scale))
    others = ~plain & flags(pc.match_substring_regex(values, _NUMBER))
    return _one_by_one(result, values, others, change) if others.any() else result


def _by_scale(values: pa.StringArray, plain: Bools) -> list[tuple[int, Bools]]:
    point = pc.fill_null(pc.find_substring(values, "."), -1).to_numpy()
    length = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    scales = np.where(point < 0, 0, length - point - 1)
    return [(int(scale), plain & (scales == scale)) for scale in np.unique(scales[plain])]


def _one_by_one(result: pa.StringArray, values: pa.StringArray, rows: Bools, change: Change) -> pa.StringArray:
    changed = []
    for row in np.flatnonzero(rows):
        whole, scale = taken_apart(values[int(row)].as_py())
        wholes, new_scale = change(np.array([whole], object), scale, np.array([row]))
        changed.append(_written(int(wholes[0]), new_scale))
    return put(result, rows, pa.array(changed, pa.string()))


def taken_apart(number: str) -> tuple[int, int]:
    """The whole number and the scale of a number as text."""
    sign, digits, exponent = Decimal(number).as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    return (whole, -exponent) if isinstance(exponent, int) and exponent <= 0 else (whole * 10 ** int(exponent), 0)


def rescaled(wholes: Wholes, scale: int, to: int) -> Wholes:
    """The same numbers with more digits after the point."""
    result: Wholes = wholes * 10 ** (to - scale) if to != scale else wholes
    return result


def floor_to(wholes: Wholes, step: int) -> Wholes:
    result: Wholes = wholes // step * step
    return result


def truncated(wholes: Wholes, step: int) -> Wholes:
    """To a multiple of the step, towards zero."""
    result: Wholes = np.where(wholes < 0, -(-wholes // step), wholes // step) * step
    return result


def rounded(wholes: Wholes, step: int) -> Wholes:
    """To the nearest multiple of the step; a half goes away from zero, as Postgres has it for numeric."""
    nearest = (2 * abs(wholes) + step) // (2 * step) * step
    result: Wholes = np.where(wholes < 0, -nearest, nearest)
    return result


def written(wholes: Wholes, scale: int) -> pa.StringArray:
    """As text, with that many digits after the point."""
    if wholes.dtype == object:
        return pa.array([_written(int(whole), scale) for whole in wholes], pa.string())
    if scale == 0:
        return pc.cast(pa.array(wholes), pa.string())
    digits = pc.utf8_lpad(pc.cast(pa.array(np.abs(wholes)), pa.string()), scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(pa.array(wholes < 0), "-", "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, before, ""), after, ".")


def _written(whole: int, scale: int) -> str:
    digits = f"{abs(whole):0{scale + 1}}"
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if whole < 0 else text


_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
_EXACT = 10**15  # floats tell whole numbers apart up to here
T = TypeVar("T", int, float)
Floats = npt.NDArray[np.float64]


class Integer(Generator):
    name: ClassVar = "integer"
    summary: ClassVar = "An integer within a range."
    fits: ClassVar = "numbers whose type holds the range, and text"
    dynamic_parameters: ClassVar = ("min", "max")
    examples: ClassVar = (
        Example({"salt": "pepper"}, "4711", "1954320354"),
        Example({"min": -5, "max": 5}, "4711", "5"),
        Example({"min": 18, "max": 99, "dynamic": {"max": "limit"}}, "4711", "20", {"limit": "20"}),
    )

    min: int = Field(default=0, ge=_SMALLEST, le=_LARGEST, description="The smallest.")
    max: int = Field(default=(1 << 31) - 1, ge=_SMALLEST, le=_LARGEST, description="The largest.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise mistake("min is more than max; swap them")
        return self

    def misfit(self, column: Column) -> str | None:
        limits = whole_range(column)
        if limits is not None and not limits[0] <= self.min <= self.max <= limits[1]:
            return f"{column.type_name} holds numbers from {limits[0]} to {limits[1]}; set min and max within them"
        if _is_text(column):
            return not_text(column, max(len(str(self.min)), len(str(self.max))))
        return not_of(column, NUMBERS, "a number") or too_many_digits(column, max(abs(self.min), abs(self.max)), 0)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        if not self.dynamic:
            offsets = draws.below(self.max - self.min + 1, 0)
            return pc.cast(pa.array((offsets + np.uint64(self.min & (1 << 64) - 1)).view(np.int64)), pa.string())
        low, high = (self._bound(which, default, row, len(values)) for which, default in _ends(self.min, self.max))
        span = (np.maximum(high, low).view(np.uint64) - low.view(np.uint64)) + np.uint64(1)
        number = draws.number(0)
        offsets = np.where(span == 0, number, number % np.maximum(span, np.uint64(1)))
        return pc.cast(pa.array((offsets + low.view(np.uint64)).view(np.int64)), pa.string())

    def _bound(self, which: str, default: int, row: Row, count: int) -> Int64s:
        """A column's numbers are held within the setting's range, so that results still fit."""
        column = self.dynamic_column(which, row)
        if column is None:
            return np.full(count, default, np.int64)
        known = flags(pc.match_substring_regex(column, r"\A-?[0-9]{1,18}\z"))
        numbers = pc.cast(pc.if_else(pa.array(known), column, str(default)), pa.int64()).to_numpy()
        bounds: Int64s = np.clip(numbers, self.min, self.max).astype(np.int64)
        return bounds


class Float(Generator):
    name: ClassVar = "float"
    summary: ClassVar = "A number with digits after the point, within a range."
    fits: ClassVar = "numeric, float4, float8, and text"
    dynamic_parameters: ClassVar = ("min", "max")
    examples: ClassVar = (
        Example({"salt": "pepper"}, "3.14", "991.03"),
        Example({"min": -1, "max": 1, "precision": 4}, "3.14", "0.4434"),
        Example({"max": 100, "dynamic": {"min": "least"}}, "3.14", "99.60", {"least": "99.5"}),
    )

    min: float = Field(default=0.0, ge=-_EXACT, le=_EXACT, description="The smallest.")
    max: float = Field(default=1000.0, ge=-_EXACT, le=_EXACT, description="The largest.")
    precision: int = Field(default=2, ge=0, le=15, description="Digits after the point.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise mistake("min is more than max; swap them")
        if max(abs(self.min), abs(self.max)) * 10**self.precision > _EXACT:
            raise mistake("min and max have more than 15 digits together with precision; make one of them smaller")
        if np.ceil(self.min * 10**self.precision) > np.floor(self.max * 10**self.precision):
            raise mistake("there is no number of that precision between min and max; set a larger precision")
        return self

    def misfit(self, column: Column) -> str | None:
        if _is_text(column):
            longest = max(len(str(int(self.min))), len(str(int(self.max)))) + 1 + self.precision + 1
            return not_text(column, longest)
        wrong = not_of(column, NUMBERS - INTEGERS, "a numeric or float column")
        return wrong or too_many_digits(column, int(max(abs(self.min), abs(self.max))), self.precision)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        """Draws a whole number of the smallest steps, so that no result has more digits or leaves the range."""
        low, high = (self._bound(which, default, row, len(values)) for which, default in _ends(self.min, self.max))
        first = np.ceil(np.round(low * 10**self.precision, 3)).astype(np.int64)
        last = np.floor(np.round(high * 10**self.precision, 3)).astype(np.int64)
        span = (np.maximum(last, first) - first + 1).astype(np.uint64)
        return written(first + draws.below(span, 0).astype(np.int64), self.precision)

    def _bound(self, which: str, default: float, row: Row, count: int) -> Floats:
        column = self.dynamic_column(which, row)
        if column is None:
            return np.full(count, default, np.float64)
        known = flags(pc.match_substring_regex(column, r"\A-?[0-9]{1,15}(\.[0-9]+)?\z"))
        numbers = pc.cast(pc.if_else(pa.array(known), column, str(default)), pa.float64()).to_numpy()
        bounds: Floats = np.clip(numbers, self.min, self.max)
        return bounds


class Boolean(Generator):
    name: ClassVar = "boolean"
    summary: ClassVar = "True or false."
    fits: ClassVar = "boolean"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "t", "t"),
        Example({"probability": 1.0}, "f", "t"),
    )

    probability: float = Field(default=0.5, ge=0, le=1, description="How many of all are true.")

    def misfit(self, column: Column) -> str | None:
        return not_of(column, {"bool"}, "a boolean column")

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        true = (draws.number(0) >> np.uint64(11)).astype(np.float64) < self.probability * (1 << 53)
        return pc.if_else(pa.array(true), "t", "f")


def _ends(low: T, high: T) -> tuple[tuple[str, T], tuple[str, T]]:
    return ("min", low), ("max", high)


def _is_text(column: Column) -> bool:
    return not_of(column, TEXT, "") is None


BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


@lru_cache(maxsize=16)
def counting(limit: int) -> pa.StringArray:
    """All numbers below a power of ten, with leading zeros."""
    width = len(str(limit - 1))
    return pa.array([f"{number:0{width}}" for number in range(limit)], pa.string())


def fixed_width(characters: UInt8s) -> pa.StringArray:
    """One text per row of a matrix of ASCII characters."""
    rows, width = characters.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(characters)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def base32(numbers: UInt64s) -> pa.StringArray:
    """All 64 bits, as 13 characters."""
    symbols = np.frombuffer(BASE32.encode(), np.uint8)
    characters = np.empty((len(numbers), 13), np.uint8)
    for place in range(13):
        characters[:, place] = symbols[(numbers >> np.uint64(5 * place)) & np.uint64(31)]
    return fixed_width(characters)


def hexadecimal(numbers: UInt64s) -> UInt8s:
    """Each number as a row of 16 characters, the highest digit first."""
    symbols = np.frombuffer(b"0123456789abcdef", np.uint8)
    raw = numbers.astype(">u8").view(np.uint8).reshape(len(numbers), 8)
    characters = np.empty((len(numbers), 16), np.uint8)
    characters[:, 0::2], characters[:, 1::2] = symbols[raw >> 4], symbols[raw & 15]
    return characters
