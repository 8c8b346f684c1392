"""Which new types of a column leave the values of rows as they are, or change them by a cast that is the same everywhere.

Only what is listed here counts as exact. Whatever else a sink holds is imported again after ``ALTER COLUMN … TYPE``.
"""

from __future__ import annotations

from penstock.changes import Column
from penstock.pgoutput.types.arrays import element
from penstock.pgoutput.types.numerics import precision_and_scale

INTEGERS = frozenset({"int2", "int4", "int8"})
TEXTS = frozenset({"text", "varchar"})
_WITH_LENGTH = frozenset({"varchar", "varbit"})
_WITH_PRECISION = frozenset({"time", "timetz", "timestamp", "timestamptz"})
_NUMBERS = INTEGERS | {"numeric", "float4", "float8"}
_CHARACTERS = TEXTS | {"bpchar", "name"}
# By what they come from: casts that neither the session's settings nor the server's version have a part in. Not among them:
# all between timestamps with and without time zone (TimeZone), and texts of dates, intervals, bytea and floats (their styles).
_IMMUTABLE: dict[str, frozenset[str]] = {
    **dict.fromkeys(INTEGERS, _NUMBERS | _CHARACTERS),
    "numeric": _NUMBERS | _CHARACTERS,
    "float4": _NUMBERS,
    "float8": _NUMBERS,
    **dict.fromkeys(_CHARACTERS, _CHARACTERS),
    "bool": _CHARACTERS | {"int4"},
    "uuid": _CHARACTERS,
    "enum": _CHARACTERS,
    "json": _CHARACTERS | {"jsonb"},
    "jsonb": _CHARACTERS | {"json"},
    "date": frozenset({"timestamp"}),
    "timestamp": frozenset({"date", "time"}),
    "bit": frozenset({"varbit"}),
    "varbit": frozenset({"bit"}),
    "inet": frozenset({"cidr"}),
    "cidr": frozenset({"inet"}),
}


def leaves_values(before: Column, after: Column) -> bool:
    """Whether every value keeps its text: the type is the same, and its modifier as wide as before or wider."""
    if before.base == "array" and after.base == "array":
        return leaves_values(element(before), element(after))
    if before.base in TEXTS and after.base in TEXTS:
        return _fits_length(before, after)
    if before.base != after.base or (before.base in ("other", "enum") and before.type_oid != after.type_oid):
        return False
    if before.modifier == after.modifier:
        return True
    if after.base == "bpchar":
        return False  # padded
    if after.modifier == -1:
        return True
    if after.base in _WITH_LENGTH or after.base in _WITH_PRECISION:
        return _fits_length(before, after)
    return after.base == "numeric" and _has_its_scale(before, after)


def is_same_cast(before: Column, after: Column) -> bool:
    """Whether Postgres makes the same of every value wherever it casts it: in the source and in a target."""
    if leaves_values(before, after):
        return True
    if before.base == "array" and after.base == "array":
        return is_same_cast(element(before), element(after))
    if before.base == after.base:
        return before.base not in ("other", "array", "enum")
    return after.base in _IMMUTABLE.get(before.base, ())


def _fits_length(before: Column, after: Column) -> bool:
    """A shorter one cuts blanks off, or rounds."""
    return after.modifier == -1 or (before.modifier != -1 and after.modifier >= before.modifier)


def _has_its_scale(before: Column, after: Column) -> bool:
    old, new = precision_and_scale(before.modifier), precision_and_scale(after.modifier)
    return old is not None and new is not None and old[1] == new[1] and old[0] <= new[0]
