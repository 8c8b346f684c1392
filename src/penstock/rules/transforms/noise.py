"""Values moved a little: by noise, or all of somebody's dates by as many days."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from penstock.changes.batch import Column, Int64s
from penstock.rules.transforms import drawn_numbers, moment_text
from penstock.rules.transforms.coarse import misfit_of_moments
from penstock.rules.transforms.contract import Example, Row, flags
from penstock.rules.transforms.generator import NUMBERS, Draws, Generator, not_of, whole_range
from penstock.rules.transforms.moment_text import Interval
from penstock.settings.mistakes import mistake

_PARTS = 1 << 53  # noise is a whole number of 53 bits, which a float holds exactly
_SAFE = 1 << 52  # below it, floats tell whole numbers apart


def _not_negative(value: Any) -> Any:
    try:
        number = None if isinstance(value, bool) else Decimal(str(value))
    except ArithmeticError:
        number = None
    if number is None or not number.is_finite() or number < 0:
        raise mistake("expected a number that is not negative; write it like 10 or 0.05")
    return number


Size = Annotated[Decimal, BeforeValidator(_not_negative)]


class Noise(Generator):
    name: ClassVar = "noise"
    summary: ClassVar = "A number, date or timestamp moved up or down by some noise, evenly spread."
    fits: ClassVar = "numbers (`amount`, `ratio`), dates and timestamps (`interval`)"
    takes_nulls = False
    examples: ClassVar = (
        Example({"amount": 10, "salt": "pepper"}, "100", "92"),
        Example({"ratio": 0.1, "salt": "pepper"}, "250.00", "263.30"),
        Example({"interval": "30d", "salt": "pepper"}, "2024-02-29", "2024-03-19"),
        Example({"interval": "1h", "salt": "pepper"}, "2024-02-29 13:37:42+00", "2024-02-29 13:46:15.26148+00"),
        Example({"amount": 50, "min": 0, "max": 10}, "5", "10"),
        Example({"interval": "30d"}, "infinity", "infinity"),
    )

    amount: Size | None = Field(default=None, description="A number is moved by up to this much.")
    ratio: Size | None = Field(default=None, description="A number is moved by up to this part of it: 0.1 is a tenth.")
    interval: Interval | None = Field(
        default=None, description="A date or timestamp is moved by up to this long: `30d`."
    )
    min: Decimal | None = Field(default=None, description="No number comes below this one.")
    max: Decimal | None = Field(default=None, description="No number comes above this one.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(given is not None for given in (self.amount, self.ratio, self.interval)) != 1:
            raise mistake("needs one of amount, ratio (numbers) and interval (dates and timestamps); give one")
        return self

    def misfit(self, column: Column) -> str | None:
        if self.interval is not None:
            return misfit_of_moments(column, None)
        wrong, limits = not_of(column, NUMBERS, "a number"), whole_range(column)
        bounds = [bound for bound in (self.min, self.max) if bound is not None]
        if limits is not None and any(not limits[0] <= bound <= limits[1] for bound in bounds):
            return f"min or max is outside of {column.type_name}"
        return wrong

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        parts = (draws.number(0) >> np.uint64(11)).astype(np.int64)
        if self.interval is not None:
            span = abs(self.interval)
            return moment_text.rewritten(values, lambda moments, rows: moments + _moved(parts[rows], span))
        return drawn_numbers.rewritten(values, lambda wholes, scale, rows: self._noisy(wholes, scale, parts[rows]))

    def _noisy(self, wholes: drawn_numbers.Wholes, scale: int, parts: Int64s) -> tuple[drawn_numbers.Wholes, int]:
        amount = (self.amount or Decimal(0)).scaleb(scale)
        if wholes.dtype == object or amount >= _SAFE or (self.ratio or 0) > 1:
            span = _exact_spans(wholes, self.ratio) if self.ratio is not None else int(amount)
            exact = wholes.astype(object) + parts.astype(object) * (2 * span + 1) // _PARTS - span
        else:
            span = (np.abs(wholes) * float(self.ratio)).astype(np.int64) if self.ratio is not None else int(amount)
            exact = wholes + _moved(parts, span)
        low, high = self._bounds(scale)
        exact = exact if low is None else np.maximum(exact, low)
        return exact if high is None else np.minimum(exact, high), scale

    def _bounds(self, scale: int) -> tuple[int | None, int | None]:
        low, high = (None if bound is None else bound.scaleb(scale) for bound in (self.min, self.max))
        return None if low is None else -int(-low // 1), None if high is None else int(high // 1)


def _moved(parts: Int64s, span: int | Int64s) -> Int64s:
    """A whole number from -span to span, each as likely as the others."""
    moved: Int64s = np.floor(parts / _PARTS * (2 * span + 1)).astype(np.int64) - span
    return moved


def _exact_spans(wholes: drawn_numbers.Wholes, ratio: Decimal) -> drawn_numbers.Wholes:
    size, digits = drawn_numbers.taken_apart(f"{ratio:f}")
    spans: drawn_numbers.Wholes = abs(wholes.astype(object)) * size // 10**digits
    return spans


class ShiftDates(Generator):
    name: ClassVar = "shift_dates"
    summary: ClassVar = "Dates moved by a number of days: the same for all, or for all that belong together."
    fits: ClassVar = "dates and timestamps"
    takes_nulls = False
    dynamic_parameters: ClassVar = ("days",)
    examples: ClassVar = (
        Example({"days": -30}, "2024-03-01", "2024-01-31"),
        Example({"days": 1}, "2024-02-29 23:59:59.5+00", "2024-03-01 23:59:59.5+00"),
        Example({"max_days": 365, "by": "patient", "salt": "pepper"}, "2024-03-01", "2024-12-10", {"patient": "7"}),
        Example({"dynamic": {"days": "offset"}}, "2024-03-01", "2024-03-08", {"offset": "7"}),
        Example({"days": 1}, "0044-03-15 BC", "0044-03-15 BC"),
    )

    days: int | None = Field(default=None, ge=-3_000_000, le=3_000_000, description="All are moved by this many days.")
    min_days: int | None = Field(default=None, description="With `max_days`: at least this many; default `-max_days`.")
    max_days: int | None = Field(
        default=None, description="Each is moved by a number of days drawn for it, up to this."
    )
    by: str | None = Field(
        default=None,
        description="Draws the days by this column, so that rows with the same value in it are moved alike and what lies"
        " between their dates stays as long.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = (self.days is not None, self.max_days is not None, "days" in self.dynamic)
        if sum(ways) != 1 and not (ways[0] and ways[2]):
            raise mistake("needs days, or max_days, or days from another column; give one of them")
        if self.max_days is None and (self.min_days is not None or self.by is not None):
            raise mistake("min_days and by go with max_days; add it")
        if self.max_days is not None and self._first_day > self.max_days:
            raise mistake("min_days is more than max_days; swap them")
        return self

    @property
    def _first_day(self) -> int:
        return -(self.max_days or 0) if self.min_days is None else self.min_days

    @property
    def deterministic(self) -> bool:
        return self.max_days is None or self.generator == "deterministic"

    @property
    def keeps_uniqueness(self) -> bool:
        return self.days is not None and not self.dynamic

    def columns(self) -> set[str]:
        return super().columns() | ({self.by} if self.by is not None else set())

    def misfit(self, column: Column) -> str | None:
        return misfit_of_moments(column, None)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        days = self._days(values, row) * moment_text.MICROSECONDS_PER_DAY
        return moment_text.rewritten(values, lambda moments, rows: moments + days[rows])

    def _days(self, values: pa.StringArray, row: Row) -> Int64s:
        if self.max_days is not None:
            source = values if self.by is None else row.column(self.by)
            drawn = self.draws(source).below(self.max_days - self._first_day + 1, 0)
            return drawn.astype(np.int64) + self._first_day
        column = self.dynamic_column("days", row)
        if column is None:
            return np.full(len(values), self.days or 0, np.int64)
        small = flags(pc.match_substring_regex(column, r"\A-?[0-9]{1,6}\z"))
        numbers = pc.cast(pc.if_else(pa.array(small), column, str(self.days or 0)), pa.int64())
        days: Int64s = numbers.to_numpy()
        return days
