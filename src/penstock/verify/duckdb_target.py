"""A DuckDB file as the target: the source's rows are cast as the sink casts them, and DuckDB hashes both sides alike.

The file is open for a moment at a time, so that the sink, which needs it for itself while it commits, waits for little.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

import duckdb
import pyarrow as pa

from penstock.errors import SinkRefused, SinkUnavailable
from penstock.imports.layout import TableLayout
from penstock.imports.plan import Chunk
from penstock.imports.read_chunk import ChunkReader
from penstock.lsn import LSN, ZERO
from penstock.pgoutput.types import typed
from penstock.postgres.connection import connect, translated_errors
from penstock.sinks.duckdb import DuckDBSettings
from penstock.sinks.duckdb_file import CATALOG, DuckDBFile, quoted
from penstock.sinks.duckdb_target import Target, load_columns, target_schema
from penstock.verify.duckdb_values import HashedRows, compared_type
from penstock.verify.keyed_rows import SETTINGS, VERSION, copied, source_rows_query, text_columns
from penstock.verify.target import Figures, Key, Row, figures_of, no_figures

_PATIENCE = 60.0  # for a file that somebody has open
_PAUSE = 0.05
_ROWS_AT_ONCE = 2_000_000  # of the target, between opening the file and closing it

T = TypeVar("T")
Engine = duckdb.DuckDBPyConnection


class DuckDBTarget:
    def __init__(self, settings: DuckDBSettings, source_url: str, publications: Sequence[str]) -> None:
        self.settings, self.source_url, self.publications = settings, source_url, publications
        self._file = DuckDBFile(settings.path, settings.name, settings.memory)
        self._lock = threading.Lock()  # two readers in turns would keep the file open for ever

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

    def position(self) -> LSN | None:
        def look(engine: Engine) -> LSN | None:
            if not _has(engine, "progress"):
                return None
            query = f"SELECT lsn FROM {CATALOG}.penstock.progress WHERE sink = ?"
            found = engine.execute(query, [self.settings.name]).fetchall()
            return LSN.parse(found[0][0]) if found else None

        return self.read(look)

    def pair(self, layout: TableLayout) -> DuckDBPair | None:
        source = layout.relation.schema, layout.relation.table

        def look(engine: Engine) -> Target | None:
            if not _has(engine, "tables"):
                return None
            found = engine.execute(
                f"SELECT target_table, columns FROM {CATALOG}.penstock.tables WHERE source_schema = ? AND source_table = ?",
                source,
            ).fetchall()
            if not found or not _has(engine, found[0][0], target_schema(source[0])):  # or somebody dropped it
                return None
            return Target(target_schema(source[0]), found[0][0], load_columns(found[0][1]), None)

        target = self.read(look)
        return None if target is None or not layout.relation.columns else DuckDBPair(self, layout, target)


class DuckDBPair:
    """A column that the file has not got yet counts as NULL there."""

    def __init__(self, target: DuckDBTarget, layout: TableLayout, mirrored: Target) -> None:
        self._target, self._layout, self._mirrored = target, layout, mirrored
        relation = self._relation = layout.relation
        self.columns = tuple(column.name for column in relation.columns)
        self.key = relation.key or self.columns
        self._policy = target.settings.unrepresentable
        types = [compared_type(column, mirrored.columns.get(column.name), self._policy) for column in relation.columns]
        here = [f"c{index}" for index in range(len(types))]
        there = [quoted(mirrored.columns[name][0]) if name in mirrored.columns else "NULL" for name in self.columns]
        key = [self.columns.index(name) for name in self.key]
        self._source_rows = HashedRows(here, types, key)
        self._target_rows = HashedRows(there, types, key)

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        figures = no_figures(buckets)
        with _engine() as engine:
            for rows in self._read(chunk):
                engine.register("batch", rows)
                figures += figures_of(_arrow(engine, self._source_rows.figures("batch", buckets)), buckets)
                engine.unregister("batch")
        return figures

    def target_figures(self, buckets: int) -> Figures:
        figures = no_figures(buckets)
        for part in self._parts():
            query = self._target_rows.figures(part, buckets)
            figures += figures_of(self._target.read(lambda engine, query=query: _arrow(engine, query)), buckets)  # type: ignore[misc]
        return figures

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        query = self._source_rows.keys("batch", buckets, wanted)
        found = []
        with _engine() as engine:
            for rows in self._read(chunk):
                engine.register("batch", rows)
                found.append(_arrow(engine, query))
                engine.unregister("batch")
        return pa.concat_tables(found) if found else self._source_rows.no_keys()

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table:
        found = []
        for part in self._parts():
            query = self._target_rows.keys(part, buckets, wanted)
            found.append(self._target.read(lambda engine, query=query: _arrow(engine, query)))  # type: ignore[misc]
        return pa.concat_tables(found) if found else self._target_rows.no_keys()

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        doing = f"Reading table {self._relation.qualified_name}"
        query = source_rows_query(self._layout, keys)
        with closing(connect(self._target.source_url, application_name="penstock verify")) as connection:
            with translated_errors(doing):
                connection.execute(SETTINGS)
            found = copied(connection, query, [*text_columns(self._relation), VERSION], doing).combine_chunks()
        versions = found.columns[-1].to_pylist()
        batch = self._typed([column.combine_chunks() for column in found.columns[:-1]])
        with _engine() as engine:
            engine.register("batch", batch)
            rows = engine.execute(self._source_rows.texts("batch")).fetchall()
        return [(self._key_of(row), str(version), row) for row, version in zip(rows, versions, strict=True)]

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        names = [f"k{index}" for index in range(len(self.key))]
        wanted = pa.table([pa.array(texts, pa.string()) for texts in zip(*keys, strict=True)], names=names)

        def look(engine: Engine) -> list[tuple[str | None, ...]]:
            engine.register("wanted", wanted)
            found = engine.execute(self._target_rows.texts(self._mirrored.sql, among="wanted")).fetchall()
            engine.unregister("wanted")
            return found

        return [(self._key_of(row), row) for row in self._target.read(look)]

    def _parts(self) -> Iterator[str]:
        """The target's table in parts by row number. Numbers that move meanwhile make suspects, which are looked at again."""
        if any(name.lower() == "rowid" for name, _ in self._mirrored.columns.values()):  # that is what it means there
            yield self._mirrored.sql
            return
        query = f"SELECT coalesce(max(rowid), -1) FROM {self._mirrored.sql}"
        last = int(self._target.read(lambda engine: engine.execute(query).fetchall())[0][0])
        for first in range(0, last + 1, _ROWS_AT_ONCE):
            end = f" AND rowid < {first + _ROWS_AT_ONCE}" if first + _ROWS_AT_ONCE <= last else ""
            yield f"(SELECT * FROM {self._mirrored.sql} WHERE rowid >= {first}{end})"

    def _read(self, chunk: Chunk) -> Iterator[pa.Table]:
        reader = ChunkReader(self._target.source_url, self._layout, chunk, ZERO, self._target.publications)
        with closing(reader.batches()) as batches:
            for batch in batches:
                yield self._typed(batch.new)

    def _typed(self, texts: Sequence[pa.Array]) -> pa.Table:
        name = self._relation.qualified_name
        arrays = [
            typed(text, column, self._policy, where=name)
            for text, column in zip(texts, self._relation.columns, strict=True)
        ]
        return pa.table(arrays, names=[f"c{index}" for index in range(len(arrays))])

    def _key_of(self, row: Row) -> Key:
        return tuple(row[index] for index in self._relation.key_indexes)


def _engine() -> Engine:
    engine = duckdb.connect(config={"autoinstall_known_extensions": "false", "memory_limit": "1GB", "threads": 1})
    engine.execute("SET TimeZone = 'UTC'")
    return engine


def _arrow(engine: Engine, query: str) -> pa.Table:
    return engine.sql(query).to_arrow_table()


def _has(engine: Engine, table: str, schema: str = "penstock") -> bool:
    found = engine.execute(
        "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND lower(schema_name) = lower(?) AND table_name = ?",
        [CATALOG, schema, table],
    ).fetchall()
    return bool(found)
