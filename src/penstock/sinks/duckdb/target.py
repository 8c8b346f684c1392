"""A table of a DuckDB file that holds the rows of a source table, and how it is made and altered to fit.

DuckDB's names do not tell capitals apart, Postgres's do: of ``Name`` beside ``name``, the second becomes ``name_2``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import duckdb

from penstock.changes.batch import Column, Relation
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.duckdb.file import CATALOG, quoted
from penstock.sinks.duckdb.types import can_be_altered, cast, duckdb_type
from penstock.sinks.settings import UnrepresentableSettings

logger = logging.getLogger(__name__)

NO_COLUMNS = "penstock_no_columns"


@dataclass(frozen=True)
class Target:
    """A target table. ``columns``: source name -> (target name, DuckDB type). ``oid``: None if older than that record.

    ``kept``: names, in the target, of columns that the source has no more. ``enums``: source name -> oid of the enum type.
    """

    schema: str
    table: str
    columns: dict[str, tuple[str, str]]
    oid: int | None
    kept: tuple[str, ...] = ()
    enums: dict[str, int] = field(default_factory=dict)
    shared: bool = False  # has rows of somebody else's: ``existing_rows: keep``

    @property
    def sql(self) -> str:
        return f"{CATALOG}.{quoted(self.schema)}.{quoted(self.table)}"


def target_schema(schema: str) -> str:
    """The source's, but for the one that DuckDB would take for ours."""
    return f"{schema}_2" if schema.lower() == "penstock" else schema


def target_types(relation: Relation, policies: UnrepresentableSettings, known: Target | None = None) -> dict[str, str]:
    """The DuckDB type of each column. An array column that is text in the known target has met arrays that are no lists, and
    stays text."""
    kinds = {}
    for column in relation.columns:
        kind = duckdb_type(column, policies.of(relation.qualified_name, column.name))
        stays_text = known is not None and is_list(column) and known.columns.get(column.name, ("", ""))[1] == "VARCHAR"
        kinds[column.name] = "VARCHAR" if stays_text else kind
    return kinds


def enums_of(columns: Sequence[Column]) -> dict[str, int]:
    return {column.name: column.type_oid for column in columns if column.base == "enum"}


def fits(known: Target, types: dict[str, str]) -> bool:
    return {name: kind for name, (_, kind) in known.columns.items()} == types


def new_target(relation: Relation, table: str, types: dict[str, str]) -> Target:
    """A table without columns, which DuckDB has not, gets one that is none of the source's, until one comes."""
    columns, kept = _name_columns(types), () if types else (NO_COLUMNS,)
    schema = target_schema(relation.schema)
    return Target(schema, table, columns, relation.oid, kept, enums_of(relation.columns))


def create(connection: duckdb.DuckDBPyConnection, target: Target) -> None:
    columns = list(target.columns.values()) or [(NO_COLUMNS, "BOOLEAN")]
    definition = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.{quoted(target.schema)}")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {target.sql} ({definition})")


def move(connection: duckdb.DuckDBPyConnection, former: Target, target: Target) -> None:
    """To another name, or another schema, which DuckDB has no command for."""
    if target.schema == former.schema:
        connection.execute(f"ALTER TABLE {former.sql} RENAME TO {quoted(target.table)}")
        return
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.{quoted(target.schema)}")
    connection.execute(f"CREATE TABLE {target.sql} AS FROM {former.sql}")
    connection.execute(f"DROP TABLE {former.sql}")


def alter(
    connection: duckdb.DuckDBPyConnection, relation: Relation, known: Target, types: dict[str, str], keep: bool
) -> Target:
    """Columns that came, went, or changed their type. Without ids, a renamed column is one that went and one that came.

    Those that went go last: a table cannot be without columns.
    """
    target = replace(known, oid=relation.oid, enums=enums_of(relation.columns))
    for source in known.columns:
        if source not in types:
            target = keep_column(target, source)
    for source, kind in types.items():
        if source not in target.columns:
            target = add_column(connection, target, source, kind)
        else:
            if target.columns[source][1].endswith("[]") and kind == "VARCHAR":
                _tell_of_text(target, source)
            target = retype_column(connection, target, source, kind)
    gone = [name for name in target.kept if name not in known.kept]
    if not types and not keep and NO_COLUMNS not in target.kept:
        connection.execute(f"ALTER TABLE {target.sql} ADD COLUMN {quoted(NO_COLUMNS)} BOOLEAN")
        target = replace(target, kept=(*target.kept, NO_COLUMNS))
    for name in gone:
        if keep:
            _tell_of_kept(target, name)
        else:
            target = drop_kept(connection, target, name)
    tell_of_other_columns(relation, known, target)
    return replace(target, columns={source: target.columns[source] for source in types})


def add_column(connection: duckdb.DuckDBPyConnection, target: Target, source: str, kind: str) -> Target:
    target = make_room(connection, target, source)
    name = free_name(source, {name.lower() for name, _ in target.columns.values()})
    connection.execute(f"ALTER TABLE {target.sql} ADD COLUMN {quoted(name)} {kind}")
    target = replace(target, columns={**target.columns, source: (name, kind)})
    return drop_kept(connection, target, NO_COLUMNS) if NO_COLUMNS in target.kept else target


def make_room(connection: duckdb.DuckDBPyConnection, target: Target, name: str) -> Target:
    """A column that the source has no more has the name: its values are none of the one that is to have it."""
    for former in target.kept:
        if former.lower() == name.lower():
            taken = {column.lower() for column in (*target.kept, *(known for known, _ in target.columns.values()))}
            aside = next(free for n in count(1) if (free := f"{name}__before_{n}").lower() not in taken)
            connection.execute(f"ALTER TABLE {target.sql} RENAME COLUMN {quoted(former)} TO {quoted(aside)}")
            return replace(target, kept=tuple(aside if kept == former else kept for kept in target.kept))
    return target


def keep_column(target: Target, source: str) -> Target:
    """It stays as it is, and is no column of the source's any more."""
    left = {name: column for name, column in target.columns.items() if name != source}
    return replace(target, columns=left, kept=(*target.kept, target.columns[source][0]))


def drop_column(connection: duckdb.DuckDBPyConnection, target: Target, source: str, keep: bool) -> Target:
    """The last column of a table cannot go."""
    name, left = target.columns[source][0], keep_column(target, source)
    if keep or len(target.columns) + len(target.kept) == 1:
        _tell_of_kept(target, name)
        return left
    return drop_kept(connection, left, name)


def drop_kept(connection: duckdb.DuckDBPyConnection, target: Target, name: str) -> Target:
    connection.execute(f"ALTER TABLE {target.sql} DROP COLUMN {quoted(name)}")
    return replace(target, kept=tuple(kept for kept in target.kept if kept != name))


def _tell_of_kept(target: Target, name: str) -> None:
    logger.info(
        "Column %s of %s.%s was dropped in the source. It stays in the file.", name, target.schema, target.table
    )


def _tell_of_text(target: Target, source: str) -> None:
    logger.warning(
        "Column %s of %s.%s holds arrays that are no list in DuckDB (several dimensions, another lower bound than 1, or "
        "values that DuckDB does not have). The whole column is text from now on, as Postgres writes it.",
        target.columns[source][0], target.schema, target.table,
    )  # fmt: skip


def retype_column(connection: duckdb.DuckDBPyConnection, target: Target, source: str, kind: str) -> Target:
    """What has no cast was computed in the source by other means (``USING``), and is NULL until the table is copied again."""
    name, before = target.columns[source]
    if before == kind:
        return target
    column = quoted(name)
    value = cast(column, before, kind)
    query = f"SELECT count(*) FROM {target.sql} WHERE {column} IS NOT NULL AND {value} IS NULL"
    if lost := connection.execute(query).fetchall()[0][0]:
        logger.warning(
            "Column %s of %s.%s has another type in the source, %s here, which %d values of it do not have. They are NULL "
            "until the table is copied again: penstock tables FILE resync %s.%s.",
            name, target.schema, target.table, kind, lost, target.schema, target.table,
        )  # fmt: skip
    if can_be_altered(before, kind):
        connection.execute(f"ALTER TABLE {target.sql} ALTER COLUMN {column} SET DATA TYPE {kind} USING {value}")
    else:
        rebuilt = replace(target, table=f"{target.table}__rebuilt")
        connection.execute(
            f"CREATE TABLE {rebuilt.sql} AS SELECT * REPLACE (CAST({value} AS {kind}) AS {column}) FROM {target.sql}"
        )
        connection.execute(f"DROP TABLE {target.sql}")
        move(connection, rebuilt, target)
    return replace(target, columns={**target.columns, source: (name, kind)})


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


def _name_columns(types: dict[str, str]) -> dict[str, tuple[str, str]]:
    named: dict[str, tuple[str, str]] = {}
    for source, kind in types.items():
        named[source] = free_name(source, {name.lower() for name, _ in named.values()}), kind
    return named


def free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate
