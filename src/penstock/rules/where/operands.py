"""The values that conditions compare with, read by the column's type: numbers exactly, moments as Postgres writes them.

Dates and timestamps compared as a day's number and the text of the time of day: exact for all that Postgres can write.

Numerics compared as the text that they are, digit by digit: exact for any length, and for NaN and the infinities.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Bools

_WRITTEN_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,4})?", re.ASCII
)
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
_TIME_OF_DAY = re.compile(_TIME, re.ASCII)
_WRITTEN_MOMENT = re.compile(
    rf"(?P<day>[0-9]{{4,7}}-[0-9]{{2}}-[0-9]{{2}})(?:[ T]{_TIME} ?(?P<zone>Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?(?P<bc> BC)?",
    re.ASCII,
)
_TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "on", "1"), "t"),
    **dict.fromkeys(("false", "f", "no", "off", "0"), "f"),
}
_LONGEST_YEAR = {"date": 7, "timestamp": 6, "timestamptz": 6}


class UnfitOperand(ValueError):
    """A sentence: what was expected. Never the operand itself."""


def number(operand: Any) -> Decimal:
    """Exactly what was written. A float is what it prints as: 0.1 is one tenth."""
    if isinstance(operand, bool) or not isinstance(operand, int | float | str):
        raise UnfitOperand("expected a number")
    text = operand.strip() if isinstance(operand, str) else repr(operand)
    special = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "-inf": "-Infinity", "-infinity": "-Infinity"}
    if text.lower() in special:
        return Decimal(special[text.lower()])
    if not _WRITTEN_NUMBER.fullmatch(text):
        raise UnfitOperand("expected a number")
    return Decimal(text)


def text(operand: Any) -> str:
    if isinstance(operand, str):
        return operand
    if isinstance(operand, int) and not isinstance(operand, bool):
        return str(operand)
    raise UnfitOperand("expected text; write it in quotes")


def truth(operand: Any) -> str:
    found = _TRUTH.get(str(operand).lower()) if isinstance(operand, bool | int | str) else None
    if found is None:
        raise UnfitOperand("expected true or false")
    return found


def unique_id(operand: Any) -> str:
    try:
        return str(uuid.UUID(operand))
    except (ValueError, AttributeError, TypeError):
        raise UnfitOperand("expected a uuid") from None


def time_of_day(operand: Any) -> str:
    match = _TIME_OF_DAY.fullmatch(operand) if isinstance(operand, str) else None
    if match is None or _clock(match) > "24:00:00":
        raise UnfitOperand('expected a time of day; write it in quotes, like "18:30:00"')
    return _clock(match)


def moment(operand: Any, base: str) -> str:
    """As Postgres writes it. ``base``: date, timestamp or timestamptz; without a zone, UTC is meant."""
    form = {"date": "2024-12-31", "timestamp": "2024-12-31 18:30:00", "timestamptz": "2024-12-31 18:30:00+00"}[base]
    hint = f'expected a {base}; write it like "{form}"'
    written = operand.isoformat(" ") if isinstance(operand, datetime) else operand
    written = written.isoformat() if isinstance(written, date) else written
    if isinstance(written, str) and written.strip().lower() in ("infinity", "-infinity"):
        return written.strip().lower()
    match = _WRITTEN_MOMENT.fullmatch(written.strip()) if isinstance(written, str) else None
    if match is None or len(match["day"]) - 6 > _LONGEST_YEAR[base] or match["day"].startswith("0000"):
        raise UnfitOperand(hint)
    if base == "date":
        if match["hour"] is not None:
            raise UnfitOperand(f"{hint}; the column has no time of day")
        return match["day"] + (match["bc"] or "")
    if base == "timestamp" and match["zone"] is not None:
        raise UnfitOperand(f"{hint}; the column has no time zone")
    if match["hour"] is not None and _clock(match) >= "24:00:00":
        raise UnfitOperand(hint)
    day, clock = match["day"], _clock(match) if match["hour"] is not None else "00:00:00"
    if match["zone"] not in (None, "Z", "+00", "+00:00", "+0000", "-00", "-00:00", "-0000"):
        day, clock = _in_utc(day, clock, match, hint)
    return f"{day} {clock}{'+00' if base == 'timestamptz' else ''}{match['bc'] or ''}"


def _clock(match: re.Match[str]) -> str:
    fraction = (match["fraction"] or "").rstrip("0")
    if int(match["minute"]) > 59 or int(match["second"] or 0) > 59:
        return "99:00:00"
    return f"{match['hour']}:{match['minute']}:{match['second'] or '00'}{'.' if fraction else ''}{fraction}"


def _in_utc(day: str, clock: str, match: re.Match[str], hint: str) -> tuple[str, str]:
    zone = match["zone"].replace(":", "")
    try:
        if match["bc"]:
            raise ValueError
        shifted = datetime.fromisoformat(f"{day}T{clock}{zone[:3]}:{zone[3:] or '00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise UnfitOperand(f"{hint}, in UTC") from None
    fraction = f".{shifted.microsecond:06d}".rstrip("0") if shifted.microsecond else ""
    return shifted.strftime("%Y-%m-%d").rjust(10, "0"), f"{shifted:%H:%M:%S}{fraction}"


Signs = npt.NDArray[np.int64]

_NUMBER = r"\A(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*?)0*)?\z"
_ABOVE_ALL = {"NaN": 2, "Infinity": 1, "-Infinity": -1}


def compared_digits(text: pa.Array, value: Decimal) -> tuple[Signs, Bools]:
    """For each number whether it is below (-1), equal (0) or above (1) the value; and which are numbers at all.

    As in Postgres, NaN is above infinity.
    """
    parts = pc.extract_regex(text, _NUMBER)
    finite = _bools(pc.is_valid(parts))
    level = np.zeros(len(text), np.int64)
    for word, height in _ABOVE_ALL.items():
        level[_bools(pc.equal(text, word))] = height
    known = finite | (level != 0)
    if not value.is_finite():
        return np.sign(level - _ABOVE_ALL[str(value)]), known
    return np.where(finite, _finite(parts, value), np.sign(level)), known


def _finite(parts: pa.Array, value: Decimal) -> Signs:
    whole, part = _digits(value)
    own_whole, own_part = (pc.fill_null(pc.struct_field(parts, name), "") for name in ("whole", "part"))
    size = np.sign(pc.binary_length(own_whole).to_numpy(zero_copy_only=False).astype(np.int64) - len(whole))
    for own, other in ((own_whole, whole), (own_part, part)):
        size = np.where(size == 0, text_sign(own, other), size)
    zero = _bools(pc.and_(pc.equal(own_whole, "0"), pc.equal(own_part, "")))
    sign = np.where(zero, 0, np.where(_bools(pc.equal(pc.struct_field(parts, "sign"), "-")), -1, 1))
    other_sign = 0 if value == 0 else -1 if value < 0 else 1
    compared: Signs = np.where(sign == other_sign, size * other_sign, np.sign(sign - other_sign))
    return compared


def text_sign(own: pa.Array, other: str) -> Signs:
    above: Signs = _bools(pc.greater(own, other)).astype(np.int64)
    return above - _bools(pc.less(own, other)).astype(np.int64)


def _digits(value: Decimal) -> tuple[str, str]:
    whole, _, part = f"{value.copy_abs():f}".partition(".")
    return whole.lstrip("0") or "0", part.rstrip("0")


def _bools(array: pa.Array) -> Bools:
    found: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found


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
