"""A DuckDB file as the target: the source's rows are cast as the sink casts them, and DuckDB hashes both sides alike.

The file is open for a moment at a time, so that the sink, which needs it for itself while it commits, waits for little: a
table is read in parts that take a fraction of a second each, and the file has a rest in between (``file.Rests``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import duckdb
import pyarrow as pa

from penstock.changes.batch import Column, Relation
from penstock.errors import SinkRefused, SinkUnavailable, UnrepresentableValue
from penstock.lsn import LSN
from penstock.pgoutput.types import Unrepresentable
from penstock.pgoutput.types.arrays import is_list
from penstock.postgres.reading.layout import TableLayout
from penstock.sinks.duckdb.file import CATALOG, DuckDBFile, quoted
from penstock.sinks.duckdb.records import records_of
from penstock.sinks.duckdb.sink import DuckDBSettings
from penstock.sinks.duckdb.target import Target, load_columns, target_schema
from penstock.sinks.duckdb.types import duckdb_type, duckdb_values
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.mirror.typed_staging import with_setting
from penstock.sinks.row_hashes import HashedPair, HashedRows, HashedSource, arrow, key_table
from penstock.sinks.verifying import Columns, Expected, Key, PlainRows, Row, keyed


def column_policy(column: Column, mirrored: tuple[str, str] | None, policy: Unrepresentable) -> Unrepresentable:
    """An array column that is text in the file has met arrays that are no lists: all its values are text there."""
    return "text" if mirrored is not None and mirrored[1] == "VARCHAR" and is_list(column) else policy


def compared_type(column: Column, mirrored: tuple[str, str] | None, unrepresentable: Unrepresentable) -> str:
    """The type that both sides are cast to: the file's, or text if its column was made under another policy or type."""
    sink_type = duckdb_type(column, unrepresentable)
    return sink_type if mirrored is None or mirrored[1] == sink_type else "VARCHAR"


_PATIENCE = 60.0  # for a file that somebody has open
_PAUSE = 0.05
_SESSION_SECONDS = 0.2  # between opening the file and closing it
_FEWEST_ROWS, _FIRST_ROWS, _MOST_ROWS = 20_000, 200_000, 5_000_000  # read in that time

T = TypeVar("T")
Engine = duckdb.DuckDBPyConnection


class DuckDBTarget:
    def __init__(
        self, settings: DuckDBSettings, source_url: str, publications: Sequence[str], pipeline: str = ""
    ) -> None:
        self._owner = Owner(pipeline, settings.name)
        self.settings, self.source_url, self.publications = settings, source_url, publications
        self._file = DuckDBFile(settings.path, settings.name, settings.memory)
        self._lock = threading.Lock()  # two readers in turns would keep the file open for ever
        self.rows_at_once = _FIRST_ROWS

    def close(self) -> None:
        self._file.close()

    def read(self, look: Callable[[Engine], T]) -> T:
        """What ``look`` finds in the file. Tried again while the sink, or somebody else, has it for themselves."""
        if not self.settings.path.exists():
            raise SinkRefused(
                f"Sink {self.settings.name}: there is no file {self.settings.path} yet.",
                "Start the pipeline, or correct `path`.",
            )
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._lock, self._file.opened(read_only=True) as engine:
                    engine.execute("SET TimeZone = 'UTC'")
                    return look(engine)
            except SinkUnavailable:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def read_rows(self, query: str, rows: int) -> pa.Table:
        """What a query over so many rows gives. How many to read next time follows from how long it took."""

        def look(engine: Engine) -> pa.Table:
            began = time.monotonic()
            result = arrow(engine, query)
            fitting = int(rows * _SESSION_SECONDS / max(time.monotonic() - began, 1e-3))
            self.rows_at_once = max(_FEWEST_ROWS, min(fitting, 2 * rows, _MOST_ROWS))
            return result

        return self.read(look)

    def position(self) -> LSN | None:
        def look(engine: Engine) -> LSN | None:
            if not _has(engine, "progress"):
                return None
            return records_of(engine, self._owner).position()

        return self.read(look)

    def has_rows_of_others(self, relation: Relation) -> bool:
        if self.settings.existing_rows != "keep":
            return False
        query = (
            f"SELECT shared FROM {CATALOG}.penstock.tables "
            "WHERE pipeline = ? AND sink = ? AND source_schema = ? AND source_table = ?"
        )
        found = self.read(
            lambda engine: engine.execute(query, [*self._owner, relation.schema, relation.table]).fetchall()
        )
        return bool(found and found[0][0])

    def pair(self, layout: TableLayout) -> DuckDBPair | None:
        return self.ruled_pair(Expected(PlainRows(self.source_url, layout, self.publications)))

    def ruled_pair(self, expected: Expected) -> DuckDBPair | None:
        relation = expected.rows.relation
        source = relation.schema, relation.table

        def look(engine: Engine) -> Target | None:
            if not _has(engine, "tables"):
                return None
            found = engine.execute(
                f"SELECT target_table, columns FROM {CATALOG}.penstock.tables "
                "WHERE pipeline = ? AND sink = ? AND source_schema = ? AND source_table = ?",
                [*self._owner, *source],
            ).fetchall()
            if not found or not _has(engine, found[0][0], target_schema(source[0])):  # or somebody dropped it
                return None
            return Target(target_schema(source[0]), found[0][0], load_columns(found[0][1]), None)

        target = self.read(look)
        return None if target is None or not relation.columns else DuckDBPair(self, expected, target)


class DuckDBPair(HashedPair):
    """A column that the file does not have yet counts as NULL there."""

    def __init__(self, target: DuckDBTarget, expected: Expected, mirrored: Target) -> None:
        super().__init__(expected)
        self._target, self._mirrored = target, mirrored
        policies, table = target.settings.unrepresentable, self._relation.qualified_name
        columns = [(column, mirrored.columns.get(column.name)) for column in self._relation.columns]
        self._policies = [
            column_policy(column, file_column, policies.of(table, column.name)) for column, file_column in columns
        ]
        types = [
            compared_type(column, file_column, policy)
            for (column, file_column), policy in zip(columns, self._policies, strict=True)
        ]
        names = [f"c{index}" for index in range(len(types))]
        self._source = HashedSource(expected.rows, HashedRows(names, types, self._key_indexes), self._typed)
        self._target_hashes = HashedRows([self._sql(name) for name in self.columns], types, self._key_indexes)
        self._conditions = [f"{self._sql(name)} = {_literal(value)}" for name, value in expected.origins.items()]

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        has_nulls = any(None in key for key in keys)

        def look(engine: Engine) -> list[Row]:
            engine.register("keys", key_table(keys))
            rows = self._part() if has_nulls else self._target_hashes.narrowed(self._part(), among="keys")
            texts: list[Row] = engine.execute(self._target_hashes.texts(rows, among="keys")).fetchall()
            engine.unregister("keys")
            return texts

        return keyed(self._relation, self._target.read(look))

    def _sql(self, name: str) -> str:
        """A column of the file's table, by its name in the source."""
        return quoted(self._mirrored.columns[name][0]) if name in self._mirrored.columns else "NULL"

    def _target_results(self, query: Callable[[str], str]) -> Iterator[pa.Table]:
        """What a query gives over each part of the target's table, by row number. Numbers that move meanwhile make suspects,
        which are looked at again."""
        if any(name.lower() == "rowid" for name, _ in self._mirrored.columns.values()):  # that is what it means there
            yield self._target.read(lambda engine: arrow(engine, query(self._part())))
            return
        highest = f"SELECT coalesce(max(rowid), -1) FROM {self._mirrored.sql}"
        last = int(self._target.read(lambda engine: engine.execute(highest).fetchall())[0][0])
        first = 0
        while first <= last:
            rows = self._target.rows_at_once
            end = [f"rowid < {first + rows}"] if first + rows <= last else []
            yield self._target.read_rows(query(self._part(f"rowid >= {first}", *end)), rows)
            first += rows

    def _part(self, *conditions: str) -> str:
        """Of the target's rows that are this table's."""
        every = [*conditions, *self._conditions]
        return f"(SELECT * FROM {self._mirrored.sql} WHERE {' AND '.join(every)})" if every else self._mirrored.sql

    def _typed(self, texts: Columns) -> list[pa.Array]:
        columns = zip(texts, self._relation.columns, self._policies, strict=True)
        return [self._values(text, column, policy) for text, column, policy in columns]

    def _values(self, text: pa.Array, column: Column, policy: Unrepresentable) -> pa.Array:
        try:
            return duckdb_values(text, column, policy, self._relation.qualified_name)
        except UnrepresentableValue as error:
            raise with_setting(error, self._relation, column, policy) from error


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _has(engine: Engine, table: str, schema: str = "penstock") -> bool:
    found = engine.execute(
        "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND lower(schema_name) = lower(?) AND table_name = ?",
        [CATALOG, schema, table],
    ).fetchall()
    return bool(found)
