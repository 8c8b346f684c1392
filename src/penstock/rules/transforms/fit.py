"""Which columns a transform's results can be put into."""

from __future__ import annotations

from collections.abc import Container

from penstock.changes import Column
from penstock.pgoutput.types.numerics import precision_and_scale

_HEADER = 4  # what Postgres adds to a length in a type modifier (VARHDRSZ)

TEXT = frozenset({"text", "varchar", "bpchar", "name"})
INTEGERS = frozenset({"int2", "int4", "int8", "oid"})
NUMBERS = INTEGERS | {"numeric", "float4", "float8"}
DATES = frozenset({"date"})
TIMESTAMPS = frozenset({"timestamp", "timestamptz"})
JSON = frozenset({"json", "jsonb"})

# The names that extensions give to types that are text, or like it; Postgres qualifies them unless public is searched.
_EXTENSION_TYPES = {"citext": "text", "hstore": "hstore"}
_NAME_LENGTH = 63
_WHOLE_RANGES = {
    "int2": (-(1 << 15), (1 << 15) - 1),
    "int4": (-(1 << 31), (1 << 31) - 1),
    "int8": (-(1 << 63), (1 << 63) - 1),
    "oid": (0, (1 << 32) - 1),
}


def base_of(column: Column) -> str:
    """The column's base type, with citext as text and hstore under its own name."""
    if column.base != "other":
        return column.base
    return _EXTENSION_TYPES.get(column.type_name.rpartition(".")[2].strip('"'), "other")


def length_limit(column: Column) -> int | None:
    """How many characters the column holds; None: as many as one likes."""
    base = base_of(column)
    if base == "name":
        return _NAME_LENGTH
    return column.modifier - _HEADER if base in ("varchar", "bpchar") and column.modifier > _HEADER else None


def not_of(column: Column, bases: Container[str], what: str) -> str | None:
    """The sentence for a column whose type is none of these."""
    return None if base_of(column) in bases else f"it needs {what}, and the column is {column.type_name}"


def not_text(column: Column, longest: int | None = None, remedy: str = "") -> str | None:
    """The sentence for a column that is not text, or too short for results of that many characters."""
    wrong = not_of(column, TEXT, "a text column")
    limit = length_limit(column)
    if wrong is None and longest is not None and limit is not None and longest > limit:
        hint = f"; {remedy}" if remedy else ""
        return f"its results have up to {longest} characters, and {column.type_name} holds {limit}{hint}"
    return wrong


def too_many_digits(column: Column, largest: int, after: int) -> str | None:
    """The sentence for a numeric(p,s) that does not hold that number, or not that many digits after the point."""
    limits = precision_and_scale(column.modifier) if base_of(column) == "numeric" else None
    if limits is None or (largest < 10 ** (limits[0] - limits[1]) and after <= limits[1]):
        return None
    return f"its results have more digits than {column.type_name} holds"


def whole_range(column: Column) -> tuple[int, int] | None:
    """The smallest and the largest integer of the column's type, if it is a type of integers."""
    return _WHOLE_RANGES.get(base_of(column))
