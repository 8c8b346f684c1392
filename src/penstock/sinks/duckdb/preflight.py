"""What ``check`` says of the source's columns: which may meet a value that a DuckDB file cannot hold, and what to set then."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.changes.batch import Column
from penstock.findings import Finding
from penstock.postgres.catalog import resolve_types
from penstock.postgres.connection import connect, translated_errors
from penstock.sinks.duckdb.types import duckdb_type
from penstock.sinks.settings import UnrepresentableSettings

_SHOWN = 5
_BEYOND = {
    "date": "infinity or a year BC in a date",
    "timestamp": "infinity or a year BC in a timestamp",
    "timestamptz": "infinity or a year BC in a timestamp",
    "numeric": "NaN or Infinity in a numeric(p,s)",
    "time": "24:00:00 in a time",
    "interval": "infinity in an interval",
    "json": "half a surrogate pair in a json",
}
_COLUMNS = """
select n.nspname::text, c.relname::text, a.attname::text, a.atttypid, a.atttypmod
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
join unnest(%s::text[], %s::text[]) as wanted (schema, name) on (wanted.schema, wanted.name) = (n.nspname, c.relname)
where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p') order by 1, 2, a.attnum
"""


def unrepresentable_findings(
    sink: str, policies: UnrepresentableSettings, source: str, tables: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """Raises SourceError if the source cannot be asked."""
    names = [f"{schema}.{table}" for schema, table in tables]
    columns = _columns(source, tables)
    yield from _unknown_names(sink, policies, names, columns)
    exposed = [(table, column) for table, column in columns if _may_stop(column, policies.of(table, column.name))]
    if not exposed:
        return
    reasons = ", ".join(dict.fromkeys(_BEYOND[column.base] for _, column in exposed))
    shown = ", ".join(f"{table}.{column.name}" for table, column in exposed[:_SHOWN])
    rest = f" and {len(exposed) - _SHOWN} more" if len(exposed) > _SHOWN else ""
    table, column = exposed[0]
    yield Finding(
        f"sink {sink}",
        True,
        f"A value that DuckDB cannot hold would stop it: {reasons}. Columns of such types: {shown}{rest}. For columns that "
        f"have such values: unrepresentable: {{tables: {{{table}: {{{column.name}: text}}}}}}, or null instead of text.",
    )


def _may_stop(column: Column, policy: str) -> bool:
    """Arrays do not: their column becomes text."""
    return policy == "error" and column.base in _BEYOND and duckdb_type(column, "error") != duckdb_type(column, "text")


def _columns(source: str, tables: Sequence[tuple[str, str]]) -> list[tuple[str, Column]]:
    schemas, names = [schema for schema, _ in tables], [table for _, table in tables]
    with connect(source) as connection:
        with translated_errors("Reading the columns of the source's tables"):
            rows: list[Any] = connection.execute(_COLUMNS, [schemas, names]).fetchall()
        types = resolve_types(connection, {row[3] for row in rows})
    found = []
    for schema, table, name, oid, modifier in rows:
        if (kind := types.get(oid)) is not None:
            limits = kind.modifier if kind.modifier != -1 else modifier
            found.append((f"{schema}.{table}", Column(name, oid, kind.name, kind.base, limits, kind.element)))
    return found


def _unknown_names(
    sink: str, policies: UnrepresentableSettings, tables: Sequence[str], columns: Sequence[tuple[str, Column]]
) -> Iterator[Finding]:
    """Rules may give a table or a column such a name, so this is a warning."""
    for table, words in policies.tables.items():
        if table not in tables:
            yield _unknown(sink, f"table {table}", table, tables)
        elif isinstance(words, dict):
            existing = [column.name for name, column in columns if name == table]
            for name in words:
                if name not in existing:
                    yield _unknown(sink, f"column {name} of {table}", name, existing)


def _unknown(sink: str, what: str, name: str, known: Sequence[str]) -> Finding:
    near = difflib.get_close_matches(name, known, n=1)
    remedy = (
        f"Did you mean {near[0]}?" if near else "Correct the name, or leave it if a rule gives something that name."
    )
    return Finding(f"sink {sink}", None, f"`unrepresentable` names {what}, which the source does not have.", remedy)
