"""The source's side of a comparison that is made here: its rows are read, cast as the target's, and hashed by DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.imports.plan import Chunk
from penstock.verify.duckdb_values import HashedRows
from penstock.verify.target import Columns, Figures, Key, Row, SourceRows, figures_of, no_figures

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
