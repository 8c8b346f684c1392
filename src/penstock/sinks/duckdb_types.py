"""The DuckDB type of a column: what ``INSERT … SELECT`` from its typed Arrow column fills without losing anything.

JSON and the storage of TIMESTAMPTZ are built into DuckDB's wheel; nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.changes import Column
from penstock.pgoutput.types import Unrepresentable
from penstock.pgoutput.types.arrays import element, is_list
from penstock.pgoutput.types.numerics import precision_and_scale
from penstock.pgoutput.types.registry import FAMILIES

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


def as_text(column: Column) -> Column:
    """The same column, whose values stay Postgres's text."""
    return replace(column, base="other", element=None)


def _has_values_that_duckdb_refuses(base: str) -> bool:
    """json is kept as typed, so it may hold half a surrogate pair (``"\\ud800"``), which DuckDB's JSON refuses."""
    return base == "json" or (base in FAMILIES and FAMILIES[base].partial)
