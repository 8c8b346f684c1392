"""An import into a table of the file that keeps rows of somebody else's: ``existing_rows: keep``.

While changes are replayed into the shadow, the keys of rows that they delete are noted in a table of their own, in the
transaction that records these changes. When the import ends, one table is made, in one transaction:

1. of the source's rows, with the values that the former table has for them in columns of its own,
2. and of the former table's rows whose key is neither among the source's nor among the noted ones.

So a row that the file has and the source has not stays, whoever put it there: see ``docs/sinks/duckdb.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from penstock.sinks.duckdb.file import CATALOG, quoted
from penstock.sinks.duckdb.target import Target
from penstock.sinks.mirror.typed_staging import StagedChanges


@dataclass(frozen=True)
class Former:
    """A table whose rows stay. ``columns``: by the source's names, those that the source has; ``others``: all the rest."""

    sql: str
    columns: Mapping[str, str]
    others: Sequence[str]

    @classmethod
    def of(cls, target: Target) -> Former:
        return cls(target.sql, {source: name for source, (name, _) in target.columns.items()}, target.kept)

    @classmethod
    def found(cls, connection: duckdb.DuckDBPyConnection, filled: Target, schema: str, table: str) -> Former:
        """One that somebody else made. DuckDB's names do not tell capitals apart."""
        rows = connection.execute(
            "SELECT column_name FROM duckdb_columns() WHERE database_name = ? AND lower(schema_name) = lower(?) "
            "AND lower(table_name) = lower(?) ORDER BY column_index",
            [CATALOG, schema, table],
        ).fetchall()
        names = {name.lower(): name for (name,) in rows}
        columns = {
            source: names.pop(name.lower()) for source, (name, _) in filled.columns.items() if name.lower() in names
        }
        return cls(f"{CATALOG}.{quoted(schema)}.{quoted(table)}", columns, list(names.values()))


class DeletedKeys:
    """Of one import, beside the table that it fills. A row of NULLs stands for all, by TRUNCATE."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, shadow: Target) -> None:
        self._connection = connection
        self._target = replace(shadow, table=f"{shadow.table}__deleted")
        self._sql = self._target.sql

    def note(self, shadow: Target, staged: Iterable[StagedChanges]) -> None:
        for change in staged:
            key = change.relation.key
            if not key or not (change.deletes or change.truncated_at):
                continue
            definition = ", ".join(f"k{place} {shadow.columns[name][1]}" for place, name in enumerate(key))
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._sql} ({definition})")
            if change.truncated_at is not None:
                self._connection.execute(f"INSERT INTO {self._sql} (k0) VALUES (NULL)")
            if change.deletes:
                staged_keys = change.deletes.open()  # noqa: F841  # DuckDB looks among the variables
                columns = ", ".join(f"c{index}" for index in change.relation.key_indexes)
                self._connection.execute(f"INSERT INTO {self._sql} SELECT {columns} FROM staged_keys")

    def stay(self, key: Sequence[str]) -> str:
        """A condition on rows ``o`` of the former table, whose key has these names there."""
        if not self._exists():
            return "true"
        same = " AND ".join(f"d.k{place} = o.{quoted(name)}" for place, name in enumerate(key))
        return f"NOT EXISTS (SELECT 1 FROM {self._sql} d WHERE d.k0 IS NULL OR ({same}))"

    def drop(self) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {self._sql}")

    def _exists(self) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
            [CATALOG, self._target.schema, self._target.table],
        ).fetchall()
        return bool(found)


def combined(
    connection: duckdb.DuckDBPyConnection, filled: Target, former: Former, key: Sequence[str], deleted: DeletedKeys
) -> Target:
    """A table of both, in place of the filled one; both of them go."""
    ours, theirs = [], []
    for source, (name, kind) in filled.columns.items():
        there = former.columns.get(source)
        ours.append(f"f.{quoted(name)}")
        value = f"o.{quoted(there)}" if there is not None else "NULL"
        theirs.append(f"CAST({value} AS {kind}) AS {quoted(name)}")
    others = [f"o.{quoted(name)}" for name in former.others]
    pairs = [(quoted(filled.columns[name][0]), quoted(former.columns[name])) for name in key]
    same = " AND ".join(f"f.{left} = o.{right}" for left, right in pairs)
    once = f"(SELECT DISTINCT ON ({', '.join(right for _, right in pairs)}) * FROM {former.sql})"
    target = replace(filled, table=f"{filled.table}__combined", kept=tuple(former.others), shared=True)
    connection.execute(
        f"CREATE TABLE {target.sql} AS "
        f"SELECT {', '.join([*ours, *others])} FROM {filled.sql} f LEFT JOIN {once} o ON {same} UNION ALL "
        f"SELECT {', '.join([*theirs, *others])} FROM {former.sql} o "
        f"WHERE NOT EXISTS (SELECT 1 FROM {filled.sql} f WHERE {same}) AND {deleted.stay([former.columns[n] for n in key])}"
    )
    for table in (filled.sql, former.sql):
        connection.execute(f"DROP TABLE {table}")
    return target


def taken_over(
    connection: duckdb.DuckDBPyConnection, filled: Target, target: Target, key: Sequence[str], deleted: DeletedKeys
) -> Target:
    """The table that somebody else made makes way for the filled one; by ``key``, its rows stay."""
    former = Former.found(connection, filled, target.schema, target.table)
    if key:
        return combined(connection, filled, former, key, deleted)
    connection.execute(f"DROP TABLE {former.sql}")
    return filled
