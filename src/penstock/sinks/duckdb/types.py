"""The DuckDB type of a column: what ``INSERT … SELECT`` from its typed Arrow column fills without losing anything.

JSON and the storage of TIMESTAMPTZ are built into DuckDB's wheel; nothing is downloaded.

What becomes of a column's values when it has another type in the source: what Postgres's own cast makes of them.

DuckDB writes some values in other words than Postgres: ``1.0``, ``[1, 2]``, ``2 months``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Column
from penstock.pgoutput.types import Unrepresentable, typed
from penstock.pgoutput.types.arrays import element, is_list
from penstock.pgoutput.types.casting import without
from penstock.pgoutput.types.numbers import precision_and_scale
from penstock.pgoutput.types.registry import FAMILIES
from penstock.sinks.mirror.schema_following import INTEGERS, TEXTS, leaves_values

_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
    "bytea": "BLOB",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL",
}

REFUSED_VALUES = {
    "date": "infinity or a year BC in a date",
    "timestamp": "infinity or a year BC in a timestamp",
    "timestamptz": "infinity or a year BC in a timestamp",
    "numeric": "NaN or Infinity in a numeric(p,s)",
    "time": "24:00:00 in a time",
    "interval": "infinity in an interval",
    "json": "half a surrogate pair in a json",
}


def duckdb_type(column: Column, unrepresentable: Unrepresentable) -> str:
    """Goes with ``arrow_type`` of the same column under the same policy."""
    as_text = unrepresentable == "text"
    if is_list(column):
        return "VARCHAR" if as_text else f"{duckdb_type(element(column), unrepresentable)}[]"
    if as_text and _has_values_that_duckdb_refuses(column.base):
        return "VARCHAR"
    if column.base == "numeric":
        limits = precision_and_scale(column.modifier)
        return "VARCHAR" if limits is None else f"DECIMAL({limits[0]},{limits[1]})"
    return _TYPES.get(column.base, "VARCHAR")


def duckdb_values(text: pa.Array, column: Column, unrepresentable: Unrepresentable, where: str) -> pa.Array:
    """The text of a column, cast for a DuckDB column of ``duckdb_type``. UnrepresentableValue under the policy ``error``."""
    kind = duckdb_type(column, unrepresentable)
    values = typed(text, column, unrepresentable, where=where, named=f"DuckDB's {kind}")
    if kind == "JSON[]" and column.element == "json":
        elements = _json(values.values, element(column), unrepresentable, where)
        return pa.ListArray.from_arrays(values.offsets, elements, mask=values.is_null())
    return _json(values, column, unrepresentable, where) if kind == "JSON" else values


_MAYBE_SURROGATE = r"\\u[dD][89a-fA-F]"
_ESCAPES_IN_PAIRS = (
    r"(?s)\A(?:[^\\]|\\[^u]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*\z"
)


def _json(text: pa.Array, column: Column, unrepresentable: Unrepresentable, where: str) -> pa.Array:
    """Postgres keeps json as it was written, half a surrogate pair (``"\\ud800"``) included, which DuckDB's JSON refuses."""
    if column.base != "json" or not pc.any(pc.match_substring_regex(text, _MAYBE_SURROGATE)).as_py():
        return text
    unfit = pc.invert(pc.match_substring_regex(text, _ESCAPES_IN_PAIRS))
    return without(text, unfit, column, unrepresentable, where, "DuckDB's JSON")


def _has_values_that_duckdb_refuses(base: str) -> bool:
    """json is kept as typed, so it may hold half a surrogate pair (``"\\ud800"``), which DuckDB's JSON refuses."""
    return base == "json" or (base in FAMILIES and FAMILIES[base].partial)


_WITHOUT_FUNCTIONS = {
    "BOOLEAN",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "UUID",
    "DATE",
    "TIME",
    "TIMESTAMP",
}
# Their text is the one that Postgres casts them to, whatever the session's settings.
_SAME_TEXT = frozenset({"numeric", "bool", "uuid", "enum", "jsonb", "bpchar"})
_SAME_VALUES = frozenset({("jsonb", "json"), ("float4", "float8")})
_LARGEST_PLAIN = {"FLOAT": 6, "DOUBLE": 15}  # digits before the point; Postgres writes more than that with an exponent


def cast(value: str, before: str, after: str) -> str:
    """SQL for a value of one DuckDB type as one of another; by way of text where DuckDB has no cast. NULL where there is none:
    an error would end the transaction."""
    if after == "VARCHAR":
        return text(value, before)
    return f"coalesce(TRY_CAST({value} AS {after}), TRY_CAST(CAST({value} AS VARCHAR) AS {after}))"


def can_be_altered(before: str, after: str) -> bool:
    """Whether ``ALTER TABLE`` may do it. DuckDB puts the expression into its log, and whoever opens the file next reads that
    before there are any functions or types but the plainest."""
    if after == "VARCHAR" and before in _LARGEST_PLAIN:
        return False
    return all(kind in _WITHOUT_FUNCTIONS or kind == "VARCHAR" or (kind.startswith("DECIMAL(") and not kind.endswith("]"))
               for kind in (before, after))  # fmt: skip


def text(value: str, kind: str) -> str:
    """SQL for a value as Postgres prints it."""
    if kind.endswith("[]"):
        element = _element(kind.removesuffix("[]"))
        elements = f"coalesce(array_to_string(list_transform({value}, lambda e: {element}), ','), '')"
        return f"CASE WHEN {value} IS NOT NULL THEN '{{' || {elements} || '}}' END"
    if kind in _LARGEST_PLAIN:
        return _number(f"CAST({value} AS VARCHAR)", _LARGEST_PLAIN[kind])
    if kind == "BLOB":
        return f"'\\x' || lower(hex({value}))"
    if kind == "INTERVAL":
        months = f"replace(CAST({value} AS VARCHAR), ' month', ' mon')"
        return f"regexp_replace({months}, '(-1 (year|mon|day))( |$)', '\\1s\\3', 'g')"
    if kind == "TIMESTAMPTZ":
        return f"CAST({value} AT TIME ZONE 'UTC' AS VARCHAR) || '+00'"
    return f"CAST({value} AS VARCHAR)"


def same_kind(value: str, before: Column, after: Column) -> str | None:
    """SQL for values that change though DuckDB has one type for both; None: they do not."""
    if before.base == after.base and before.modifier == after.modifier:
        return None
    if after.base == "bpchar":
        return f"rpad(rtrim({value}, ' '), {max(after.modifier - 4, 1)}, ' ')"
    return f"rtrim({value}, ' ')" if before.base == "bpchar" else None


def is_exact(before: Column, after: Column, kinds: tuple[str, str]) -> bool:
    """Whether what the file makes of every value is what Postgres does. ``kinds``: the DuckDB types before and after."""
    if leaves_values(before, after):
        return True
    if before.base in INTEGERS:
        return _integers_are_exact(after, kinds[1])
    if before.base == "array" and after.base == "array" and before.element in INTEGERS:
        return after.element in INTEGERS
    if before.base in TEXTS | {"bpchar"} and after.base == "bpchar":
        return True
    if before.base == "numeric" and kinds[1] != "VARCHAR":
        return _is_wider_decimal(before, after)
    if after.base in TEXTS and after.modifier == -1:
        return before.base in _SAME_TEXT
    return (before.base, kinds) == ("date", ("DATE", "TIMESTAMP")) or (before.base, after.base) in _SAME_VALUES


def _integers_are_exact(after: Column, kind: str) -> bool:
    if after.base == "numeric":
        return kind != "VARCHAR" or after.modifier == -1
    return after.base in INTEGERS or (after.base in TEXTS and after.modifier == -1)


def _is_wider_decimal(before: Column, after: Column) -> bool:
    old, new = precision_and_scale(before.modifier), precision_and_scale(after.modifier)
    return after.base == "numeric" and old is not None and new is not None and old[1] <= new[1]


def _element(kind: str) -> str:
    """In an array: quoted where it would not be read as it is."""
    written = "CASE WHEN e THEN 't' ELSE 'f' END" if kind == "BOOLEAN" else text("e", kind)
    plain = f"regexp_full_match({written}, '[^\\s{{}},\"\\\\]+') AND upper({written}) <> 'NULL'"
    quoted = f"""'"' || replace(replace({written}, '\\', '\\\\'), '"', '\\"') || '"'"""
    return f"CASE WHEN e IS NULL THEN 'NULL' WHEN {plain} THEN {written} ELSE {quoted} END"


def _number(written: str, largest_plain: int) -> str:
    """``written`` is DuckDB's: 1.0, 1e+20, nan, and many digits before the point."""
    plain = f"regexp_replace({written}, '\\.0$', '')"
    digits = f"ltrim({plain}, '-')"
    whole = f"split_part({digits}, '.', 1)"
    all_digits = f"rtrim(replace({digits}, '.', ''), '0')"
    fraction = f"CASE WHEN length({all_digits}) > 1 THEN '.' || substr({all_digits}, 2) ELSE '' END"
    sign = f"CASE WHEN starts_with({plain}, '-') THEN '-' ELSE '' END"
    exponent = f"'e+' || lpad(CAST(length({whole}) - 1 AS VARCHAR), 2, '0')"
    return (
        f"CASE {written} WHEN 'nan' THEN 'NaN' WHEN 'inf' THEN 'Infinity' WHEN '-inf' THEN '-Infinity' ELSE "
        f"CASE WHEN length({whole}) > {largest_plain} AND NOT contains({written}, 'e') "
        f"THEN {sign} || substr({digits}, 1, 1) || {fraction} || {exponent} ELSE {plain} END END"
    )
