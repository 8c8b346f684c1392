"""A table of a DuckDB file that holds the rows of a source table, and how it is made and altered to fit.

DuckDB's names do not tell capitals apart, Postgres's do: of ``Name`` beside ``name``, the second becomes ``name_2``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

import duckdb

from penstock.changes import Relation
from penstock.pgoutput.types import Unrepresentable
from penstock.sinks.duckdb_file import CATALOG, quoted
from penstock.sinks.duckdb_types import duckdb_type

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A target table. ``columns``: source name -> (target name, DuckDB type). ``oid``: None if older than that record."""

    schema: str
    table: str
    columns: dict[str, tuple[str, str]]
    oid: int | None

    @property
    def sql(self) -> str:
        return f"{CATALOG}.{quoted(self.schema)}.{quoted(self.table)}"


def target_schema(schema: str) -> str:
    """The source's, but for the one that DuckDB would take for ours."""
    return f"{schema}_2" if schema.lower() == "penstock" else schema


def target_types(relation: Relation, unrepresentable: Unrepresentable) -> dict[str, str]:
    """The DuckDB type of each column."""
    return {column.name: duckdb_type(column, unrepresentable) for column in relation.columns}


def fits(known: Target, wanted: dict[str, str]) -> bool:
    return {name: kind for name, (_, kind) in known.columns.items()} == wanted


def new_target(relation: Relation, table: str, wanted: dict[str, str]) -> Target:
    return Target(target_schema(relation.schema), table, _name_columns({}, wanted), relation.oid)


def create(connection: duckdb.DuckDBPyConnection, target: Target) -> None:
    definition = ", ".join(f"{quoted(name)} {kind}" for name, kind in target.columns.values())
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.{quoted(target.schema)}")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {target.sql} ({definition})")


def copy_rows(connection: duckdb.DuckDBPyConnection, former: Target, target: Target) -> None:
    """The columns that both have."""
    common = [column for column in former.columns if column in target.columns]
    into, of = (", ".join(quoted(table.columns[column][0]) for column in common) for table in (target, former))
    if common:
        connection.execute(f"INSERT INTO {target.sql} ({into}) SELECT {of} FROM {former.sql}")


def alter(connection: duckdb.DuckDBPyConnection, relation: Relation, known: Target, wanted: dict[str, str]) -> Target:
    """Columns that came, went, or changed their type. Without ids, a renamed column is one that went and one that came."""
    target = Target(known.schema, known.table, _name_columns(known.columns, wanted), relation.oid)
    leaving = _make_way(connection, known, target)
    for source, (name, kind) in target.columns.items():
        if source not in known.columns:
            connection.execute(f"ALTER TABLE {known.sql} ADD COLUMN {quoted(name)} {kind}")
        elif known.columns[source][1] != kind:
            connection.execute(f"ALTER TABLE {known.sql} ALTER COLUMN {quoted(name)} SET DATA TYPE {kind}")
    for name in leaving:
        connection.execute(f"ALTER TABLE {known.sql} DROP COLUMN {quoted(name)}")
    tell_of_other_columns(relation, known, target)
    return target


def _make_way(connection: duckdb.DuckDBPyConnection, known: Target, target: Target) -> list[str]:
    """The columns to drop, out of the way of new ones called like them: the last column of a table cannot go first."""
    wanted = {name.lower() for name, _ in target.columns.values()}
    taken = wanted | {name.lower() for name, _ in known.columns.values()}
    leaving = []
    for source, (name, _kind) in known.columns.items():
        if source in target.columns:
            continue
        if name.lower() in wanted:
            aside = free_name(name, taken)
            connection.execute(f"ALTER TABLE {known.sql} RENAME COLUMN {quoted(name)} TO {quoted(aside)}")
            taken.add(aside.lower())
            name = aside
        leaving.append(name)
    return leaving


def tell_of_other_columns(relation: Relation, known: Target | None, target: Target) -> None:
    for source, (name, _kind) in target.columns.items():
        if name != source and (known is None or source not in known.columns):
            logger.warning(
                "Column %s of %s is called %s in DuckDB, which does not tell capitals apart in names.",
                source, relation.qualified_name, name,
            )  # fmt: skip


def dump_columns(target: Target) -> str:
    return json.dumps(target.columns)


def load_columns(columns: str) -> dict[str, tuple[str, str]]:
    return {source: (name, kind) for source, (name, kind) in json.loads(columns).items()}


def _name_columns(known: dict[str, tuple[str, str]], wanted: dict[str, str]) -> dict[str, tuple[str, str]]:
    names = {source: name for source, (name, _) in known.items() if source in wanted}
    for source in wanted:
        if source not in names:
            names[source] = free_name(source, {name.lower() for name in names.values()})
    return {source: (names[source], kind) for source, kind in wanted.items()}


def free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate
