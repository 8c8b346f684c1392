"""Columns for these tests, and values written as Postgres writes them (one at a time: this is the slow, plain way)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
from hypothesis import settings

from penstock.changes.batch import Column
from penstock.pgoutput.types import Unrepresentable, typed

# The same examples in every run, and no deadline: how long one takes depends on what else the machine does.
steady = settings(derandomize=True, deadline=None)

POLICIES: tuple[Unrepresentable, ...] = ("error", "null", "text")


def numeric_modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def column(base: str, modifier: int = -1) -> Column:
    """A column of a type by its pg_catalog name, or of an array with ``[]`` after it."""
    if base.endswith("[]"):
        return Column("amount", 0, base, "array", modifier, base[:-2])
    return Column("amount", 0, base, base, modifier)


NUMERIC_10_2 = column("numeric", numeric_modifier(10, 2))


def cast(values: Sequence[str | None], of: Column, policy: Unrepresentable = "error") -> list[Any]:
    return list(typed(pa.array(values, pa.string()), of, policy, where="public.orders").to_pylist())


def _fraction(microseconds: int) -> str:
    return f".{microseconds:06}".rstrip("0") if microseconds else ""


def write_time(value: time | datetime) -> str:
    return f"{value:%H:%M:%S}{_fraction(value.microsecond)}"


def write_timestamp(value: datetime) -> str:
    return f"{date(value.year, value.month, value.day).isoformat()} {write_time(value)}"


def write_interval(months: int, days: int, microseconds: int) -> str:
    """As interval_out does with IntervalStyle postgres: a plus sign only after a minus."""
    years, rest = int(months / 12), months - int(months / 12) * 12
    parts: list[str] = []
    negative = False
    for number, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        if number:
            parts.append(f"{'+' if negative and number > 0 else ''}{number} {unit}{'' if number == 1 else 's'}")
            negative = number < 0
    if microseconds or not parts:
        seconds, fraction = divmod(abs(microseconds), 1_000_000)
        sign = "-" if microseconds < 0 else "+" if negative else ""
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(fraction)}")
    return " ".join(parts)


def write_array(elements: Sequence[str | None]) -> str:
    """As array_out does."""
    return "{" + ",".join("NULL" if element is None else _write_element(element) for element in elements) + "}"


def _write_element(element: str) -> str:
    plain = element and element.upper() != "NULL" and not set(element) & set('"\\{}, \t\n\r\v\f')
    if plain:
        return element
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
