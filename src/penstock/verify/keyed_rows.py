"""Rows by their keys, as the text that COPY writes: the same on the source and on a Postgres target."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from psycopg import sql

from penstock.changes import Column, Relation
from penstock.imports.csv_rows import csv_rows
from penstock.imports.layout import TableLayout
from penstock.imports.plan import comparable, literal
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.copy_out import copy_out
from penstock.postgres.replication_stream import PINNED_SETTINGS
from penstock.verify.target import Key

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
