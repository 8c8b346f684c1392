"""Imports into a DuckDB file: each fills a table of its own, a shadow, which then takes the target's place in one step.

The shadow is called ``<table>__import_<job>`` and stands beside the target, where DuckDB can rename it. No change of the
stream touches it: ``penstock.tables`` does not know it, ``penstock.imports_under_way`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from penstock.changelog.admission import Ready
from penstock.changes.batch import Relation
from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Imported, ImportPart, UnderWay
from penstock.sinks.duckdb.changes import apply_to_shadow
from penstock.sinks.duckdb.existing_rows import DeletedKeys
from penstock.sinks.duckdb.file import CATALOG
from penstock.sinks.duckdb.records import IMPORTS
from penstock.sinks.duckdb.staging import StagedChanges
from penstock.sinks.duckdb.tables import Source, Tables
from penstock.sinks.duckdb.target import NO_COLUMNS, Target, dump_columns, enums_of, load_columns
from penstock.sinks.mirror.owner import Owner

_READY = f"{CATALOG}.penstock.imports"
_UNDER_WAY = f"{CATALOG}.penstock.imports_under_way"
_PARTS = f"{CATALOG}.penstock.import_parts"
_OURS = "pipeline = ? AND sink = ?"


@dataclass(frozen=True)
class _Filling:
    """An import under way."""

    job: int
    oid: int
    source: Source  # as the table was called in the latest of its changes
    shadow: Target
    replayed: LSN | None = None


class Imports:
    """The imports of one sink, inside the caller's transaction. Records of another subscription mean nothing."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, owner: Owner, source: str, subscription: str) -> None:
        self._connection, self._owner, self._source = connection, owner, source
        self._subscription = subscription
        connection.execute(IMPORTS)

    def recorded(self) -> Imported:
        """Under the subscription that they were made under; there is never more than one."""
        ready = self._query(f"SELECT subscription, oid, job, lsn FROM {_READY} WHERE {_OURS}")
        under_way = self._query(f"SELECT subscription, job, replayed FROM {_UNDER_WAY} WHERE {_OURS}")
        parts: dict[int, set[int]] = {job: set() for _, job, _ in under_way}
        for job, number in self._query(f"SELECT job, number FROM {_PARTS} WHERE {_OURS}"):
            parts[job].add(number)
        return Imported(
            next((row[0] for row in [*ready, *under_way]), ""),
            {oid: Ready(job, LSN.parse(lsn)) for _, oid, job, lsn in ready},
            {job: UnderWay(frozenset(parts[job]), _lsn(replayed)) for _, job, replayed in under_way},
        )

    def commit(self, part: ImportPart, staged: Sequence[StagedChanges], tables: Tables) -> None:
        """Each part once, however often it comes; the record of it is in the same transaction as what it does:

        0. An import that is complete, or was followed by a newer one that is, has nothing left to do.
        1. ``begin`` makes the shadow, and removes those of earlier imports of the table that did not come to an end.
        2. ``rows`` and ``changes`` go to the shadow, unless the record says that they are in it.
        3. ``end`` puts the shadow in the target's place, with rows that stay (``existing_rows.py``), and the table is
           ready.
        """
        if self._is_ready(part):
            return
        filling = self._filling(part.job)
        if part.phase == "begin":
            if filling is None:
                self._begin(part, tables)
            return
        if filling is None:
            raise SinkUnavailable(
                f"The DuckDB file has no record of import {part.job} of {part.relation.qualified_name}, which has begun: "
                "it was replaced while we were running.",
                "Delivery looks anew which imports the file holds.",
            )
        if part.phase == "rows":
            self._rows(part, filling, staged, tables)
        elif part.phase == "changes":
            self._changes(part, filling, staged, tables)
        else:
            self._end(part, filling, tables)

    def _begin(self, part: ImportPart, tables: Tables) -> None:
        self._remove_leftovers(part.oid)
        relation = part.relation
        shadow = tables.shadow(relation, part.job)
        self._record(_Filling(part.job, part.oid, (relation.schema, relation.table), shadow))

    def _rows(self, part: ImportPart, filling: _Filling, staged: Sequence[StagedChanges], tables: Tables) -> None:
        if self._query(f"SELECT 1 FROM {_PARTS} WHERE {_OURS} AND job = ? AND number = ?", part.job, part.number):
            return
        self._record(replace(self._applied(filling, staged, tables), source=filling.source))
        self._execute(f"INSERT INTO {_PARTS} VALUES (?, ?, ?, ?)", part.job, part.number)

    def _changes(self, part: ImportPart, filling: _Filling, staged: Sequence[StagedChanges], tables: Tables) -> None:
        assert part.upto is not None
        if filling.replayed is not None and part.upto <= filling.replayed:
            return
        filling = replace(self._applied(filling, staged, tables, part.settled), replayed=part.upto)
        self._record(filling)
        if tables.keeps_existing_rows:
            DeletedKeys(self._connection, filling.shadow).note(filling.shadow, staged)

    def _end(self, part: ImportPart, filling: _Filling, tables: Tables) -> None:
        assert part.upto is not None
        self._forget(part.job)
        filled = replace(filling.shadow, enums=enums_of(part.relation.columns), oid=part.relation.oid)
        if part.merged is not None and tables.has(part.relation.oid):
            tables.merge_in(part.relation, filled, part.merged, part.again)
        else:
            tables.swap_in(filling.source, filled, part.relation.key)
        DeletedKeys(self._connection, filling.shadow).drop()
        self._execute(f"DELETE FROM {_READY} WHERE {_OURS} AND oid = ?", filling.oid)
        self._execute(
            f"INSERT INTO {_READY} VALUES (?, ?, ?, ?, ?, ?, ?)",
            self._source, self._subscription, filling.oid, part.job, str(part.upto),
        )  # fmt: skip

    def _applied(
        self, filling: _Filling, staged: Sequence[StagedChanges], tables: Tables, settled: bool = False
    ) -> _Filling:
        """The import after these; the source's table may have been altered or renamed in between.

        Only changes tell of its name: rows may come later, under the name that it had when the import began.
        """

        def target_of(relation: Relation) -> Target:
            nonlocal filling
            shadow = tables.fitted_shadow(relation, filling.shadow)
            filling = replace(filling, source=(relation.schema, relation.table), shadow=shadow)
            return shadow

        apply_to_shadow(self._connection, target_of, staged, settled)
        return filling

    def _is_ready(self, part: ImportPart) -> bool:
        found = self._query(
            f"SELECT job FROM {_READY} WHERE {_OURS} AND oid = ? AND subscription = ?", part.oid, self._subscription
        )
        return any(job >= part.job for (job,) in found)

    def _filling(self, job: int) -> _Filling | None:
        found = self._query(
            f"SELECT oid, source_schema, source_table, target_schema, target_table, columns, replayed FROM {_UNDER_WAY} "
            f"WHERE {_OURS} AND job = ? AND subscription = ?", job, self._subscription,
        )  # fmt: skip
        if not found:
            return None
        oid, source_schema, source_table, schema, table, columns, replayed = found[0]
        known = load_columns(columns)
        shadow = Target(schema, table, known, oid, kept=() if known else (NO_COLUMNS,))
        return _Filling(job, oid, (source_schema, source_table), shadow, _lsn(replayed))

    def _record(self, filling: _Filling) -> None:
        shadow = filling.shadow
        self._execute(f"DELETE FROM {_UNDER_WAY} WHERE {_OURS} AND job = ?", filling.job)
        self._execute(
            f"INSERT INTO {_UNDER_WAY} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._source, self._subscription, filling.oid, filling.job, *filling.source,
            shadow.schema, shadow.table, dump_columns(shadow),
            str(filling.replayed) if filling.replayed is not None else None,
        )  # fmt: skip

    def _remove_leftovers(self, oid: int) -> None:
        """What another subscription recorded, and what imports of this table left that did not come to an end."""
        self._execute(f"DELETE FROM {_READY} WHERE {_OURS} AND subscription <> ?", self._subscription)
        left = self._query(
            f"SELECT job, target_schema, target_table FROM {_UNDER_WAY} WHERE {_OURS} AND (oid = ? OR subscription <> ?)",
            oid, self._subscription,
        )  # fmt: skip
        for job, schema, table in left:
            shadow = Target(schema, table, {}, oid)
            self._connection.execute(f"DROP TABLE IF EXISTS {shadow.sql}")
            DeletedKeys(self._connection, shadow).drop()
            self._forget(job)

    def _forget(self, job: int) -> None:
        self._execute(f"DELETE FROM {_UNDER_WAY} WHERE {_OURS} AND job = ?", job)
        self._execute(f"DELETE FROM {_PARTS} WHERE {_OURS} AND job = ?", job)

    def _query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Its first parameters are the owner's names."""
        return self._connection.execute(statement, [*self._owner, *values]).fetchall()

    def _execute(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, [*self._owner, *values])


def _lsn(text: str | None) -> LSN | None:
    return LSN.parse(text) if text is not None else None
