"""Less exact values: cut off, rounded, put into buckets."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from penstock.changes.batch import Column, Int64s
from penstock.rules.transforms import drawn_numbers, moment_text
from penstock.rules.transforms.contract import Example, Row, Transform
from penstock.rules.transforms.generator import (
    DATES,
    INTEGERS,
    NUMBERS,
    TIMESTAMPS,
    base_of,
    not_of,
    not_text,
    too_many_digits,
)
from penstock.settings.mistakes import mistake

Unit = Literal["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
_IN_DAYS = ("day", "week", "month", "quarter", "year")
_SAFE = 10**17  # steps below it are computed in 64 bits
_DIGITS = "Digits after the point; a negative number rounds before it: `-3` gives thousands."
_UNIT = (
    "A date's or a timestamp's: `second`, `minute`, `hour`, `day`, `week` (from Monday), `month`, `quarter`, `year`."
)


def misfit_of_moments(column: Column, unit: str | None) -> str | None:
    wrong = not_of(column, DATES | TIMESTAMPS, "a date or a timestamp")
    if wrong is None and base_of(column) in DATES and unit is not None and unit not in _IN_DAYS:
        return f"a date has no {unit}"
    return wrong


def _floor(moments: Int64s, unit: str, multiple: int = 1) -> Int64s:
    return _temporal(pc.floor_temporal, moments, unit, multiple)


def _temporal(kernel: Any, moments: Int64s, unit: str, multiple: int) -> Int64s:
    changed = kernel(pa.array(moments).view(pa.timestamp("us")), multiple=multiple, unit=unit)
    result: Int64s = changed.view(pa.int64()).to_numpy()
    return result


class Truncate(Transform):
    name: ClassVar = "truncate"
    summary: ClassVar = "Text cut to a length, numbers cut towards zero, dates and timestamps cut to a unit."
    fits: ClassVar = "text (`length`), numbers (`digits`), dates and timestamps (`unit`)"
    examples: ClassVar = (
        Example({"length": 3}, "Zürich", "Zür"),
        Example({"digits": 1}, "-12.59", "-12.5"),
        Example({"digits": -2}, "1299", "1200"),
        Example({"unit": "month"}, "2024-02-29", "2024-02-01"),
        Example({"unit": "hour"}, "2024-02-29 13:37:42.5+00", "2024-02-29 13:00:00+00"),
        Example({"unit": "year"}, "infinity", "infinity"),
    )

    length: int | None = Field(default=None, ge=0, description="Characters of a text to keep.")
    digits: int | None = Field(default=None, ge=-100, le=1000, description=_DIGITS)
    unit: Unit | None = Field(default=None, description=_UNIT)

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(given is not None for given in (self.length, self.digits, self.unit)) != 1:
            raise mistake("needs one of length (text), digits (numbers) and unit (dates and timestamps); give one")
        return self

    def misfit(self, column: Column) -> str | None:
        if self.length is not None:
            return not_text(column)
        if self.digits is not None:
            return not_of(column, NUMBERS, "a number")
        return misfit_of_moments(column, self.unit)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        if self.length is not None:
            return pc.utf8_slice_codeunits(values, 0, self.length)
        if self.unit is not None:
            unit = self.unit
            return moment_text.rewritten(values, lambda moments, _: _floor(moments, unit))
        return drawn_numbers.rewritten(values, lambda wholes, scale, _: _cut(wholes, scale, self.digits or 0, "down"))


class Round(Transform):
    name: ClassVar = "round"
    summary: ClassVar = "Numbers rounded, dates and timestamps rounded to the nearest unit."
    fits: ClassVar = "numbers (`digits`), dates and timestamps (`unit`)"
    examples: ClassVar = (
        Example({"digits": 1}, "12.25", "12.3"),
        Example({"digits": 0}, "-0.5", "-1"),
        Example({"digits": -3}, "1234567", "1235000"),
        Example({"digits": 2}, "7", "7"),
        Example({"unit": "hour"}, "2024-02-29 13:37:42", "2024-02-29 14:00:00"),
        Example({"digits": 2}, "NaN", "NaN"),
    )

    digits: int | None = Field(default=None, ge=-100, le=1000, description=f"{_DIGITS} A half goes away from zero.")
    unit: Unit | None = Field(default=None, description=_UNIT)

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.digits is None) == (self.unit is None):
            raise mistake("needs digits (numbers) or unit (dates and timestamps); give one of them")
        return self

    def misfit(self, column: Column) -> str | None:
        return not_of(column, NUMBERS, "a number") if self.unit is None else misfit_of_moments(column, self.unit)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        if self.unit is not None:
            unit = self.unit
            return moment_text.rewritten(values, lambda moments, _: _temporal(pc.round_temporal, moments, unit, 1))
        return drawn_numbers.rewritten(values, lambda wholes, scale, _: _cut(wholes, scale, self.digits or 0, "near"))


def _cut(wholes: drawn_numbers.Wholes, scale: int, digits: int, how: str) -> tuple[drawn_numbers.Wholes, int]:
    """Never more digits than there were: an integer stays one."""
    if digits >= scale:
        return wholes, scale
    step = 10 ** (scale - digits)
    if step >= _SAFE and wholes.dtype != object:
        wholes = wholes.astype(object)
    cut = drawn_numbers.truncated(wholes, step) if how == "down" else drawn_numbers.rounded(wholes, step)
    kept = max(digits, 0)
    return cut // 10 ** (scale - kept), kept


def _positive(value: Any) -> Any:
    try:
        number = None if isinstance(value, bool) else Decimal(str(value))
    except ArithmeticError:
        number = None
    if number is None or not number.is_finite() or number <= 0:
        raise mistake("expected a number above zero; write it like 10 or 0.5")
    return number


class Bucket(Transform):
    name: ClassVar = "bucket"
    summary: ClassVar = "The beginning of the bucket that a number, date or timestamp falls into."
    fits: ClassVar = "numbers (`size`), dates and timestamps (`unit`)"
    examples: ClassVar = (
        Example({"size": 10}, "37", "30"),
        Example({"size": 10}, "-3", "-10"),
        Example({"size": 0.25}, "1.6", "1.50"),
        Example({"unit": "quarter"}, "2024-05-17", "2024-04-01"),
        Example({"unit": "minute", "multiple": 15}, "2024-02-29 13:37:42+00", "2024-02-29 13:30:00+00"),
    )

    size: Annotated[Decimal, BeforeValidator(_positive)] | None = Field(
        default=None, description="Of a number's bucket; buckets begin at its multiples, and numbers get its digits."
    )
    unit: Unit | None = Field(default=None, description=_UNIT)
    multiple: int = Field(default=1, ge=1, le=10_000, description="How many units make a bucket, counted from 1970.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.size is None) == (self.unit is None):
            raise mistake("needs size (numbers) or unit (dates and timestamps); give one of them")
        return self

    def misfit(self, column: Column) -> str | None:
        if self.size is None:
            return misfit_of_moments(column, self.unit)
        if base_of(column) in INTEGERS and self.size != self.size.to_integral_value():
            return f"a bucket of {self.size} begins between integers, and the column is {column.type_name}"
        digits = drawn_numbers.taken_apart(f"{self.size:f}")[1]
        return not_of(column, NUMBERS, "a number") or too_many_digits(column, 0, digits)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        if self.unit is not None:
            unit = self.unit
            return moment_text.rewritten(values, lambda moments, _: _floor(moments, unit, self.multiple))
        return drawn_numbers.rewritten(values, self._begin)

    def _begin(self, wholes: drawn_numbers.Wholes, scale: int, rows: Int64s) -> tuple[drawn_numbers.Wholes, int]:
        size, digits = drawn_numbers.taken_apart(f"{self.size:f}")
        common = max(scale, digits)
        step, drop = size * 10 ** (common - digits), 10 ** (common - digits)
        small = step < _SAFE and common - scale <= 1
        begin = drawn_numbers.floor_to(
            drawn_numbers.rescaled(wholes if small else wholes.astype(object), scale, common), step
        )
        return begin // drop, digits
