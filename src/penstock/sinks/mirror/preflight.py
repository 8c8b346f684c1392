"""What ``check`` reports about the source's columns: which may hold a value that the target cannot, and what to set then."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.changes.batch import Column
from penstock.findings import Finding
from penstock.pgoutput.types import Unrepresentable
from penstock.postgres.catalog import resolve_types
from penstock.postgres.connection import connect, translated_errors
from penstock.sinks.settings import UnrepresentableSettings

_SHOWN = 5
_COLUMNS = """
select n.nspname::text, c.relname::text, a.attname::text, a.atttypid, a.atttypmod
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
join unnest(%s::text[], %s::text[]) as selected (schema, name) on (selected.schema, selected.name) = (n.nspname, c.relname)
where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p') order by 1, 2, a.attnum
"""


@dataclass(frozen=True)
class TargetTypes:
    """``type_of``: the target's type of a column under a policy.

    ``refused_values``: in words, which values the target's type cannot hold, by the base type of the column.
    """

    target: str
    type_of: Callable[[Column, Unrepresentable], str]
    refused_values: Mapping[str, str]

    def may_stop(self, column: Column, policy: Unrepresentable) -> bool:
        """Whether a value of this column may stop the sink. Arrays do not: their column becomes text."""
        is_refused = policy == "error" and column.base in self.refused_values
        return is_refused and self.type_of(column, "error") != self.type_of(column, "text")


def unrepresentable_findings(
    sink: str, types: TargetTypes, policies: UnrepresentableSettings, source: str, tables: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """Raises SourceError if the source does not answer."""
    names = [f"{schema}.{table}" for schema, table in tables]
    columns = _columns(source, tables)
    yield from _unknown_names(sink, policies, names, columns)
    exposed = [(table, column) for table, column in columns if types.may_stop(column, policies.of(table, column.name))]
    if not exposed:
        return
    reasons = ", ".join(dict.fromkeys(types.refused_values[column.base] for _, column in exposed))
    shown = ", ".join(f"{table}.{column.name}" for table, column in exposed[:_SHOWN])
    rest = f" and {len(exposed) - _SHOWN} more" if len(exposed) > _SHOWN else ""
    table, column = exposed[0]
    yield Finding(
        f"sink {sink}",
        True,
        f"A value that {types.target} cannot hold would stop it: {reasons}. Columns of such types: {shown}{rest}. For columns "
        f"that have such values: unrepresentable: {{tables: {{{table}: {{{column.name}: text}}}}}}, or null instead of text.",
    )


def _columns(source: str, tables: Sequence[tuple[str, str]]) -> list[tuple[str, Column]]:
    schemas, names = [schema for schema, _ in tables], [table for _, table in tables]
    with connect(source) as connection:
        with translated_errors("Reading the columns of the source's tables"):
            rows: list[Any] = connection.execute(_COLUMNS, [schemas, names]).fetchall()
        types = resolve_types(connection, {row[3] for row in rows})
    columns = []
    for schema, table, name, oid, modifier in rows:
        if (kind := types.get(oid)) is not None:
            limits = kind.modifier if kind.modifier != -1 else modifier
            columns.append((f"{schema}.{table}", Column(name, oid, kind.name, kind.base, limits, kind.element)))
    return columns


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


def _unknown(sink: str, what: str, name: str, names: Sequence[str]) -> Finding:
    near = difflib.get_close_matches(name, names, n=1)
    remedy = (
        f"Did you mean {near[0]}?" if near else "Correct the name, or leave it if a rule gives something that name."
    )
    return Finding(f"sink {sink}", None, f"`unrepresentable` names {what}, which the source does not have.", remedy)
