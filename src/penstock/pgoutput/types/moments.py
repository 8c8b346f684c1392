"""date, timestamp and timestamptz, with DateStyle ISO and TimeZone UTC.

Postgres knows years from 4713 BC to 5874897 (dates) or 294276 (timestamps), and infinity. Infinity and years before
Christ are taken as unrepresentable: few targets agree on them. Years of more than four digits are right in Arrow and in
DuckDB, so they are cast, though Arrow's parser does not know them.
https://www.postgresql.org/docs/current/datatype-datetime.html

time: a time of day. (timetz stays text: no Arrow type keeps its offset.)

interval, with IntervalStyle postgres: ``1 year 2 mons -3 days +04:05:06.789``.

https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-INTERVAL-OUTPUT
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Bools, Int64s
from penstock.pgoutput.types.family import Family, matches
from penstock.pgoutput.types.flat import validity

# The Gregorian calendar repeats itself after 400 years, which are this many days.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
# 64 bits of microseconds end on 10 January 294247, and DuckDB takes the very last one for infinity.
_LAST_YEAR_IN_MICROSECONDS = 294_246
_MICROSECONDS_PER_DAY = 86_400_000_000
_FIRST_DAY = -719_162  # 0001-01-01, in days from 1970

_YEAR = "(?:[1-9][0-9]{3,6}|0[0-9]{2}[1-9]|0[0-9][1-9]0|0[1-9]00)"
_DATE = f"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"


class Calendar(Family):
    partial = True
    shortest: ClassVar[int]  # Arrow also takes a timestamp without seconds, or without a time
    count_type: ClassVar[pa.DataType]  # the integers below the Arrow type,
    per_day: ClassVar[int]  # and how many of them make a day

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        shortest = pc.min(pc.binary_length(text)).as_py()
        if shortest is not None and shortest < self.shortest:
            return None
        values = super().ordinary(text, modifier)
        earliest = None if values is None else pc.min(values.view(self.count_type)).as_py()
        # Arrow knows a year 0000, Postgres does not.
        return None if earliest is not None and earliest < _FIRST_DAY * self.per_day else values

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        return matches(text, ".* BC|-?infinity")

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        long_year = matches(text, "[0-9]{5}.*")
        if not pc.any(long_year).as_py():
            return super().careful(text, modifier)
        year = _year(pc.if_else(long_year, text, "2000-"))
        cycles = pc.subtract(pc.divide(year, _CYCLE_YEARS), 2000 // _CYCLE_YEARS)
        near_year = pc.subtract(year, pc.multiply(cycles, _CYCLE_YEARS))  # the same calendar, and four digits
        after_year = pc.replace_substring_regex(text, r"\A[0-9]+-", "-")
        near = pc.if_else(long_year, pc.binary_join_element_wise(pc.cast(near_year, pa.string()), after_year, ""), text)
        counts = super().careful(near, modifier).view(self.count_type)
        away = pc.cast(pc.multiply_checked(cycles, _CYCLE_DAYS * self.per_day), self.count_type)
        return pc.add_checked(counts, away).view(self.arrow_type(modifier))


class Dates(Calendar):
    written = rf"{_DATE}(?: BC)?|-?infinity"
    alphabet = ("-", "9")
    shortest = 10
    count_type = pa.int32()
    per_day = 1

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.date32()


class Timestamps(Calendar):
    written = rf"{_DATE} {_TIME}(?: BC)?|-?infinity"
    alphabet = (" ", ":")
    shortest = len("2000-01-01 00:00:00")
    count_type = pa.int64()
    per_day = _MICROSECONDS_PER_DAY

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.timestamp("us")

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        too_late = pc.greater(_year(pc.if_else(matches(text, "[0-9]{6}.*"), text, "2000-")), _LAST_YEAR_IN_MICROSECONDS)
        return pc.or_(super().unrepresentable(text), too_late)


class ZonedTimestamps(Timestamps):
    written = rf"{_DATE} {_TIME}\+00(?: BC)?|-?infinity"
    shortest = len("2000-01-01 00:00:00+00")

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.timestamp("us", tz="UTC")


def _year(text: pa.StringArray) -> pa.Int64Array:
    return pc.cast(pc.struct_field(pc.extract_regex(text, r"\A(?P<year>[0-9]+)-"), "year"), pa.int64())


_TIMESTAMPS = Timestamps()
_SOME_DAY = "1970-01-01"


class Times(Family):
    """Arrow parses timestamps but no times; on the first day of its calendar the two are the same number."""

    partial = True
    written = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.time64("us")

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        moments = _TIMESTAMPS.ordinary(_on_first_day(text), -1)
        return None if moments is None else moments.view(pa.time64("us"))

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        return pc.equal(text, "24:00:00")

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        return _TIMESTAMPS.careful(_on_first_day(text), -1).view(pa.time64("us"))


def _on_first_day(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(_SOME_DAY, text, " ")


_FIELDS = (
    r"(?:\+?(?P<years>-?[0-9]{1,9}) years?)?"
    r"(?: ?\+?(?P<months>-?[0-9]{1,2}) mons?)?"
    r"(?: ?\+?(?P<days>-?[0-9]{1,10}) days?)?"
    r"(?: ?\+?(?P<sign>-?)(?P<hours>[0-9]{2,10}):(?P<minutes>[0-5][0-9]):(?P<seconds>[0-5][0-9])"
    r"(?:\.(?P<fraction>[0-9]{1,6}))?)?"
)
# Months, days and microseconds in Postgres; months, days and nanoseconds in Arrow.
_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_MOST_MICROSECONDS = np.iinfo(np.int64).max // 1000
_MOST_SECONDS = _MOST_MICROSECONDS // 1_000_000 + 1


class Intervals(Family):
    partial = True
    written = rf"-?infinity|{_FIELDS}"

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.month_day_nano_interval()

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        try:
            return self.careful(text, modifier)
        except pa.ArrowInvalid:
            return None

    def unrepresentable(self, text: pa.StringArray) -> pa.BooleanArray | None:
        """Infinity (Postgres 17), and more than the 292 years of hours that 64 bits of nanoseconds hold."""
        too_long = pa.array(np.abs(_microseconds(_fields(text))) > _MOST_MICROSECONDS)
        return pc.or_(matches(text, "-?infinity"), pc.and_(text.is_valid(), too_long))

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        fields = _fields(text)
        if fields.null_count != text.null_count or pc.any(pc.equal(text, "")).as_py():
            raise pa.ArrowInvalid("not an interval")
        months, days = _number(fields, "years") * 12 + _number(fields, "months"), _number(fields, "days")
        microseconds = _microseconds(fields)
        if _beyond_32_bits(months) or _beyond_32_bits(days) or (np.abs(microseconds) > _MOST_MICROSECONDS).any():
            raise pa.ArrowInvalid("an interval beyond the type's range")
        parts = np.empty(len(text), _LAYOUT)
        parts["months"], parts["days"], parts["nanoseconds"] = months, days, microseconds * 1000
        return pa.Array.from_buffers(self.arrow_type(modifier), len(text), [validity(text), pa.py_buffer(parts)])


def _fields(text: pa.StringArray) -> pa.StructArray:
    """The parts of each value, an empty string for a part that it has not; NULL for what is no interval."""
    return pc.extract_regex(text, rf"\A{_FIELDS}\z")


def _number(fields: pa.StructArray, name: str) -> Int64s:
    """One part of all values; 0 where there is none."""
    part = fields.field(name)
    digits = pc.if_else(pc.equal(part, ""), "0", part)
    numbers: Int64s = pc.fill_null(pc.cast(digits, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _microseconds(fields: pa.StructArray) -> Int64s:
    seconds = _number(fields, "hours") * 3600 + _number(fields, "minutes") * 60 + _number(fields, "seconds")
    fraction: Int64s = pc.cast(pc.utf8_rpad(fields.field("fraction"), 6, "0"), pa.int64()).to_numpy(
        zero_copy_only=False
    )
    negative: Bools = pc.equal(fields.field("sign"), "-").to_numpy(zero_copy_only=False)
    # What is beyond the range stays beyond it, and does not overflow on the way.
    microseconds: Int64s = np.minimum(seconds, _MOST_SECONDS) * 1_000_000 + fraction
    return np.where(negative, -microseconds, microseconds)


def _beyond_32_bits(numbers: Int64s) -> bool:
    return bool((numbers != numbers.astype(np.int32)).any())
