"""The rows of a table that an import has filled, added to one that stays, without just those that it refuses.

Inside the caller's transaction: all at once, as a rule. Where that is refused, by pages of the filled table: what is refused
is halved, down to single rows, and what goes in is followed by twice as much. So a few bad rows cost a second or third pass
over the table, not one attempt for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import psycopg
from psycopg import sql

from penstock.changes.batch import Column, Relation
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.sinks.postgres.bisect import RefusedRow
from penstock.sinks.postgres.filled import add_rows
from penstock.sinks.postgres.refusals import Refusal, is_of_a_row, refusal_of
from penstock.sinks.postgres.rows import RowChange
from penstock.sinks.postgres.target import Target, as_written

# A row that is referred to may come with an import that ends later: those are not for a row to be set aside for.
_FOREIGN_KEY = {"23001", "23503"}
_ALL = sql.SQL("true")

T = TypeVar("T")


class Filler:
    """``at``: as of when the rows are. ``enough`` is told each row that is refused and the number of all, and may raise."""

    def __init__(
        self, connection: Connection, relation: Relation, at: LSN, enough: Callable[[RefusedRow, int], None]
    ) -> None:
        self._connection, self._relation, self._at, self._enough = connection, relation, at, enough
        self.refused: list[RefusedRow] = []

    def add(self, source: tuple[str, str], target: Target, filled: Target) -> None:
        """All rows but those that are then in ``refused``. ``source``: what the table is called there now."""
        if self._attempt(target, filled, _ALL) is None:
            return
        relation = self._described(filled, source)
        self._halve(range(self._pages(filled)), lambda pages: self._try_pages(target, filled, relation, pages))

    def _try_pages(self, target: Target, filled: Target, relation: Relation, pages: Sequence[int]) -> bool:
        which = sql.SQL("ctid >= {} AND ctid < {}").format(_place(pages[0]), _place(pages[-1] + 1))
        if self._attempt(target, filled, which) is None:
            return True
        if len(pages) == 1:
            found = self._connection.execute(sql.SQL("SELECT ctid::text FROM {} WHERE {}").format(filled.name, which))
            rows = [place for (place,) in found]
            self._halve(rows, lambda some: self._try_rows(target, filled, relation, some))
            return True
        return False

    def _try_rows(self, target: Target, filled: Target, relation: Relation, rows: Sequence[str]) -> bool:
        refusal = self._attempt(target, filled, sql.SQL("ctid = ANY ({}::tid[])").format(sql.Literal(list(rows))))
        if refusal is None:
            return True
        if len(rows) == 1:
            self.refused.append(RefusedRow(self._read(filled, relation, rows[0]), refusal))
            self._enough(self.refused[-1], len(self.refused))
            return True
        return False

    def _halve(self, all_of_them: Sequence[T], try_some: Callable[[Sequence[T]], bool]) -> None:
        """Until all were tried, and each that was refused was so alone."""
        at, size, bad = 0, len(all_of_them), 0  # among those from ``at`` to ``bad`` there is one that is refused
        while at < len(all_of_them):
            some = all_of_them[at : at + size]
            if try_some(some):
                at += len(some)
                size = max(1, (bad - at) // 2) if at < bad else 2 * size
            else:
                bad, size = at + len(some), len(some) // 2

    def _attempt(self, target: Target, filled: Target, which: sql.Composable) -> Refusal | None:
        try:
            with self._connection.transaction():
                add_rows(self._connection, target, filled, which)
                self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not is_of_a_row(error) or error.sqlstate in _FOREIGN_KEY:
                raise
            return refusal_of(error)
        return None

    def _pages(self, filled: Target) -> int:
        row = self._connection.execute(
            "SELECT pg_relation_size(%s::oid) / current_setting('block_size')::bigint", [filled.oid]
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _described(self, filled: Target, source: tuple[str, str]) -> Relation:
        """The source's table as the filled one has it: it may have been altered and renamed while it was copied."""
        known = self._relation.columns_by_name
        columns = tuple(
            known.get(column.name) or Column(column.name, 0, column.type, "other")
            for column in filled.columns
            if not column.generated
        )
        return replace(self._relation, schema=source[0], table=source[1], columns=columns)

    def _read(self, filled: Target, relation: Relation, place: str) -> RowChange:
        values = sql.SQL(", ").join(as_written(column.name) for column in relation.columns)
        found = self._connection.execute(
            sql.SQL("SELECT {} FROM {} t WHERE ctid = {}::tid").format(values, filled.name, sql.Literal(place))
        ).fetchone()
        assert found is not None
        row = dict(zip((column.name for column in relation.columns), found, strict=True))
        return RowChange(relation, "insert", {name: row[name] for name in relation.key}, row, self._at, 0)


def _place(page: int) -> sql.Composed:
    return sql.SQL("{}::tid").format(sql.Literal(f"({page},0)"))
