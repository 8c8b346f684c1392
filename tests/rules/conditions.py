"""Conditions for tests, as the config file writes them, and what they mean row by row in plain Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter

from penstock.rules.where.conditions import All, AnyCondition, AnyOf, Comparison, Condition, Not

_ADAPTER: TypeAdapter[Condition] = TypeAdapter(AnyCondition)


def condition(data: Any) -> Condition:
    return _ADAPTER.validate_python(data)


def holds(where: Condition, row: Mapping[str, str | None], types: Mapping[str, str]) -> bool | None:
    """SQL's three-valued logic, one row at a time."""
    if isinstance(where, Not):
        inner = holds(where.part, row, types)
        return None if inner is None else not inner
    if isinstance(where, All):
        outcomes = [holds(part, row, types) for part in where.parts]
        return False if False in outcomes else None if None in outcomes else True
    if isinstance(where, AnyOf):
        outcomes = [holds(part, row, types) for part in where.parts]
        return True if True in outcomes else None if None in outcomes else False
    assert isinstance(where, Comparison)
    return _compared(where, row[where.column], types[where.column])


def _compared(where: Comparison, text: str | None, kind: str) -> bool | None:
    op, operand = where.op, where.operand
    if op == "is_null":
        return (text is None) is bool(operand)
    if text is None:
        return None
    if op in ("contains", "starts_with", "matches"):
        shown = text.rstrip(" ") if kind.startswith("bpchar") else text
        if op == "matches":
            return re.search(operand, shown) is not None
        return bool(operand in shown) if op == "contains" else bool(shown.startswith(operand))
    value = _value(text, kind)
    if op == "in":
        return any(value == _value(str(item), kind) for item in operand)
    other = _value(str(operand), kind)
    outcomes: dict[str, bool] = {
        "eq": value == other, "ne": value != other, "gt": value > other,
        "gte": value >= other, "lt": value < other, "lte": value <= other,
    }  # fmt: skip
    return outcomes[op]


def _value(text: str, kind: str) -> Any:
    """Something that compares as Postgres's values of this type do."""
    base = kind.split("(")[0]
    if base in ("int2", "int4", "int8"):
        return Decimal(text)
    if base in ("numeric", "float8"):
        number = Decimal(text)
        return (1, Decimal(0)) if number.is_nan() else (0, number)
    if base == "bool":
        return text.lower() in ("t", "true")
    if base == "date":
        return _moment(text, date.fromisoformat)
    if base in ("timestamp", "timestamptz"):
        return _moment(text.removesuffix("+00"), datetime.fromisoformat)
    if base == "bpchar":
        return text.rstrip(" ")
    return text.lower() if base == "uuid" else text


def _moment(text: str, parsed: Any) -> Any:
    if text.endswith("infinity"):
        return (-1,) if text.startswith("-") else (1,)
    return 0, parsed(text)
