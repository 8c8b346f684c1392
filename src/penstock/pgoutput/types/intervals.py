"""interval, with IntervalStyle postgres: ``1 year 2 mons -3 days +04:05:06.789``.

https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-INTERVAL-OUTPUT
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Bools, Int64s
from penstock.pgoutput.types.family import Family, matches
from penstock.pgoutput.types.flat import validity

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
