"""The mirrored tables of a DuckDB file: made to fit the source's definition, and changed by SQL.

``penstock.tables`` remembers which source table is which target table and which column is which: DuckDB's names do not
tell capitals apart, Postgres's do, so ``Users`` beside ``users`` becomes ``Users_2``. It also remembers the source
table's oid, which tells a table from another one that has its name now.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import duckdb
import pyarrow as pa

from penstock.changes import Relation
from penstock.errors import SinkRefused
from penstock.pgoutput.types import Unrepresentable
from penstock.sinks.duckdb_staging import StagedChanges
from penstock.sinks.duckdb_types import duckdb_type

logger = logging.getLogger(__name__)

CATALOG = "penstock_target"

_COARSELY_EQUAL = {"FLOAT", "DOUBLE", "INTERVAL"}

_TABLES = f"""
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.tables
        (source_schema VARCHAR, source_table VARCHAR, target_table VARCHAR, columns VARCHAR);
    ALTER TABLE {CATALOG}.penstock.tables ADD COLUMN IF NOT EXISTS oid BIGINT;
"""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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


class Tables:
    """Looks up, creates and alters target tables, inside the caller's transaction."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, unrepresentable: Unrepresentable) -> None:
        self._connection = connection
        self._unrepresentable: Unrepresentable = unrepresentable
        connection.execute(_TABLES)
        rows = connection.execute(
            f"SELECT source_schema, source_table, target_table, columns, oid FROM {CATALOG}.penstock.tables"
        ).fetchall()
        self._known = {
            (schema, table): Target(_target_schema(schema), name, _load(columns), oid)
            for schema, table, name, columns, oid in rows
        }

    def target(self, relation: Relation) -> Target:
        """The table that fits this definition, with the rows that the source's table of this oid has brought so far."""
        known = self._known.get((relation.schema, relation.table))
        if known is not None and known.oid in (None, relation.oid):
            return self._fitted(relation, known)
        if known is not None:
            logger.warning(
                "%s is another table in the source than before: the rows of the former one leave the file.",
                relation.qualified_name,
            )
            self._drop((relation.schema, relation.table))
        formerly = [source for source, target in self._known.items() if target.oid == relation.oid]
        target = self._create(relation, self._wanted(relation))
        for source in formerly:
            self._move_rows(source, target)
        return target

    def has_passed_on(self, relations: Sequence[Relation]) -> bool:
        """Whether one of them has another's name now, or another name than before; among each other or since we knew."""
        names = {source: target.oid for source, target in self._known.items() if target.oid is not None}
        sources = {oid: source for source, oid in names.items()}
        for relation in relations:
            source = (relation.schema, relation.table)
            if names.setdefault(source, relation.oid) != relation.oid:
                return True
            if sources.setdefault(relation.oid, source) != source:
                return True
        return False

    def _wanted(self, relation: Relation) -> dict[str, str]:
        return {column.name: duckdb_type(column, self._unrepresentable) for column in relation.columns}

    def _fitted(self, relation: Relation, known: Target) -> Target:
        wanted = self._wanted(relation)
        if {name: kind for name, (_, kind) in known.columns.items()} != wanted:
            return self._alter(relation, known, wanted)
        if known.oid is None:
            return self._remember((relation.schema, relation.table), replace(known, oid=relation.oid))
        return known

    def _move_rows(self, source: tuple[str, str], target: Target) -> None:
        """A renamed table takes along what came under its former name."""
        former = self._known[source]
        common = [column for column in former.columns if column in target.columns]
        into, of = (", ".join(quoted(table.columns[column][0]) for column in common) for table in (target, former))
        if common:
            self._connection.execute(f"INSERT INTO {target.sql} ({into}) SELECT {of} FROM {former.sql}")
        self._drop(source)

    def _drop(self, source: tuple[str, str]) -> None:
        """Not emptied and altered: a new type would be tried on rows that are deleted in the same transaction."""
        self._connection.execute(f"DROP TABLE IF EXISTS {self._known.pop(source).sql}")
        self._forget(source)

    def _create(self, relation: Relation, wanted: dict[str, str]) -> Target:
        schema = _target_schema(relation.schema)
        taken = {target.table.lower() for target in self._known.values() if target.schema.lower() == schema.lower()}
        target = Target(schema, _free_name(relation.table, taken), _name_columns({}, wanted), relation.oid)
        definition = ", ".join(f"{quoted(name)} {kind}" for name, kind in target.columns.values())
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.{quoted(schema)}")
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {target.sql} ({definition})")
        _tell_of_other_names(relation, None, target)
        return self._remember((relation.schema, relation.table), target)

    def _alter(self, relation: Relation, known: Target, wanted: dict[str, str]) -> Target:
        """Columns that came, went, or changed their type. Without ids, a renamed column is one that went and one that came."""
        target = Target(known.schema, known.table, _name_columns(known.columns, wanted), relation.oid)
        leaving = self._make_way(known, target)
        for source, (name, kind) in target.columns.items():
            if source not in known.columns:
                self._connection.execute(f"ALTER TABLE {known.sql} ADD COLUMN {quoted(name)} {kind}")
            elif known.columns[source][1] != kind:
                self._connection.execute(f"ALTER TABLE {known.sql} ALTER COLUMN {quoted(name)} SET DATA TYPE {kind}")
        for name in leaving:
            self._connection.execute(f"ALTER TABLE {known.sql} DROP COLUMN {quoted(name)}")
        _tell_of_other_names(relation, known, target)
        return self._remember((relation.schema, relation.table), target)

    def _make_way(self, known: Target, target: Target) -> list[str]:
        """The columns to drop, out of the way of new ones called like them: the last column of a table cannot go first."""
        wanted = {name.lower() for name, _ in target.columns.values()}
        taken = wanted | {name.lower() for name, _ in known.columns.values()}
        leaving = []
        for source, (name, _kind) in known.columns.items():
            if source in target.columns:
                continue
            if name.lower() in wanted:
                aside = _free_name(name, taken)
                self._connection.execute(f"ALTER TABLE {known.sql} RENAME COLUMN {quoted(name)} TO {quoted(aside)}")
                taken.add(aside.lower())
                name = aside
            leaving.append(name)
        return leaving

    def _remember(self, source: tuple[str, str], target: Target) -> Target:
        self._forget(source)
        self._connection.execute(
            f"INSERT INTO {CATALOG}.penstock.tables VALUES (?, ?, ?, ?, ?)",
            [*source, target.table, json.dumps(target.columns), target.oid],
        )
        self._known[source] = target
        return target

    def _forget(self, source: tuple[str, str]) -> None:
        self._connection.execute(
            f"DELETE FROM {CATALOG}.penstock.tables WHERE source_schema = ? AND source_table = ?", source
        )


def _target_schema(schema: str) -> str:
    """The source's, but for the one that DuckDB would take for ours."""
    return f"{schema}_2" if schema.lower() == "penstock" else schema


def _tell_of_other_names(relation: Relation, known: Target | None, target: Target) -> None:
    if known is None and (target.schema, target.table) != (relation.schema, relation.table):
        logger.warning(
            "Table %s is called %s.%s in DuckDB, which does not tell capitals apart in names.",
            relation.qualified_name, target.schema, target.table,
        )  # fmt: skip
    for source, (name, _kind) in target.columns.items():
        if name != source and (known is None or source not in known.columns):
            logger.warning(
                "Column %s of %s is called %s in DuckDB, which does not tell capitals apart in names.",
                source, relation.qualified_name, name,
            )  # fmt: skip


def _load(columns: str) -> dict[str, tuple[str, str]]:
    return {source: (name, kind) for source, (name, kind) in json.loads(columns).items()}


def _name_columns(known: dict[str, tuple[str, str]], wanted: dict[str, str]) -> dict[str, tuple[str, str]]:
    names = {source: name for source, (name, _) in known.items() if source in wanted}
    for source in wanted:
        if source not in names:
            names[source] = _free_name(source, {name.lower() for name in names.values()})
    return {source: (names[source], kind) for source, kind in wanted.items()}


def _free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def apply(connection: duckdb.DuckDBPyConnection, tables: Tables, staged: Sequence[StagedChanges]) -> None:
    """All changes of a batch, table by table, each table's in order."""
    # DuckDB has no tables without columns, and their rows say nothing.
    with_columns = [changes for changes in staged if changes.relation.columns]
    for changes in _by_table(tables, with_columns):
        truncated_at = max((change.truncated_at for change in changes if change.truncated_at), default=None)
        if truncated_at is not None:
            # What lies wholly before the TRUNCATE is void; where it lies within, net() has left out what was before it.
            changes = [change for change in changes if change.last_at >= truncated_at]
            connection.execute(f"DELETE FROM {tables.target(changes[0].relation).sql}")
        for change in changes:
            _apply_one(connection, tables.target(change.relation), change)


def _by_table(tables: Tables, staged: Sequence[StagedChanges]) -> list[list[StagedChanges]]:
    """The changes of each table under each of its names. Where names have passed from one to another, in that order."""
    by_table = sorted(staged, key=_table_and_oid)  # stable: order within a table stays
    groups = [list(members) for _, members in groupby(by_table, key=_table_and_oid)]
    if tables.has_passed_on([group[0].relation for group in groups]):
        groups.sort(key=lambda group: max(change.last_at for change in group))
    return groups


def _table_and_oid(changes: StagedChanges) -> tuple[tuple[str, ...], int]:
    return _table_of(changes), changes.relation.oid


def _table_of(changes: StagedChanges) -> tuple[str, ...]:
    """Small letters first: of ``orders`` and ``Orders`` that come together, ``orders`` keeps its name."""
    schema, table = changes.relation.schema, changes.relation.table
    return schema.swapcase(), table.swapcase(), schema, table


def _apply_one(connection: duckdb.DuckDBPyConnection, target: Target, change: StagedChanges) -> None:
    names = [quoted(target.columns[column.name][0]) for column in change.relation.columns]
    everything, key = list(range(len(names))), change.relation.key_indexes
    filled = _fill_kept(connection, target, names, change) if change.partly_kept else None
    if change.deletes:
        same = " AND ".join(f"t.{names[index]} = s.c{index}" for index in key)
        _with_rows(connection, change.deletes.open(), f"DELETE FROM {target.sql} t USING staged s WHERE {same}")
    if change.removed:
        _remove_equal_rows(connection, target, names, change.removed.open())
    for rows in (change.inserts.open() if change.inserts else None, filled):
        if rows is not None:
            columns = ", ".join(f"c{index}" for index in everything)
            _with_rows(connection, rows, f"INSERT INTO {target.sql} ({', '.join(names)}) SELECT {columns} FROM staged")


def _with_rows(connection: duckdb.DuckDBPyConnection, rows: pa.Table, statement: str) -> None:
    connection.register("staged", rows)
    try:
        connection.execute(statement)
    finally:
        connection.unregister("staged")


def _fill_kept(
    connection: duckdb.DuckDBPyConnection, target: Target, names: Sequence[str], change: StagedChanges
) -> pa.Table:
    """The partly kept rows with the values that the target has, read before anything is deleted."""
    assert change.partly_kept is not None
    rows = change.partly_kept.open()
    marked = set(rows.column_names)
    values = ", ".join(
        f"CASE WHEN s.u{index} THEN t.{name} ELSE s.c{index} END AS c{index}"
        if f"u{index}" in marked
        else f"s.c{index}"
        for index, name in enumerate(names)
    )
    key = change.relation.key_indexes
    same = " AND ".join(f"t.{names[index]} = s.k{index}" for index in key)
    joined = f"FROM staged s LEFT JOIN {target.sql} t ON {same}"
    connection.register("staged", rows)
    try:
        looked_for = ", ".join(f"s.k{index}::VARCHAR" for index in key)
        missing = connection.execute(f"SELECT {looked_for} {joined} WHERE t.rowid IS NULL LIMIT 1").fetchall()
        if missing:
            raise _missing_row(
                change.relation, missing[0], [index for index in range(len(names)) if f"u{index}" in marked]
            )
        return connection.sql(f"SELECT {values} {joined}").to_arrow_table()
    finally:
        connection.unregister("staged")


def _missing_row(relation: Relation, key: Sequence[str], kept: Sequence[int]) -> SinkRefused:
    row = ", ".join(f"{name} = {value}" for name, value in zip(relation.key, key, strict=True))
    columns = ", ".join(relation.columns[index].name for index in kept)
    return SinkRefused(
        f"An update of {relation.qualified_name} where {row} keeps a value of {columns} that Postgres did not send again "
        "(unchanged TOAST), and the file has no such row to keep it from.",
        "The row is older than the subscription, or was removed from the file. Write the column anew in the source "
        "(for text: set it to itself || '') and start again, or load the row into the file.",
    )


def _remove_equal_rows(
    connection: duckdb.DuckDBPyConnection, target: Target, names: Sequence[str], rows: pa.Table
) -> None:
    """Of n equal rows to remove, n equal rows of the target go, no matter which.

    DuckDB calls one month equal to 30 days, and 0 to -0; as text they are as different as in Postgres.
    """
    kinds = {quoted(name): kind for name, kind in target.columns.values()}
    compared = ["::VARCHAR" if kinds[name].rstrip("[]") in _COARSELY_EQUAL else "" for name in names]
    columns = ", ".join(f"c{index}" for index in range(len(names)))
    values = ", ".join(f"c{index}{cast} AS c{index}" for index, cast in enumerate(compared))
    same = " AND ".join(
        f"t.{name}{cast} IS NOT DISTINCT FROM s.c{index}"
        for index, (name, cast) in enumerate(zip(names, compared, strict=True))
    )
    _with_rows(
        connection, rows,
        f"""
        DELETE FROM {target.sql} WHERE rowid IN (
            SELECT row FROM (
                SELECT t.rowid AS row, s.copies, row_number() OVER (PARTITION BY {columns} ORDER BY t.rowid) AS copy
                FROM (SELECT {columns}, count(*) AS copies FROM (SELECT {values} FROM staged) GROUP BY ALL) s
                JOIN {target.sql} t ON {same}
            ) WHERE copy <= copies
        )
        """,
    )  # fmt: skip
