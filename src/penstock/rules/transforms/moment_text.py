"""Arithmetic on dates and timestamps as Postgres writes them (ISO, UTC).

Infinity, years before Christ and years of more than four digits are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator

from penstock.changes.batch import Bools, Int64s
from penstock.rules.transforms.contract import flags, put
from penstock.settings.mistakes import mistake

MICROSECONDS_PER_DAY = 86_400_000_000
FIRST = -719_162 * MICROSECONDS_PER_DAY  # 0001-01-01
LAST = 2_932_897 * MICROSECONDS_PER_DAY - 1  # the end of 9999-12-31

Change = Callable[[Int64s, Int64s], Int64s]
"""From microseconds since 1970 and the rows that they stand in, to others."""

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
# By what follows the time.
_FORMS = {rf"\A{_DATE}\z": None, rf"\A{_DATE} {_TIME}\z": "", rf"\A{_DATE} {_TIME}\+00\z": "+00"}
_INTERVAL = re.compile(r"(?P<count>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>s|m|h|d|w|y)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def _interval(value: Any) -> Any:
    if isinstance(value, str) and (match := _INTERVAL.fullmatch(value.strip().removeprefix("-"))):
        size = round(float(match["count"]) * _SECONDS[match["unit"]] * 1_000_000)
        return -size if value.strip().startswith("-") else size
    raise mistake("expected a length of time; write it like 30d, 12h, 90m, 10s, 2w or 1y")


Interval = Annotated[int, BeforeValidator(_interval)]
"""Microseconds, written like 30d."""


def rewritten(values: pa.StringArray, change: Change) -> pa.StringArray:
    """Every date or timestamp of the column changed; results stay between the years 1 and 9999."""
    result = values
    for form, zone in _FORMS.items():
        rows, moments = readable(values, flags(pc.match_substring_regex(values, form)))
        if rows.any():
            changed = np.clip(change(moments, np.flatnonzero(rows)), FIRST, LAST)
            result = put(result, rows, dates(changed) if zone is None else timestamps(changed, zone))
    return result


def readable(values: pa.StringArray, rows: Bools) -> tuple[Bools, Int64s]:
    """Of these rows, which have one of the forms, those that are on the calendar, and their microseconds since 1970."""
    try:
        return rows, _read(values.filter(pa.array(rows)))
    except pa.ArrowInvalid:  # 30 February, which only a column of text can hold
        rows = rows & np.array([_is_moment(value) for value in values.to_pylist()])
        return rows, _read(values.filter(pa.array(rows)))


def _is_moment(value: str | None) -> bool:
    try:
        return value is not None and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _read(values: pa.StringArray) -> Int64s:
    plain = pc.replace_substring_regex(values, r"\+00\z", "")
    moments: Int64s = pc.cast(plain, pa.timestamp("us")).view(pa.int64()).to_numpy()
    return moments


def dates(moments: Int64s) -> pa.StringArray:
    days = pa.array((moments // MICROSECONDS_PER_DAY).astype(np.int32))
    return pc.cast(days.view(pa.date32()), pa.string())


def timestamps(moments: Int64s, zone: str) -> pa.StringArray:
    written = pc.cast(pa.array(moments).view(pa.timestamp("us")), pa.string())
    short = pc.replace_substring_regex(written, r"\.?0*\z", "")  # there are always six digits after the point
    return pc.binary_join_element_wise(short, zone, "") if zone else short
