"""How rows are hashed and written as text by DuckDB, the same for both sides of a comparison.

Two values are equal if Postgres would write them alike. DuckDB's own equality is wider: it takes 0 for -0, and a month for
30 days. So those types are compared by their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.changes import Column
from penstock.pgoutput.types import Unrepresentable
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.duckdb_types import duckdb_type

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
