"""What ``verify`` needs of a sink's target: two classes to write for a new one.

Rows are compared by *buckets*: a row belongs to the bucket that the hash of its key says, on both sides alike. Ranges of
the key itself would need one order on both sides, and there is none: collations differ from server to server, and DuckDB
orders text by its bytes. Hashes also let the source be read page by page, in the order it lies on disk.

Rows by their keys, as the text that COPY writes: the same on the source and on a Postgres target.

The source's rows as text: chunk by chunk, or by key. What rules make of them: ``ruled_rows.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from penstock.changes.batch import Column, Relation
from penstock.lsn import LSN, ZERO
from penstock.postgres.connection import Connection, connect, translated_errors
from penstock.postgres.reading.chunks import Chunk, comparable, literal
from penstock.postgres.reading.copy_out import copy_out
from penstock.postgres.reading.csv_rows import csv_rows
from penstock.postgres.reading.layout import TableLayout
from penstock.postgres.reading.read_chunk import ChunkReader
from penstock.postgres.replication_stream import PINNED_SETTINGS

Key = tuple[str | None, ...]
Row = tuple[str | None, ...]

Figures = npt.NDArray[np.int64]
"""Per bucket: how many rows, and the sums of the lower and of the upper halves of their hashes. Shape (3, buckets).

Sums, not XOR: two equal rows of a table without a key must not cancel each other out.
"""


Columns = Sequence[pa.Array]
"""Of rows, as text."""


class SourceRows(Protocol):
    """The rows that a sink should hold. ``relation``: how they look there. Called from several threads."""

    @property
    def relation(self) -> Relation: ...

    def chunk(self, chunk: Chunk) -> Generator[Columns, None, None]:
        """Those of a chunk, read in a short transaction."""
        ...

    def with_keys(self, keys: Sequence[Key]) -> Generator[tuple[Columns, pa.Array], None, None]:
        """Those with these keys as they are now, and each row's version. Others may be among them."""
        ...


@dataclass(frozen=True)
class Expected:
    """What rules make of a table. ``origins``: only those rows of the target are its own that have these values.

    ``transformed``: columns whose values rules change.
    """

    rows: SourceRows
    origins: Mapping[str, str] = field(default_factory=dict)
    transformed: frozenset[str] = frozenset()


class TablePair(Protocol):
    """A table of the source and the one of the target that mirrors it. ``buckets`` is always a power of two.

    ``key``: the columns that a row is known by; all of them where the table has no key. Keys and values are texts, written
    alike for both sides, so that they can be compared as they are; those of keys can be cast by the source.

    ``hidden``: columns whose values, as the target has them, are not to be shown: rules change them, and the target may have
    one that they did not.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    hidden: frozenset[str]

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        """Of a chunk of the source's table, read in a short transaction. Called from several threads."""
        ...

    def target_figures(self, buckets: int) -> Figures: ...

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        """The rows in these buckets: columns k0, k1, … with the key, and h with the hash of the row. From several threads."""
        ...

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table: ...

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        """The rows with these keys as they are now, each with its key and its version (xmin).

        Several with one key only where rules make different keys equal; then two of them will do.
        """
        ...

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]: ...


class VerifiableTarget(Protocol):
    def position(self) -> LSN | None:
        """Up to where the target holds every change, by its own record."""
        ...

    def pair(self, layout: TableLayout) -> TablePair | None:
        """None: the target has no such table."""
        ...

    def ruled_pair(self, expected: Expected) -> TablePair | None:
        """The same of a table with rules."""
        ...

    def has_rows_of_others(self, relation: Relation) -> bool:
        """Whether the target's table has rows that somebody else put there, and that imports keep."""
        ...

    def close(self) -> None: ...


def keyed(relation: Relation, rows: Iterable[Row]) -> list[tuple[Key, Row]]:
    """Each row with its key."""
    return [(tuple(row[index] for index in relation.key_indexes), row) for row in rows]


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def no_figures(buckets: int) -> Figures:
    return np.zeros((3, buckets), np.int64)


def figures_of(sums: pa.Table, buckets: int) -> Figures:
    """From a table of bucket, count, and the two sums."""
    figures = no_figures(buckets)
    bucket, *values = (column.to_numpy() for column in sums.columns)
    for part, value in zip(figures, values, strict=True):
        part[bucket.astype(np.int64)] = value
    return figures


SETTINGS = f"{PINNED_SETTINGS}; set lock_timeout = '5s'; set jit = off"
VERSION = Column("xmin", 25, "text", "text")


def source_rows_query(layout: TableLayout, keys: Sequence[Key] | None) -> sql.Composed:
    """The columns of the relation, and behind them each row's version. Honours row filters and partitions left out.

    ``keys``: None for all rows.
    """
    relation = layout.relation
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
    name = sql.Identifier(relation.schema, relation.table)
    conditions = [sql.SQL("true") if keys is None else with_keys(relation, keys)]
    if layout.row_filter is not None:
        conditions.append(sql.SQL("({})").format(sql.SQL(layout.row_filter)))
    if layout.leaves_out:
        oids = sql.SQL(", ").join(sql.Literal(leaf.oid) for leaf in layout.leaves)
        conditions.append(sql.SQL("tableoid = any(array[{}]::oid[])").format(oids))
    return sql.SQL("select {}, xmin::text from {} where {}").format(
        columns, name if layout.partitioned else sql.SQL("only {}").format(name), sql.SQL(" and ").join(conditions)
    )


def with_keys(relation: Relation, keys: Sequence[Key]) -> sql.Composed:
    """In a way that an index serves; but for keys with a NULL in them, which only a target without a primary key has."""
    names = sql.SQL(", ").join(_key(relation))
    whole = [_literals(relation, key) for key in keys if None not in key]
    conditions = [_same(relation, key) for key in keys if None in key]
    if whole:
        rows = sql.SQL(", ").join(sql.SQL("({})").format(sql.SQL(", ").join(row)) for row in whole)
        conditions.append(sql.SQL("({}) in (values {})").format(names, rows))
    return sql.SQL("({})").format(sql.SQL(" or ").join(conditions))


def _same(relation: Relation, key: Key) -> sql.Composed:
    parts = zip(_key(relation), _literals(relation, key), strict=True)
    each = (sql.SQL("{} is not distinct from {}").format(name, value) for name, value in parts)
    return sql.SQL("({})").format(sql.SQL(" and ").join(each))


def _key(relation: Relation) -> list[sql.Composable]:
    return [comparable(relation.columns_by_name[name], sql.Identifier(name)) for name in relation.key]


def _literals(relation: Relation, key: Key) -> list[sql.Composable]:
    return [literal(relation.columns_by_name[name], text) for name, text in zip(relation.key, key, strict=True)]


def copied(connection: Connection, query: sql.Composed, columns: Sequence[Column], doing: str) -> pa.Table:
    """The rows of a query as text, in a statement of its own; columns c0, c1, …"""
    names = [f"c{index}" for index in range(len(columns))]
    tables = list(streamed(connection, query, columns, doing))
    return pa.concat_tables(tables) if tables else pa.table([pa.array([], pa.string())] * len(names), names=names)


def streamed(
    connection: Connection, query: sql.Composed, columns: Sequence[Column], doing: str
) -> Generator[pa.Table, None, None]:
    """The same, some 4 MiB at a time."""
    shape = Relation(0, "", doing, "n", tuple(columns))
    names = [f"c{index}" for index in range(len(columns))]
    with translated_errors(doing), closing(copy_out(connection, query)) as pieces:
        for piece in pieces:
            if piece.size:
                yield pa.table(csv_rows(shape, piece), names=names)


def text_columns(relation: Relation) -> list[Column]:
    return [replace(column, base="text") for column in relation.columns]


class PlainRows:
    """As the source has them."""

    def __init__(self, url: str, layout: TableLayout, publications: Sequence[str]) -> None:
        self._url, self._layout, self._publications = url, layout, publications
        self.relation = layout.relation

    def chunk(self, chunk: Chunk) -> Generator[Columns, None, None]:
        reader = ChunkReader(self._url, self._layout, chunk, ZERO, self._publications)
        with closing(reader.batches()) as batches:
            for batch in batches:
                yield batch.new

    def with_keys(self, keys: Sequence[Key]) -> Generator[tuple[Columns, pa.Array], None, None]:
        return versioned_rows(self._url, self._layout, keys)


def versioned_rows(
    url: str, layout: TableLayout, keys: Sequence[Key] | None
) -> Generator[tuple[list[pa.Array], pa.Array], None, None]:
    """The table's rows with these keys, or all if None, in one statement; and the version of each."""
    doing = f"Reading table {layout.relation.qualified_name}"
    with closing(connect(url, application_name="penstock verify")) as connection:
        with translated_errors(doing):
            connection.execute(SETTINGS)
        columns = [*text_columns(layout.relation), VERSION]
        with closing(streamed(connection, source_rows_query(layout, keys), columns, doing)) as pieces:
            for piece in pieces:
                *values, versions = (column.combine_chunks() for column in piece.columns)
                yield values, versions
