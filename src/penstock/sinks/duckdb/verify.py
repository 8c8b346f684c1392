"""A DuckDB file as the target: the source's rows are cast as the sink casts them, and DuckDB hashes both sides alike.

The file is open for a moment at a time, so that the sink, which needs it for itself while it commits, waits for little: a
table is read in parts that take a fraction of a second each, and the file has a rest in between (``duckdb_lock.Rests``).

How rows are hashed and written as text by DuckDB, the same for both sides of a comparison.

Two values are equal if Postgres would write them alike. DuckDB's own equality is wider: it takes 0 for -0, and a month for
30 days. So those types are compared by their text.

The source's side of a comparison that is made here: its rows are read, cast as the target's, and hashed by DuckDB.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import duckdb
import pyarrow as pa

from penstock.changes.batch import Column, Relation
from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.pgoutput.types import Unrepresentable, typed
from penstock.pgoutput.types.arrays import is_list
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.sinks.duckdb.file import CATALOG, DuckDBFile, quoted
from penstock.sinks.duckdb.sink import DuckDBSettings
from penstock.sinks.duckdb.target import Target, load_columns, target_schema
from penstock.sinks.duckdb.types import duckdb_type
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.verifying import Columns, Expected, Figures, Key, PlainRows, Row, SourceRows, figures_of, no_figures

_FROM_TEXT = {"BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "UUID", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "VARCHAR"}
_EQUAL_BEYOND_TEXT = ("FLOAT", "DOUBLE", "INTERVAL")


def column_policy(column: Column, mirrored: tuple[str, str] | None, policy: Unrepresentable) -> Unrepresentable:
    """An array column that is text in the file has met arrays that are no lists: all its values are text there."""
    return "text" if mirrored is not None and mirrored[1] == "VARCHAR" and is_list(column) else policy


def compared_type(column: Column, mirrored: tuple[str, str] | None, unrepresentable: Unrepresentable) -> str:
    """The type that both sides are cast to: the file's, or text if its column was made under another policy or type."""
    wanted = duckdb_type(column, unrepresentable)
    return wanted if mirrored is None or mirrored[1] == wanted else "VARCHAR"


@dataclass(frozen=True)
class HashedRows:
    """``columns``: SQL expressions; ``types``: of each; ``key``: which of them the key is."""

    columns: Sequence[str]
    types: Sequence[str]
    key: Sequence[int]

    def figures(self, source: str, buckets: int) -> str:
        return (
            f"SELECT (kh & {buckets - 1}::UBIGINT)::BIGINT AS bucket, count(*)::BIGINT, sum(h & 4294967295)::BIGINT, "
            f"sum(h >> 32)::BIGINT FROM ({self._hashed(source)}) GROUP BY 1"
        )

    def keys(self, source: str, buckets: int, wanted: Sequence[int]) -> str:
        names = ", ".join(f"k{index}" for index in range(len(self.key)))
        listed = ", ".join(map(str, wanted))
        return (
            f"SELECT {names}, h::VARCHAR AS h FROM ({self._hashed(source)}) "
            f"WHERE (kh & {buckets - 1}::UBIGINT)::BIGINT IN ({listed})"
        )

    def no_keys(self) -> pa.Table:
        names = [*(f"k{index}" for index in range(len(self.key))), "h"]
        return pa.table([pa.array([], pa.string())] * len(names), names=names)

    def texts(self, source: str, among: str, also: str | None = None, most: int | None = None) -> str:
        """Every column as text, of those rows whose key is one of ``among``. ``also``: a column besides. ``most``: per key."""
        texts = ", ".join(f"{self._text(index)} AS t{index}" for index in range(len(self.columns)))
        texts += f", {also}" if also else ""
        same = " AND ".join(f"t.t{column} IS NOT DISTINCT FROM w.k{index}" for index, column in enumerate(self.key))
        query = f"SELECT t.* FROM (SELECT {texts} FROM {source}) AS t SEMI JOIN {among} AS w ON {same}"
        if most is None:
            return query
        key = ", ".join(f"t{column}" for column in self.key)
        return f"SELECT * FROM ({query}) QUALIFY row_number() OVER (PARTITION BY {key}) <= {most}"

    def narrowed(self, source: str, among: str) -> str:
        """The rows whose key may be one of ``among``, where no key is NULL: few to write as text, of a table with many. All
        rows, if keys of such types do not come back from their text as they were."""
        kinds = [self.types[column] for column in self.key]
        if not all(kind in _FROM_TEXT or kind.startswith("DECIMAL(") for kind in kinds) or not kinds:
            return source
        keys = ", ".join(f'TRY_CAST(k{index} AS {kind}) AS "key {index}"' for index, kind in enumerate(kinds))
        same = " AND ".join(f'{self._cast(column)} = w."key {index}"' for index, column in enumerate(self.key))
        return f"(SELECT * FROM {source} SEMI JOIN (SELECT {keys} FROM {among}) AS w ON {same})"

    def _hashed(self, source: str) -> str:
        key = ", ".join(self._hashable(index) for index in self.key)
        row = ", ".join(self._hashable(index) for index in range(len(self.columns)))
        named = ", ".join(f"{self._text(column)} AS k{index}" for index, column in enumerate(self.key))
        # With another value behind it, or a key that is the whole row would have the row's hash.
        return f"SELECT hash({key}, 1) AS kh, hash({row}) AS h, {named} FROM {source}"

    def _cast(self, index: int) -> str:
        return f"CAST({self.columns[index]} AS {self.types[index]})"

    def _hashable(self, index: int) -> str:
        """DuckDB hashes an empty list as it does NULL, and equal values alike whatever their text."""
        kind = self.types[index]
        return self._text(index) if kind.endswith("[]") or kind in _EQUAL_BEYOND_TEXT else self._cast(index)

    def _text(self, index: int) -> str:
        """As Postgres can read it."""
        kind, value = self.types[index], self._cast(index)
        if not kind.endswith("[]"):
            return _scalar_text(value, kind)
        element = _scalar_text("x", kind.removesuffix("[]"))
        escaped = f"""'"' || replace(replace({element}, '\\', '\\\\'), '"', '\\"') || '"'"""
        elements = f"list_transform({value}, lambda x: CASE WHEN x IS NULL THEN 'NULL' ELSE {escaped} END)"
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE '{{' || array_to_string({elements}, ',') || '}}' END"


def _scalar_text(value: str, kind: str) -> str:
    return f"'\\x' || lower(hex({value}))" if kind == "BLOB" else f"{value}::VARCHAR"


_ROWS_PER_KEY = 2  # more than one is all that counts


@dataclass(frozen=True)
class HashedSource:
    """``hashed``: over columns c0, c1, …; ``cast``: makes of the rows' texts what is hashed."""

    rows: SourceRows
    hashed: HashedRows
    cast: Callable[[Columns], Sequence[pa.Array]]

    def figures(self, chunk: Chunk, buckets: int) -> Figures:
        figures = no_figures(buckets)
        for found in self._asked(chunk, self.hashed.figures("batch", buckets)):
            figures += figures_of(found, buckets)
        return figures

    def keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        found = list(self._asked(chunk, self.hashed.keys("batch", buckets, wanted)))
        return pa.concat_tables(found) if found else self.hashed.no_keys()

    def with_keys(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        """Of rows that share a key, the first two."""
        query = self.hashed.texts("batch", among="wanted", also="version", most=_ROWS_PER_KEY)
        found: list[tuple[Key, str, Row]] = []
        seen: Counter[Key] = Counter()
        with engine() as here, closing(self.rows.with_keys(keys)) as pieces:
            here.register("wanted", key_table(keys))
            for columns, versions in pieces:
                here.register("batch", self._table(columns).append_column("version", versions))
                for *row, version in here.execute(query).fetchall():
                    key = tuple(row[index] for index in self.hashed.key)
                    seen[key] += 1
                    if seen[key] <= _ROWS_PER_KEY:
                        found.append((key, str(version), tuple(row)))
                here.unregister("batch")
        return found

    def _asked(self, chunk: Chunk, query: str) -> Iterator[pa.Table]:
        with engine() as here, closing(self.rows.chunk(chunk)) as pieces:
            for columns in pieces:
                here.register("batch", self._table(columns))
                yield arrow(here, query)
                here.unregister("batch")

    def _table(self, columns: Columns) -> pa.Table:
        return pa.table(list(self.cast(columns)), names=self.hashed.columns)


def engine() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect(config={"autoinstall_known_extensions": "false", "memory_limit": "1GB", "threads": 1})
    made.execute("SET TimeZone = 'UTC'")
    return made


def arrow(engine: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return engine.sql(query).to_arrow_table()


def key_table(keys: Sequence[Key]) -> pa.Table:
    """Columns k0, k1, …"""
    texts = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    return pa.table(texts, names=[f"k{index}" for index in range(len(texts))])


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
            query = f"SELECT lsn FROM {CATALOG}.penstock.progress WHERE pipeline = ? AND sink = ?"
            found = engine.execute(query, list(self._owner)).fetchall()
            return LSN.parse(found[0][0]) if found else None

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


class DuckDBPair:
    """A column that the file has not got yet counts as NULL there."""

    def __init__(self, target: DuckDBTarget, expected: Expected, mirrored: Target) -> None:
        self._target, self._mirrored = target, mirrored
        relation = self._relation = expected.rows.relation
        self.columns = tuple(column.name for column in relation.columns)
        self.key = relation.key or self.columns
        self.hidden = expected.transformed
        policies, name = target.settings.unrepresentable, relation.qualified_name
        self._policies = [
            column_policy(column, mirrored.columns.get(column.name), policies.of(name, column.name))
            for column in relation.columns
        ]
        types = [
            compared_type(column, mirrored.columns.get(column.name), policy)
            for column, policy in zip(relation.columns, self._policies, strict=True)
        ]
        here = [f"c{index}" for index in range(len(types))]
        key = [self.columns.index(name) for name in self.key]
        self._source = HashedSource(expected.rows, HashedRows(here, types, key), self._typed)
        self._target_rows = HashedRows([self._there(name) for name in self.columns], types, key)
        self._conditions = [f"{self._there(name)} = {_literal(value)}" for name, value in expected.origins.items()]

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        return self._source.figures(chunk, buckets)

    def target_figures(self, buckets: int) -> Figures:
        figures = no_figures(buckets)
        for part in self._parts(lambda rows: self._target_rows.figures(rows, buckets)):
            figures += figures_of(part, buckets)
        return figures

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        return self._source.keys(chunk, buckets, wanted)

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table:
        found = list(self._parts(lambda rows: self._target_rows.keys(rows, buckets, wanted)))
        return pa.concat_tables(found) if found else self._target_rows.no_keys()

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        return self._source.with_keys(keys)

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        wanted, has_nulls = key_table(keys), any(None in key for key in keys)

        def look(engine: Engine) -> list[tuple[str | None, ...]]:
            engine.register("wanted", wanted)
            rows = self._part() if has_nulls else self._target_rows.narrowed(self._part(), among="wanted")
            found = engine.execute(self._target_rows.texts(rows, among="wanted")).fetchall()
            engine.unregister("wanted")
            return found

        return [(self._key_of(row), row) for row in self._target.read(look)]

    def _there(self, name: str) -> str:
        return quoted(self._mirrored.columns[name][0]) if name in self._mirrored.columns else "NULL"

    def _parts(self, query: Callable[[str], str]) -> Iterator[pa.Table]:
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
        name = self._relation.qualified_name
        return [
            typed(text, column, policy, where=name)
            for text, column, policy in zip(texts, self._relation.columns, self._policies, strict=True)
        ]

    def _key_of(self, row: Row) -> Key:
        return tuple(row[index] for index in self._relation.key_indexes)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _has(engine: Engine, table: str, schema: str = "penstock") -> bool:
    found = engine.execute(
        "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND lower(schema_name) = lower(?) AND table_name = ?",
        [CATALOG, schema, table],
    ).fetchall()
    return bool(found)
