"""The values that conditions compare with, read by the column's type: numbers exactly, moments as Postgres writes them."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
_TIME_OF_DAY = re.compile(_TIME, re.ASCII)
_MOMENT = re.compile(
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
    if not _NUMBER.fullmatch(text):
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
    match = _MOMENT.fullmatch(written.strip()) if isinstance(written, str) else None
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
