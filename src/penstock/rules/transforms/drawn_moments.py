"""Made-up dates, timestamps and Unix times."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from penstock.changes.batch import Bools, Column, Int64s
from penstock.rules.transforms import moment_text
from penstock.rules.transforms.contract import Example, Row, flags
from penstock.rules.transforms.generator import (
    DATES,
    INTEGERS,
    NUMBERS,
    TEXT,
    TIMESTAMPS,
    Draws,
    Generator,
    base_of,
    not_of,
    not_text,
    whole_range,
)
from penstock.settings.mistakes import mistake

_SECOND = 1_000_000
_PARTS = {"microsecond": 1, "millisecond": 1000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3600 * _SECOND,
          "day": moment_text.MICROSECONDS_PER_DAY}  # fmt: skip
_MOMENT = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(\+00)?\z"


def _date(value: Any) -> Any:
    if isinstance(value, datetime):
        value = value.date()
    try:
        found = value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        raise mistake("expected a date; write it like 2024-02-29") from None
    return (found - date(1970, 1, 1)).days * moment_text.MICROSECONDS_PER_DAY


def _moment(value: Any) -> Any:
    try:
        if isinstance(value, datetime):
            found = value
        elif isinstance(value, date):
            found = datetime(value.year, value.month, value.day)
        else:
            found = datetime.fromisoformat(str(value))
    except ValueError:
        raise mistake("expected a date or a timestamp; write it like 2024-02-29 13:37:42") from None
    since = found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
    passed = since - datetime(1970, 1, 1)
    return passed.days * moment_text.MICROSECONDS_PER_DAY + passed.seconds * _SECOND + passed.microseconds


class Between(Generator):
    """What the three have in common: microseconds drawn between two ends, in steps."""

    dynamic_parameters: ClassVar = ("min", "max")

    def step(self) -> int:
        raise NotImplementedError

    def ends(self) -> tuple[int, int]:
        raise NotImplementedError

    def _drawn(self, draws: Draws, row: Row) -> Int64s:
        low, high = self.ends()
        first = -(-self._end("min", low, row, len(draws)) // self.step())
        last = self._end("max", high, row, len(draws)) // self.step()
        span = (np.maximum(last, first) - first + 1).astype(np.uint64)
        drawn: Int64s = (first + draws.below(span, 0).astype(np.int64)) * self.step()
        return drawn

    def _end(self, which: str, default: int, row: Row, count: int) -> Int64s:
        """What a column gives is held within the setting's range."""
        column = self.dynamic_column(which, row)
        if column is None:
            return np.full(count, default, np.int64)
        moments = np.full(count, default, np.int64)
        known, given = self.read(column)
        moments[known] = given
        ends: Int64s = np.clip(moments, *self.ends())
        return ends

    def read(self, values: pa.StringArray) -> tuple[Bools, Int64s]:
        """Which values can be an end, and which end each of those is."""
        whole = pc.replace_substring_regex(values, r"\A([0-9-]{10})\z", r"\1 00:00:00")
        return moment_text.readable(whole, flags(pc.match_substring_regex(whole, _MOMENT)))


def in_order(low: int, high: int, step: int) -> None:
    if low > high:
        raise mistake("min is after max; swap them")
    if -(-low // step) > high // step:
        raise mistake("there is nothing of that unit between min and max; put them further apart")


class Date(Between):
    name: ClassVar = "date"
    summary: ClassVar = "A date within a range."
    fits: ClassVar = "date, and text"
    examples: ClassVar = (
        Example({"min": "1950-01-01", "max": "2005-12-31", "salt": "pepper"}, "1815-12-10", "1951-02-21"),
        Example({"min": "2024-02-29", "max": "2024-02-29"}, "1815-12-10", "2024-02-29"),
        Example(
            {"min": "2000-01-01", "max": "2030-12-31", "dynamic": {"min": "born"}},
            "1852-11-27",
            "2030-12-02",
            {"born": "2030-12-01"},
        ),
    )

    min: Annotated[int, BeforeValidator(_date)] = Field(description="The first: `1950-01-01`.")
    max: Annotated[int, BeforeValidator(_date)] = Field(description="The last.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        in_order(self.min, self.max, self.step())
        return self

    def step(self) -> int:
        return moment_text.MICROSECONDS_PER_DAY

    def ends(self) -> tuple[int, int]:
        return self.min, self.max

    def misfit(self, column: Column) -> str | None:
        return not_text(column, 10) if base_of(column) in TEXT else not_of(column, DATES, "a date column")

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        return moment_text.dates(self._drawn(draws, row))


class Timestamp(Between):
    name: ClassVar = "timestamp"
    summary: ClassVar = "A timestamp within a range, in UTC."
    fits: ClassVar = "timestamp, timestamptz (`zone: true`), and text"
    examples: ClassVar = (
        Example(
            {"min": "2020-01-01", "max": "2024-12-31 23:59:59", "salt": "pepper"},
            "1815-12-10 12:00:00",
            "2024-04-10 18:35:04",
        ),
        Example(
            {"min": "2020-01-01", "max": "2024-12-31", "unit": "hour", "zone": True},
            "1815-12-10 12:00:00+00",
            "2022-03-06 00:00:00+00",
        ),
    )

    min: Annotated[int, BeforeValidator(_moment)] = Field(description="The first: `2020-01-01 00:00:00`, in UTC.")
    max: Annotated[int, BeforeValidator(_moment)] = Field(description="The last.")
    unit: Literal["microsecond", "millisecond", "second", "minute", "hour", "day"] = Field(
        default="second",
        description="Whole units only: `microsecond`, `millisecond`, `second`, `minute`, `hour`, `day`.",
    )
    zone: bool = Field(default=False, description="Ends in `+00`, as a timestamptz does.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        in_order(self.min, self.max, self.step())
        return self

    def step(self) -> int:
        return _PARTS[self.unit]

    def ends(self) -> tuple[int, int]:
        return self.min, self.max

    def misfit(self, column: Column) -> str | None:
        base = base_of(column)
        if base in TIMESTAMPS and self.zone != (base == "timestamptz"):
            return f"the column is {column.type_name}; set zone: {'true' if base == 'timestamptz' else 'false'}"
        longest = 19 + (7 if _PARTS[self.unit] < _SECOND else 0) + (3 if self.zone else 0)
        return not_text(column, longest) if base in TEXT else not_of(column, TIMESTAMPS, "a timestamp")

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        return moment_text.timestamps(self._drawn(draws, row), "+00" if self.zone else "")


class UnixTimestamp(Between):
    name: ClassVar = "unix_timestamp"
    summary: ClassVar = "Seconds since 1970 (or thousandths of them) within a range."
    fits: ClassVar = "numbers whose type holds the range, and text"
    examples: ClassVar = (
        Example({"min": "2020-01-01", "max": "2024-12-31", "salt": "pepper"}, "1709213862", "1676173888"),
        Example({"min": 0, "max": 86400, "unit": "millisecond"}, "1709213862", "10138580"),
    )

    min: Annotated[int, BeforeValidator(lambda value: _unix(value))] = Field(
        description="The first: seconds, or a date."
    )
    max: Annotated[int, BeforeValidator(lambda value: _unix(value))] = Field(description="The last.")
    unit: Literal["second", "millisecond", "microsecond"] = Field(
        default="second", description="What is counted: `second`, `millisecond` or `microsecond`."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        in_order(self.min, self.max, self.step())
        return self

    def step(self) -> int:
        return _PARTS[self.unit]

    def ends(self) -> tuple[int, int]:
        return self.min, self.max

    def read(self, values: pa.StringArray) -> tuple[Bools, Int64s]:
        known = flags(pc.match_substring_regex(values, r"\A-?[0-9]{1,12}\z"))
        return known, pc.cast(values.filter(pa.array(known)), pa.int64()).to_numpy() * self.step()

    def misfit(self, column: Column) -> str | None:
        limits, ends = whole_range(column), [end // self.step() for end in self.ends()]
        if limits is not None and not limits[0] <= ends[0] <= ends[1] <= limits[1]:
            return f"{column.type_name} holds numbers from {limits[0]} to {limits[1]}; set min and max within them"
        if base_of(column) in TEXT:
            return not_text(column, max(len(str(end)) for end in ends))
        return not_of(column, NUMBERS | INTEGERS, "a number")

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pc.cast(pa.array(self._drawn(draws, row) // self.step()), pa.string())


def _unix(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**11:
        return value * _SECOND
    if isinstance(value, str) and value.lstrip("-").isdigit() and abs(int(value)) < 10**11:
        return int(value) * _SECOND
    return _moment(value)
