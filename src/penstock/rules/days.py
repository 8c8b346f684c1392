"""Dates and timestamps compared as a day's number and the text of the time of day: exact for all that Postgres can write."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Bools
from penstock.rules.digits import text_sign

Signs = npt.NDArray[np.int64]

_MOMENT = (
    r"\A(?P<year>[0-9]{4,7})(?P<day>-[0-9]{2}-[0-9]{2})(?: (?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)(?:\+00)?)?"
    r"(?P<bc> BC)?\z"
)
# The Gregorian calendar repeats itself after 400 years, which are this many days.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_END_OF_TIME = 1 << 40


def compared_days(text: pa.Array, value: str) -> tuple[Signs, Bools]:
    """For each moment whether it is before (-1), at (0) or after (1) the value; and which are moments at all."""
    day, time, _ = _places(pa.array([value], pa.string()))
    days, times, known = _places(text)
    sign = np.sign(days - day[0])
    return np.where(sign == 0, text_sign(times, time[0].as_py()), sign), known


def _places(text: pa.Array) -> tuple[Signs, pa.Array, Bools]:
    """Days from 1970, times of day, and where there are any. Infinity is a day of its own."""
    parts = pc.extract_regex(text, _MOMENT)
    known = _bools(pc.is_valid(parts))
    years = pc.fill_null(pc.cast(pc.struct_field(parts, "year"), pa.int64()), 2000).to_numpy()
    before_christ = _bools(pc.equal(pc.struct_field(parts, "bc"), " BC"))
    counted = np.where(before_christ, 1 - years, years)  # the year before year 1 is 1 BC
    cycles = (counted - 2000) // _CYCLE_YEARS
    near = pa.array(counted - cycles * _CYCLE_YEARS).cast(pa.string())
    day_of_year = pc.fill_null(pc.struct_field(parts, "day"), "-01-01")
    days, exist = _parsed(pc.binary_join_element_wise(near, day_of_year, ""))
    days = days + cycles * _CYCLE_DAYS
    for word, day in (("infinity", _END_OF_TIME), ("-infinity", -_END_OF_TIME)):
        found = _bools(pc.equal(text, word))
        days, known = np.where(found, day, days), known | found
    return days, pc.fill_null(pc.struct_field(parts, "time"), ""), known & exist


def _parsed(days: pa.Array) -> tuple[Signs, Bools]:
    """30 February is no day."""
    try:
        numbers: Signs = days.cast(pa.date32()).view(pa.int32()).to_numpy().astype(np.int64)
        return numbers, np.ones(len(days), np.bool_)
    except pa.ArrowInvalid:
        exist = _exist(days)
        numbers, _ = _parsed(pc.if_else(pa.array(exist), days, "2000-01-01"))
        return numbers, exist


def _exist(days: pa.Array) -> Bools:
    """Whether each of these, from 2000 to 2399, is in the calendar."""
    months = pc.cast(pc.utf8_slice_codeunits(days, 5, 7), pa.int64()).to_numpy()
    numbers = pc.cast(pc.utf8_slice_codeunits(days, 8, 10), pa.int64()).to_numpy()
    years = pc.cast(pc.utf8_slice_codeunits(days, 0, 4), pa.int64()).to_numpy()
    leap = (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    real = (months >= 1) & (months <= 12)
    last = lengths[np.where(real, months, 0)] + ((months == 2) & leap)
    found: Bools = real & (numbers >= 1) & (numbers <= last)
    return found


def _bools(array: pa.Array) -> Bools:
    found: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found
