"""The chunks that a table is read in, each small enough for a short transaction of its own.

pages    pages of one heap, by ctid: a TID range scan, which reads no page that is not asked for
keys     a range of the key, through the table's root: where heaps cannot be read one by one
whole    the whole table in one go: one without a key, whose rows cannot be told apart afterwards
rows     the rows with these keys, to be read again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from penstock.changes.batch import Column
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.layout import Leaf, TableLayout

_ROWS_PER_RANGE = 50_000  # where nobody knows how many rows there are


@dataclass(frozen=True)
class Chunk:
    """``lower`` is part of the range, ``upper`` is not; None: no bound. Both in the layout's ``key_order``.

    The last chunk of a heap has no ``end_page``: the heap may have grown since it was planned.

    ``after``: it was planned when the table's changes up to there were known, and its rows take the place of what the table
    holds once these are applied; None for those that come before all changes.
    """

    number: int
    kind: Literal["pages", "keys", "whole", "rows"]
    leaf: int | None = None  # index into the layout's leaves
    first_page: int = 0
    end_page: int | None = None
    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None
    keys: tuple[tuple[str, ...], ...] = ()  # of kind rows; values as text, in the order of the relation's key
    bytes: int = 0
    after: LSN | None = None

    def to_json(self) -> dict[str, Any]:
        """Without what it does not have: there may be very many."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Chunk:
        known: dict[str, Any] = {name: tuple(data[name]) for name in ("lower", "upper") if name in data}
        if "after" in data:
            known["after"] = LSN(data["after"])
        return cls(**{**data, **known, "keys": tuple(tuple(key) for key in data.get("keys", ()))})


def plan_chunks(
    connection: Connection, layout: TableLayout, chunk_bytes: int, most_rows: int | None = None
) -> list[Chunk]:
    """Chunks of about ``chunk_bytes`` each and of about ``most_rows`` rows at most, numbered from 1."""
    if layout.by_snapshot or not layout.leaves:
        return [Chunk(1, "whole", bytes=layout.bytes)]
    if layout.by_pages:
        return _pages(connection, layout, chunk_bytes, most_rows)
    return list(_key_ranges(connection, layout, chunk_bytes, most_rows))


def chunk_query(layout: TableLayout, chunk: Chunk) -> sql.Composed:
    """The SELECT that reads a chunk: the columns of ``layout.relation`` in their order; one NULL if it has none."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in layout.relation.columns)
    conditions = list(_conditions(layout, chunk))
    if layout.row_filter is not None:
        conditions.append(sql.SQL("({})").format(sql.SQL(layout.row_filter)))
    where = sql.SQL(" where {}").format(sql.SQL(" and ").join(conditions)) if conditions else sql.SQL("")
    return sql.SQL("select {} from {}{}").format(
        columns if layout.relation.columns else sql.SQL("null::text"), _source(layout, chunk), where
    )


def _pages(connection: Connection, layout: TableLayout, chunk_bytes: int, most_rows: int | None) -> list[Chunk]:
    densities = _rows_per_page(connection, layout.leaves) if most_rows is not None else {}
    chunks: list[Chunk] = []
    for index, leaf in enumerate(layout.leaves):
        page_bytes = leaf.bytes / leaf.pages if leaf.pages else 0.0
        step = _at_least_one(chunk_bytes, page_bytes, leaf.pages)
        if most_rows is not None:
            step = min(step, _at_least_one(most_rows, densities.get(leaf.oid, 0.0), leaf.pages))
        for first in range(0, max(leaf.pages, 1), step):
            last = first + step >= leaf.pages
            size = round(page_bytes * (leaf.pages - first if last else step))
            end = None if last else first + step
            chunks.append(Chunk(len(chunks) + 1, "pages", index, first, end, bytes=size))
    return chunks


def _at_least_one(most: int, each: float, otherwise: int) -> int:
    """How many fit into ``most``."""
    return max(1, int(most / each) if each else otherwise)


def _rows_per_page(connection: Connection, leaves: Sequence[Leaf]) -> dict[int, float]:
    with translated_errors("Estimating the rows of a table"):
        rows = connection.execute(_DENSITIES, [[leaf.oid for leaf in leaves]])
        return {oid: float(density) for oid, density in rows}


def _key_ranges(
    connection: Connection, layout: TableLayout, chunk_bytes: int, most_rows: int | None
) -> Iterator[Chunk]:
    """Walks the key from one bound to the next, each in a statement of its own."""
    rows, size = layout.rows_estimated, layout.bytes
    step = max(1, int(chunk_bytes * rows / size)) if rows and size else _ROWS_PER_RANGE
    step = min(step, most_rows) if most_rows is not None else step
    share = round(size * step / rows) if rows else chunk_bytes
    number, lower = 1, _bound(connection, layout, None, step)
    yield Chunk(1, "keys", upper=lower, bytes=share)
    while lower is not None:
        number, upper = number + 1, _bound(connection, layout, lower, step)
        yield Chunk(number, "keys", lower=lower, upper=upper, bytes=share)
        lower = upper


def _bound(
    connection: Connection, layout: TableLayout, after: tuple[str, ...] | None, step: int
) -> tuple[str, ...] | None:
    """The key that is ``step`` rows further on; None if the table ends before."""
    # Qualified, or ORDER BY would mean the texts, which have the columns' names.
    key = [sql.Identifier("t", name) for name in layout.key_order]
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(column) for column in key)
    # Beyond the last bound, so that each is beyond the one before whatever happens to the rows.
    where = sql.SQL("") if after is None else sql.SQL("where {}").format(_compared(layout, ">", after))
    query = sql.SQL("select {} from {} as t {} order by {} offset {} limit 1").format(
        texts, _root(layout), where, sql.SQL(", ").join(key), sql.Literal(step if after is None else step - 1)
    )
    with translated_errors(f"Planning the import of {layout.relation.qualified_name}"):
        row = connection.execute(query).fetchone()
    return None if row is None else tuple(row)


def _source(layout: TableLayout, chunk: Chunk) -> sql.Composed:
    if chunk.kind != "pages":
        return _root(layout)
    assert chunk.leaf is not None
    leaf = layout.leaves[chunk.leaf]
    return sql.SQL("only {}").format(sql.Identifier(leaf.schema, leaf.table))


def _root(layout: TableLayout) -> sql.Composed:
    """ONLY: a table's heirs by old-style inheritance are tables of their own."""
    name = sql.Identifier(layout.relation.schema, layout.relation.table)
    return sql.SQL("{}" if layout.partitioned else "only {}").format(name)


def _conditions(layout: TableLayout, chunk: Chunk) -> Iterator[sql.Composable]:
    if chunk.kind == "pages":
        yield from _page_conditions(chunk)
        return
    if layout.leaves_out:
        oids = sql.SQL(", ").join(sql.Literal(leaf.oid) for leaf in layout.leaves)
        yield sql.SQL("tableoid = any(array[{}]::oid[])").format(oids)
    if chunk.kind == "rows":
        yield _among(layout, chunk.keys)
    if chunk.lower is not None:
        yield _compared(layout, ">=", chunk.lower)
    if chunk.upper is not None:
        yield _compared(layout, "<", chunk.upper)


def _page_conditions(chunk: Chunk) -> Iterator[sql.Composable]:
    yield sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({chunk.first_page},0)"))
    if chunk.end_page is not None:
        yield sql.SQL("ctid < {}::tid").format(sql.Literal(f"({chunk.end_page},0)"))


def _compared(layout: TableLayout, operator: Literal[">", ">=", "<"], bound: Sequence[str]) -> sql.Composed:
    """Row-wise, as the index is ordered."""
    names = _names(layout, layout.key_order)
    return sql.SQL("({}) " + operator + " ({})").format(names, _values(layout, layout.key_order, bound))


def _among(layout: TableLayout, keys: Sequence[Sequence[str]]) -> sql.Composed:
    names = _names(layout, layout.relation.key)
    rows = sql.SQL(", ").join(sql.SQL("({})").format(_values(layout, layout.relation.key, key)) for key in keys)
    return sql.SQL("({}) in (values {})").format(names, rows)


def _names(layout: TableLayout, names: Sequence[str]) -> sql.Composed:
    columns = layout.relation.columns_by_name
    return sql.SQL(", ").join(comparable(columns[name], sql.Identifier(name)) for name in names)


def _values(layout: TableLayout, names: Sequence[str], texts: Sequence[str]) -> sql.Composed:
    columns = layout.relation.columns_by_name
    casts = (literal(columns[name], text) for name, text in zip(names, texts, strict=True))
    return sql.SQL(", ").join(casts)


def literal(column: Column, text: str | None) -> sql.Composable:
    """A value to compare with ``comparable`` ones."""
    return comparable(column, sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(column.type_name)))


def comparable(column: Column, value: sql.Composable) -> sql.Composable:
    """A type that is not in pg_catalog may have operators of its own, which an empty search_path does not find. Arrays of it
    have the same order, and are compared by what is always found; but no index serves that."""
    foreign = column.base == "other" and "." in column.type_name
    return sql.SQL("array[{}]").format(value) if foreign else value


# For a table that was never analysed, as the planner guesses: 32 bytes for what has no fixed width, and 28 for the row.
_DENSITIES = """
select c.oid, case
    when c.reltuples >= 0 and c.relpages > 0 then c.reltuples / c.relpages
    else current_setting('block_size')::float8 / (28 + (
        select coalesce(sum(case when a.attlen > 0 then a.attlen else 32 end), 0)
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ))
end
from pg_class c where c.oid = any(%s::oid[])
"""
