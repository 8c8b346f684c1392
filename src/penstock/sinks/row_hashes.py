"""Rows hashed and written as text by an in-memory DuckDB, the same way for both sides of a comparison.

Two values are equal if Postgres would write them alike. DuckDB's own equality is wider: it takes 0 for -0, and a month for
30 days. So those types are compared by their text.

``HashedSource`` is the source's side of a comparison: its rows are read, cast as the target's, and hashed here.
``HashedPair`` compares it with a target whose rows are hashed in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.postgres.reading.chunks import Chunk
from penstock.sinks.verifying import Columns, Expected, Figures, Key, Row, SourceRows, figures_of, no_figures

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
        for part in self._results(chunk, self.hashed.figures(BATCH, buckets)):
            figures += figures_of(part, buckets)
        return figures

    def keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        parts = list(self._results(chunk, self.hashed.keys(BATCH, buckets, wanted)))
        return pa.concat_tables(parts) if parts else self.hashed.no_keys()

    def with_keys(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        """Of rows that share a key, the first two."""
        query = self.hashed.texts(BATCH, among="keys", also="version", most=_ROWS_PER_KEY)
        rows: list[tuple[Key, str, Row]] = []
        count: Counter[Key] = Counter()
        with engine() as here, closing(self.rows.with_keys(keys)) as pieces:
            here.register("keys", key_table(keys))
            for columns, versions in pieces:
                here.register(BATCH, self._table(columns).append_column("version", versions))
                for *row, version in here.execute(query).fetchall():
                    key = tuple(row[index] for index in self.hashed.key)
                    count[key] += 1
                    if count[key] <= _ROWS_PER_KEY:
                        rows.append((key, str(version), tuple(row)))
                here.unregister(BATCH)
        return rows

    def _results(self, chunk: Chunk, query: str) -> Iterator[pa.Table]:
        with closing(self.rows.chunk(chunk)) as pieces:
            yield from results(map(self._table, pieces), query)

    def _table(self, columns: Columns) -> pa.Table:
        return pa.table(list(self.cast(columns)), names=self.hashed.columns)


class HashedPair:
    """A ``TablePair`` of which both sides are hashed by DuckDB. The sink's own class reads the target's rows: it sets
    ``_source`` and ``_target_hashes``, and has ``_target_results`` and ``target_rows``."""

    _source: HashedSource
    _target_hashes: HashedRows

    def __init__(self, expected: Expected) -> None:
        relation = self._relation = expected.rows.relation
        self.hidden = expected.transformed
        self.columns = tuple(column.name for column in relation.columns)
        self.key = relation.key or self.columns
        self._key_indexes = [self.columns.index(name) for name in self.key]

    def _target_results(self, query: Callable[[str], str]) -> Iterator[pa.Table]:
        """What a query gives over each part of the target's rows; ``query`` is given the part as SQL."""
        raise NotImplementedError

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]:
        raise NotImplementedError

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        return self._source.figures(chunk, buckets)

    def target_figures(self, buckets: int) -> Figures:
        figures = no_figures(buckets)
        for part in self._target_results(lambda rows: self._target_hashes.figures(rows, buckets)):
            figures += figures_of(part, buckets)
        return figures

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        return self._source.keys(chunk, buckets, wanted)

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table:
        parts = list(self._target_results(lambda rows: self._target_hashes.keys(rows, buckets, wanted)))
        return pa.concat_tables(parts) if parts else self._target_hashes.no_keys()

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        return self._source.with_keys(keys)


BATCH = "batch"  # what the rows at hand are called in a query of ``results``


def results(pieces: Iterable[pa.Table], query: str) -> Iterator[pa.Table]:
    """What a query over ``BATCH`` gives for each piece of some rows."""
    with engine() as here:
        for rows in pieces:
            here.register(BATCH, rows)
            yield arrow(here, query)
            here.unregister(BATCH)


def engine() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "memory_limit": "1GB", "threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def arrow(engine: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return engine.sql(query).to_arrow_table()


def key_table(keys: Sequence[Key]) -> pa.Table:
    """Columns k0, k1, …"""
    texts = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    return pa.table(texts, names=[f"k{index}" for index in range(len(texts))])
