"""Made-up integers, floats and booleans."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from penstock.changes import Column, Int64s
from penstock.config.mistakes import mistake
from penstock.rules.transforms.contract import Example, Row, flags
from penstock.rules.transforms.fit import INTEGERS, NUMBERS, TEXT, not_of, not_text, too_many_digits, whole_range
from penstock.rules.transforms.generator import Generator
from penstock.rules.transforms.keyed_hash import Draws
from penstock.rules.transforms.number_text import written

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
