"""A table of a Postgres target that rules were applied to: the rows of both sides are read, and compared here as text.

What a transform makes is text that the target may write in another way: ``5`` becomes ``5.00`` in a numeric(10,2). So the
target's server is asked how it writes such values, each distinct one once in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.changes import Column
from penstock.imports.plan import Chunk
from penstock.postgres.connection import Connection
from penstock.verify.duckdb_values import HashedRows
from penstock.verify.hashed_source import HashedSource, arrow, engine
from penstock.verify.keyed_rows import copied, streamed, with_keys
from penstock.verify.target import Columns, Expected, Figures, Key, Row, figures_of, no_figures

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


class RuledPostgresPair:
    """A column that the target lacks counts as NULL there; what it has beyond what the rules make is not looked at."""

    def __init__(self, target: TargetServer, expected: Expected, mirrored: TargetTable) -> None:
        self._target, self.hidden = target, expected.transformed
        relation = self._relation = expected.rows.relation
        self.columns = tuple(column.name for column in relation.columns)
        self.key = relation.key or self.columns
        self._doing = f"Reading table {relation.qualified_name}"
        self._mirrored = mirrored.rows(self.columns, expected.origins)
        self._rewritten = {
            index: mirrored.types[column.name]
            for index, column in enumerate(relation.columns)
            if column.name in self.hidden & mirrored.types.keys() and column.base not in _WRITTEN_AS_GIVEN
        }
        names = [f"c{index}" for index in range(len(self.columns))]
        self._hashed = HashedRows(
            names, ["VARCHAR"] * len(names), [self.columns.index(name) for name in self.key]
        )  # fmt: skip
        self._source = HashedSource(expected.rows, self._hashed, self._as_the_target_writes)

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        return self._source.figures(chunk, buckets)

    def target_figures(self, buckets: int) -> Figures:
        figures = no_figures(buckets)
        for found in self._asked(self._hashed.figures("batch", buckets)):
            figures += figures_of(found, buckets)
        return figures

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        return self._source.keys(chunk, buckets, wanted)

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table:
        found = list(self._asked(self._hashed.keys("batch", buckets, wanted)))
        return pa.concat_tables(found) if found else self._hashed.no_keys()

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        return self._source.with_keys(keys)

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        query = sql.SQL("select * from ({}) as q where {}").format(self._mirrored, with_keys(self._relation, keys))
        with self._target.session() as connection:
            found = copied(connection, query, self._texts, self._doing)
        rows: list[Row] = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return [(tuple(row[index] for index in self._relation.key_indexes), row) for row in rows]

    @property
    def _texts(self) -> list[Column]:
        return [Column(name, 25, "text", "text") for name in self.columns]

    def _asked(self, query: str) -> Iterator[pa.Table]:
        """Of the target's rows, some at a time, in one statement of its server."""
        with (
            engine() as here,
            self._target.session() as connection,
            closing(streamed(connection, self._mirrored, self._texts, self._doing)) as pieces,
        ):
            for rows in pieces:
                here.register("batch", rows)
                yield arrow(here, query)
                here.unregister("batch")

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
            written = copied(connection, query, [Column("v", 25, "text", "text")], self._doing)
        return written.columns[0].combine_chunks().take(encoded.indices)


def _array_text(values: pa.Array) -> str:
    """As Postgres writes an array of texts."""
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(quoted)], pa.int32()), quoted), ",")
    return f"{{{joined[0].as_py()}}}"
