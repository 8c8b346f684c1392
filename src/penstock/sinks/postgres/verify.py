"""A Postgres target: both servers hash their own rows, and only figures travel.

The hash of a row is that of its text, made under pinned output settings and an empty search_path on both sides, and
hashed byte by byte (COLLATE "C"). Should the two servers ever hash differently, every row would be a suspect, and be
found equal when its values are compared: slow, not wrong.

Of tables with rules, the rows of both sides are read: ``verify.py``.

A table of a Postgres target that rules were applied to: the rows of both sides are read, and compared here as text.

What a transform makes is text that the target may write in another way: ``5`` becomes ``5.00`` in a numeric(10,2). So the
target's server is asked how it writes such values, each distinct one once in a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.changes.batch import Column, Relation
from penstock.errors import SinkRefused, SinkUnavailable, SourceError, SourceUnavailable
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, connect, translated_errors
from penstock.postgres.reading.chunks import Chunk, chunk_query
from penstock.postgres.reading.layout import TableLayout
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.postgres.records import records_of
from penstock.sinks.row_hashes import BATCH, HashedPair, HashedRows, HashedSource, results
from penstock.sinks.verifying import (
    SETTINGS,
    VERSION,
    Columns,
    Expected,
    Figures,
    Key,
    Row,
    copied,
    figures_of,
    keyed,
    rows_of,
    source_rows_query,
    streamed,
    with_keys,
)

_WRITTEN_AS_GIVEN = ("text", "varchar")


class TargetServer(Protocol):
    def session(self) -> AbstractContextManager[Connection]: ...

    def casting_session(self) -> AbstractContextManager[Connection]:
        """Another, so that values can be cast while rows are read."""
        ...


@dataclass(frozen=True)
class TargetTable:
    """``types``: of each column."""

    schema: str
    table: str
    types: Mapping[str, str]
    partitioned: bool

    def rows(self, columns: Sequence[str], having: Mapping[str, str] | None = None) -> sql.Composed:
        """A SELECT of these columns; ``having``: of the rows with these values."""
        listed = sql.SQL(", ").join(
            sql.Identifier(name) if name in self.types else sql.SQL("null::text as {}").format(sql.Identifier(name))
            for name in columns
        )
        query = sql.SQL("select {} from {}" if self.partitioned else "select {} from only {}").format(
            listed, sql.Identifier(self.schema, self.table)
        )
        if not having:
            return query
        same = (
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
            if name in self.types
            else sql.SQL("false")
            for name, value in having.items()
        )
        return sql.SQL("{} where {}").format(query, sql.SQL(" and ").join(same))


class RuledPostgresPair(HashedPair):
    """A column that the target lacks counts as NULL there; columns that the rules do not make are not compared."""

    def __init__(self, target: TargetServer, expected: Expected, mirrored: TargetTable) -> None:
        super().__init__(expected)
        self._target, self._doing = target, f"Reading table {self._relation.qualified_name}"
        self._mirrored = mirrored.rows(self.columns, expected.origins)
        self._rewritten = {
            index: mirrored.types[column.name]
            for index, column in enumerate(self._relation.columns)
            if column.name in self.hidden & mirrored.types.keys() and column.base not in _WRITTEN_AS_GIVEN
        }
        names = [f"c{index}" for index in range(len(self.columns))]
        self._target_hashes = HashedRows(names, ["VARCHAR"] * len(names), self._key_indexes)
        self._source = HashedSource(expected.rows, self._target_hashes, self._as_the_target_writes)

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        query = sql.SQL("select * from ({}) as q where {}").format(self._mirrored, with_keys(self._relation, keys))
        with self._target.session() as connection:
            rows = rows_of(copied(connection, query, _texts(self.columns), self._doing))
        return keyed(self._relation, rows)

    def _target_results(self, query: Callable[[str], str]) -> Iterator[pa.Table]:
        """The rows are read in one statement of the target's server, some at a time."""
        with (
            self._target.session() as connection,
            closing(streamed(connection, self._mirrored, _texts(self.columns), self._doing)) as pieces,
        ):
            yield from results(pieces, query(BATCH))

    def _as_the_target_writes(self, columns: Columns) -> list[pa.Array]:
        return [
            self._rewrite(column, self._rewritten[index]) if index in self._rewritten else column
            for index, column in enumerate(columns)
        ]

    def _rewrite(self, values: pa.Array, kind: str) -> pa.Array:
        encoded = values.dictionary_encode()
        if not len(encoded.dictionary):
            return values
        query = sql.SQL("select v::{} from unnest({}::text[]) with ordinality as u (v, n) order by n").format(
            sql.SQL(kind), sql.Literal(_array_text(encoded.dictionary))
        )
        with self._target.casting_session() as connection:
            written = copied(connection, query, _texts(["v"]), self._doing)
        return written.columns[0].combine_chunks().take(encoded.indices)


def _texts(names: Sequence[str]) -> list[Column]:
    return [Column(name, 25, "text", "text") for name in names]


def _array_text(values: pa.Array) -> str:
    """As Postgres writes an array of texts."""
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(quoted)], pa.int32()), quoted), ",")
    return f"{{{joined[0].as_py()}}}"


_INTEGER = Column("n", 20, "bigint", "int8")
_ROW_SEED, _KEY_SEED = 0, 1  # two hashes that have nothing to do with each other, where the key is the whole row


class PostgresTarget:
    """``url``: the target's. A connection to it is shared by all tables, and used by one thread at a time."""

    def __init__(self, sink: str, url: str, source_url: str, pipeline: str = "", keeps_rows: bool = False) -> None:
        self._keeps_rows = keeps_rows  # existing_rows: keep
        self._sink, self._source_url, self._owner = sink, source_url, Owner(pipeline, sink)
        self._url, self._lock, self._casting_lock = url, threading.Lock(), threading.Lock()
        self._casting: Connection | None = None
        self._connection = self._connected()

    def close(self) -> None:
        self._connection.close()
        if self._casting is not None:
            self._casting.close()

    @contextmanager
    def session(self) -> Iterator[Connection]:
        with self._lock, _of_the_sink(self._sink):
            yield self._connection

    @contextmanager
    def casting_session(self) -> Iterator[Connection]:
        """Another, so that values can be cast while rows are read."""
        with self._casting_lock, _of_the_sink(self._sink):
            self._casting = self._casting or self._connected()
            yield self._casting

    def _connected(self) -> Connection:
        with _of_the_sink(self._sink):
            connection = connect(self._url, application_name="penstock verify")
            with translated_errors("Preparing the session"):
                connection.execute(SETTINGS)
            return connection

    def position(self) -> LSN | None:
        with self.session() as connection, translated_errors("Reading penstock.progress"):
            if connection.execute("select to_regclass('penstock.progress') is null").fetchone() == (True,):
                return None
            return records_of(connection, self._owner).position()

    def pair(self, layout: TableLayout) -> PostgresPair | None:
        table = self._table(layout.relation)
        return None if table is None else PostgresPair(self, layout, table, self._source_url)

    def ruled_pair(self, expected: Expected) -> RuledPostgresPair | None:
        table = self._table(expected.rows.relation)
        return None if table is None else RuledPostgresPair(self, expected, table)

    def has_rows_of_others(self, relation: Relation) -> bool:
        if not self._keeps_rows:
            return False
        with self.session() as connection, translated_errors("Reading penstock.tables"):
            row = connection.execute(
                "select made from penstock.tables where (pipeline, sink) = (%s, %s) and target_schema = %s and "
                "target_table = %s",
                [*self._owner, relation.schema, relation.table],
            ).fetchone()
        return row == (False,)

    def _table(self, relation: Relation) -> TargetTable | None:
        with self.session() as connection, translated_errors(f"Looking for {relation.qualified_name}"):
            rows = connection.execute(
                "select c.relkind = 'p', a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) from pg_class c "
                "join pg_namespace n on n.oid = c.relnamespace "
                "left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped "
                "where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p')",
                [relation.schema, relation.table],
            ).fetchall()
        if not rows:
            return None
        types = {name: kind for _, name, kind in rows if name is not None}
        return TargetTable(relation.schema, relation.table, types, partitioned=rows[0][0])


class PostgresPair:
    """A column that the target lacks counts as NULL there; what it has beyond the source's is not looked at."""

    hidden: frozenset[str] = frozenset()

    def __init__(self, target: PostgresTarget, layout: TableLayout, mirrored: TargetTable, source_url: str) -> None:
        self._target, self._layout, self._source_url = target, layout, source_url
        relation = self._relation = layout.relation
        self.columns = tuple(column.name for column in relation.columns)
        self.key = relation.key or self.columns
        self._doing = f"Reading table {relation.qualified_name}"
        self._mirrored = mirrored.rows(self.columns)

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        with self._source() as connection:
            return self._figures(connection, chunk_query(self._layout, chunk), buckets)

    def target_figures(self, buckets: int) -> Figures:
        with self._target.session() as connection:
            return self._figures(connection, self._mirrored, buckets)

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        with self._source() as connection:
            return self._keys(connection, chunk_query(self._layout, chunk), buckets, wanted)

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table:
        with self._target.session() as connection:
            return self._keys(connection, self._mirrored, buckets, wanted)

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        query = source_rows_query(self._layout, keys)
        with self._source() as connection:
            versioned = rows_of(copied(connection, query, [*_texts(self.columns), VERSION], self._doing))
        rows = keyed(self._relation, [row[:-1] for row in versioned])
        return [(key, str(row[-1]), values) for (key, values), row in zip(rows, versioned, strict=True)]

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        query = sql.SQL("{} where {}").format(self._mirrored, with_keys(self._relation, keys))
        with self._target.session() as connection:
            rows = rows_of(copied(connection, query, _texts(self.columns), self._doing))
        return keyed(self._relation, rows)

    @contextmanager
    def _source(self) -> Iterator[Connection]:
        with closing(connect(self._source_url, application_name="penstock verify")) as connection:
            with translated_errors(self._doing):
                connection.execute(SETTINGS)
            yield connection

    def _figures(self, connection: Connection, rows: sql.Composed, buckets: int) -> Figures:
        query = sql.SQL(
            "select bucket, count(*), sum(h & 4294967295)::bigint, sum((h >> 32) & 4294967295)::bigint "
            "from ({}) as hashed group by bucket"
        ).format(self._hashed(rows, buckets))
        sums = copied(connection, query, [_INTEGER] * 4, self._doing)
        return figures_of(pa.table([pc.cast(column, pa.int64()) for column in sums.columns], names="abcd"), buckets)

    def _keys(self, connection: Connection, rows: sql.Composed, buckets: int, wanted: Sequence[int]) -> pa.Table:
        names = [f"k{index}" for index in range(len(self.key))]
        query = sql.SQL("select {}, h from ({}) as hashed where bucket = any({})").format(
            sql.SQL(", ").join(map(sql.Identifier, names)), self._hashed(rows, buckets), sql.Literal(list(wanted))
        )
        return copied(connection, query, _texts((*names, "h")), self._doing).rename_columns([*names, "h"])

    def _hashed(self, rows: sql.Composed, buckets: int) -> sql.Composed:
        """Each row's bucket, key and hash. The row's own columns stay below, whatever they are called."""
        key = sql.SQL(", ").join(sql.Identifier("q", name) for name in self.key)
        named = sql.SQL(", ").join(
            sql.SQL("{} as {}").format(sql.Identifier("q", name), sql.Identifier(f"k{index}"))
            for index, name in enumerate(self.key)
        )
        return sql.SQL(
            "select (hashtextextended((row({key})::text) collate {c}, {key_seed}) & {mask})::bigint as bucket, "
            "hashtextextended(((q.*)::text) collate {c}, {row_seed}) as h, {named} from ({rows}) as q"
        ).format(
            key=key, named=named, rows=rows, mask=sql.Literal(buckets - 1), c=sql.Identifier("pg_catalog", "C"),
            key_seed=sql.Literal(_KEY_SEED), row_seed=sql.Literal(_ROW_SEED),
        )  # fmt: skip


@contextmanager
def _of_the_sink(sink: str) -> Iterator[None]:
    """What the target's server says is the sink's error."""
    try:
        yield
    except SourceError as error:
        kind = SinkUnavailable if isinstance(error, SourceUnavailable) else SinkRefused
        raise kind(
            f'Sink "{sink}": {error.message}', error.advice or "Check the sink's url, and that its role may read there."
        ) from error
