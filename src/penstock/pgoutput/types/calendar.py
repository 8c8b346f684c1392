"""date, timestamp and timestamptz, with DateStyle ISO and TimeZone UTC.

Postgres knows years from 4713 BC to 5874897 (dates) or 294276 (timestamps), and infinity. Infinity and years before
Christ are taken as unrepresentable: few targets agree on them. Years of more than four digits are right in Arrow and in
DuckDB, so they are cast, though Arrow's parser does not know them.
https://www.postgresql.org/docs/current/datatype-datetime.html
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pgoutput.types.family import Family, matches

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
