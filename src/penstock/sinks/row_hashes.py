"""Rows hashed and written as text by an in-memory DuckDB, the same way for both sides of a comparison.

Two values are equal if Postgres would write them alike. DuckDB's own equality is wider: it takes 0 for -0, and a month for
30 days. So those types are compared by their text.

``HashedSource`` is the source's side of a comparison: its rows are read, cast as the target's, and hashed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.postgres.reading.chunks import Chunk
from penstock.sinks.verifying import Columns, Figures, Key, Row, SourceRows, figures_of, no_figures

_FROM_TEXT = {"BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "UUID", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "VARCHAR"}
_EQUAL_BEYOND_TEXT = ("FLOAT", "DOUBLE", "INTERVAL")


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
