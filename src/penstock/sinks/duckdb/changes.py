"""Staged changes, applied to the tables of a DuckDB file by SQL, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import duckdb
import pyarrow as pa

from penstock.changes.batch import Relation
from penstock.errors import SinkRefused
from penstock.sinks.duckdb.file import quoted
from penstock.sinks.duckdb.tables import Tables
from penstock.sinks.duckdb.target import Target
from penstock.sinks.duckdb.types import duckdb_type, text
from penstock.sinks.mirror.changes import last_at, missing_row, since_truncate
from penstock.sinks.mirror.typed_staging import StagedChanges
from penstock.sinks.staging import Staged

_COARSELY_EQUAL = {"FLOAT", "DOUBLE", "INTERVAL"}


def apply(connection: duckdb.DuckDBPyConnection, tables: Tables, staged: Sequence[StagedChanges]) -> None:
    """All changes of a batch, table by table, each table's in order."""
    groups = _by_table(staged)
    if tables.has_passed_on([group[0].relation for group in groups]):
        groups.sort(key=last_at)  # the order in which names have passed from one table to another
    for changes in groups:
        _apply_table(connection, tables.target, changes, _fill_kept)


def apply_to_shadow(
    connection: duckdb.DuckDBPyConnection,
    target_of: Callable[[Relation], Target],
    staged: Sequence[StagedChanges],
    settled: bool = False,
) -> None:
    """Rows and changes of an import; all are of one table, whatever it was called at the time. ``settled``: all its rows are
    there."""
    for changes in sorted(_by_table(staged), key=last_at):
        _apply_table(connection, target_of, changes, _fill_kept if settled else _fill_kept_where_known)


def _by_table(staged: Sequence[StagedChanges]) -> list[list[StagedChanges]]:
    """The changes of each table under each of its names."""
    by_table = sorted(staged, key=_table_and_oid)  # stable: order within a table stays
    return [list(members) for _, members in groupby(by_table, key=_table_and_oid)]


def _table_and_oid(changes: StagedChanges) -> tuple[tuple[str, ...], int]:
    return _table_of(changes), changes.relation.oid


def _table_of(changes: StagedChanges) -> tuple[str, ...]:
    """Small letters first: of ``orders`` and ``Orders`` that come together, ``orders`` keeps its name."""
    schema, table = changes.relation.schema, changes.relation.table
    return schema.swapcase(), table.swapcase(), schema, table


_Fill = Callable[[duckdb.DuckDBPyConnection, Target, Sequence[str], StagedChanges], pa.Table]


def _apply_table(
    connection: duckdb.DuckDBPyConnection,
    target_of: Callable[[Relation], Target],
    changes: list[StagedChanges],
    fill_kept: _Fill,
) -> None:
    truncated_at, changes = since_truncate(changes)
    if truncated_at is not None:
        connection.execute(f"DELETE FROM {target_of(changes[0].relation).sql}")
    for (relation, only_inserts), some in groupby(changes, key=lambda change: (change.relation, change.only_inserts)):
        target = target_of(relation)
        if only_inserts and not (target.shared and relation.key):
            # At once: DuckDB compresses rows by the hundred thousand.
            inserts = [_opened(connection, target, change, change.inserts) for change in some if change.inserts]
            _insert(connection, target, relation, pa.concat_tables(inserts) if inserts else None)
        else:
            for change in some:
                _apply_one(connection, target, change, fill_kept)


def _apply_one(connection: duckdb.DuckDBPyConnection, target: Target, change: StagedChanges, fill_kept: _Fill) -> None:
    if change.bare_rows:
        _apply_bare_rows(connection, target, change.bare_rows)
        return
    names = _names(target, change.relation)
    filled = fill_kept(connection, target, names, change) if change.partly_kept else None
    inserts = _with_values_of_kept(connection, target, names, change) if change.inserts else None
    if change.deletes:
        same = " AND ".join(f"t.{names[index]} = s.c{index}" for index in change.relation.key_indexes)
        _with_rows(
            connection,
            _opened(connection, target, change, change.deletes),
            f"DELETE FROM {target.sql} t USING staged s WHERE {same}",
        )
    if target.shared and change.inserts and change.relation.key:  # a row of somebody else's may have the key
        same = " AND ".join(f"t.{names[index]} = s.c{index}" for index in change.relation.key_indexes)
        _with_rows(
            connection,
            _opened(connection, target, change, change.inserts),
            f"DELETE FROM {target.sql} t USING staged s WHERE {same}",
        )
    if change.removed:
        _remove_equal_rows(connection, target, names, _opened(connection, target, change, change.removed))
    for rows in (inserts, filled):
        _insert(connection, target, change.relation, rows)


def _apply_bare_rows(connection: duckdb.DuckDBPyConnection, target: Target, count: int) -> None:
    """Of a table without columns, one row is like another. In the file it has a column that is none of the source's."""
    if count > 0:
        connection.execute(f"INSERT INTO {target.sql} ({quoted(target.kept[0])}) SELECT NULL FROM range({count})")
    else:
        rows = f"SELECT rowid FROM {target.sql} LIMIT {-count}"
        connection.execute(f"DELETE FROM {target.sql} WHERE rowid IN ({rows})")


def _opened(connection: duckdb.DuckDBPyConnection, target: Target, change: StagedChanges, staged: Staged) -> pa.Table:
    """The rows; lists as text where the column is text here, having met arrays that are no lists."""
    rows = staged.open()
    kinds = {
        f"{prefix}{index}": duckdb_type(column, "error")
        for index, column in enumerate(change.relation.columns)
        for prefix in ("c", "k")
        if target.columns[column.name][1] == "VARCHAR"
    }
    lists = {name: kind for name, kind in kinds.items() if name in rows.column_names
             and pa.types.is_list(rows.schema.field(name).type)}  # fmt: skip
    if not lists:
        return rows
    written = ", ".join(f"{text(name, kind)} AS {name}" for name, kind in lists.items())
    connection.register("staged_lists", rows)
    try:
        return connection.sql(f"SELECT * REPLACE ({written}) FROM staged_lists").to_arrow_table()
    finally:
        connection.unregister("staged_lists")


def _insert(connection: duckdb.DuckDBPyConnection, target: Target, relation: Relation, rows: pa.Table | None) -> None:
    if rows is not None:
        names = [
            *_names(target, relation),
            *(quoted(name) for name in target.kept if f"kept {name}" in rows.column_names),
        ]
        columns = ", ".join(map(quoted, rows.column_names))
        _with_rows(connection, rows, f"INSERT INTO {target.sql} ({', '.join(names)}) SELECT {columns} FROM staged")


def _with_values_of_kept(
    connection: duckdb.DuckDBPyConnection, target: Target, names: Sequence[str], change: StagedChanges
) -> pa.Table:
    """New versions of rows, with what the target's row has in columns that the source has no more; read before anything is
    deleted."""
    assert change.inserts is not None
    rows, key = _opened(connection, target, change, change.inserts), change.relation.key_indexes
    if not target.kept or not key:
        return rows
    same = " AND ".join(f"t.{names[index]} = s.c{index}" for index in key)
    connection.register("staged", rows)
    try:
        query = f"SELECT s.*{_values_of_kept(target)} FROM staged s LEFT JOIN {target.sql} t ON {same}"
        return connection.sql(query).to_arrow_table()
    finally:
        connection.unregister("staged")


def _values_of_kept(target: Target) -> str:
    return "".join(f", t.{quoted(name)} AS {quoted(f'kept {name}')}" for name in target.kept)


def _names(target: Target, relation: Relation) -> list[str]:
    return [quoted(target.columns[column.name][0]) for column in relation.columns]


def _with_rows(connection: duckdb.DuckDBPyConnection, staged: pa.Table, statement: str) -> None:
    """``staged`` is what the statement says it is: DuckDB looks among the caller's variables. A view of it, made and dropped
    for each of a hundred tables, takes as long as the statements do."""
    connection.execute(statement)


def _fill_kept(
    connection: duckdb.DuckDBPyConnection, target: Target, names: Sequence[str], change: StagedChanges
) -> pa.Table:
    """The partly kept rows with the values that the target has, read before anything is deleted."""
    assert change.partly_kept is not None
    rows = _opened(connection, target, change, change.partly_kept)
    joined = f"FROM staged s LEFT JOIN {target.sql} t ON {_same_as_kept(names, change)}"
    connection.register("staged", rows)
    try:
        looked_for = ", ".join(f"s.k{index}::VARCHAR" for index in change.relation.key_indexes)
        missing = connection.execute(f"SELECT {looked_for} {joined} WHERE t.rowid IS NULL LIMIT 1").fetchall()
        if missing:
            marked = [index for index in range(len(names)) if f"u{index}" in rows.column_names]
            raise SinkRefused(*missing_row(change.relation, missing[0], marked))
        values = _filled_values(names, rows) + _values_of_kept(target)
        return connection.sql(f"SELECT {values} {joined}").to_arrow_table()
    finally:
        connection.unregister("staged")


def _fill_kept_where_known(
    connection: duckdb.DuckDBPyConnection, target: Target, names: Sequence[str], change: StagedChanges
) -> pa.Table:
    """The same while a table is being filled, from rows that were read at different times.

    Where the row is not there under the key that it had, the one with its present key is: it was read after its key had
    changed. Where neither is, it moved while the table was read; then somebody reads it again, unless a later change
    removes it. A row that was seen twice has the same values in both, or a change in between sets them.
    """
    assert change.partly_kept is not None
    rows = _opened(connection, target, change, change.partly_kept)
    key = change.relation.key_indexes
    own_key = ", ".join(f"s.c{index}" for index in key)
    under_own_key = ", ".join(f"c{index} AS k{index}" for index in key)
    connection.register("staged", rows)
    try:
        return connection.sql(
            f"SELECT {_filled_values(names, rows)} "
            f"FROM (SELECT *, 1 AS look FROM staged UNION ALL SELECT * REPLACE ({under_own_key}), 2 FROM staged) s "
            f"JOIN {target.sql} t ON {_same_as_kept(names, change)} "
            f"QUALIFY row_number() OVER (PARTITION BY {own_key} ORDER BY s.look, t.rowid) = 1"
        ).to_arrow_table()
    finally:
        connection.unregister("staged")


def _same_as_kept(names: Sequence[str], change: StagedChanges) -> str:
    return " AND ".join(f"t.{names[index]} = s.k{index}" for index in change.relation.key_indexes)


def _filled_values(names: Sequence[str], rows: pa.Table) -> str:
    marked = set(rows.column_names)
    return ", ".join(
        f"CASE WHEN s.u{index} THEN t.{name} ELSE s.c{index} END AS c{index}"
        if f"u{index}" in marked
        else f"s.c{index}"
        for index, name in enumerate(names)
    )


def _remove_equal_rows(
    connection: duckdb.DuckDBPyConnection, target: Target, names: Sequence[str], rows: pa.Table
) -> None:
    """Of n equal rows to remove, n equal rows of the target go, no matter which.

    DuckDB calls one month equal to 30 days, and 0 to -0; as text they are as different as in Postgres.
    """
    kinds = {quoted(name): kind for name, kind in target.columns.values()}
    compared = ["::VARCHAR" if kinds[name].rstrip("[]") in _COARSELY_EQUAL else "" for name in names]
    columns = ", ".join(f"c{index}" for index in range(len(names)))
    values = ", ".join(f"c{index}{cast} AS c{index}" for index, cast in enumerate(compared))
    same = " AND ".join(
        f"t.{name}{cast} IS NOT DISTINCT FROM s.c{index}"
        for index, (name, cast) in enumerate(zip(names, compared, strict=True))
    )
    _with_rows(
        connection, rows,
        f"""
        DELETE FROM {target.sql} WHERE rowid IN (
            SELECT row FROM (
                SELECT t.rowid AS row, s.copies, row_number() OVER (PARTITION BY {columns} ORDER BY t.rowid) AS copy
                FROM (SELECT {columns}, count(*) AS copies FROM (SELECT {values} FROM staged) GROUP BY ALL) s
                JOIN {target.sql} t ON {same}
            ) WHERE copy <= copies
        )
        """,
    )  # fmt: skip
