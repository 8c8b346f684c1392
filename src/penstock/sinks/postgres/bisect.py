"""A batch that the target does not take as a whole, applied without just those rows that it refuses.

Inside the caller's transaction, table after table:

1. What goes in as a whole now (somebody may have altered a table meanwhile) is done; and then a table that does.
2. Otherwise its rows are halved until what is refused is a single row; what goes in stays, and is followed by twice as many.
   So a few bad rows cost a few attempts for each power of two, and many not much more than one each.
3. Rows may wait for unique values of each other. Those that were refused for such a value are tried together: old versions
   first out of the way, and without those that even so are refused.
4. When all tables are done, rows that others may have been the cause for (foreign keys, triggers) are tried again, until
   nothing more goes in.

What is left is refused whatever the order. Of two rows that exclude each other, the one that comes first goes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import psycopg

from penstock.changes.batch import Int64s, Relation
from penstock.errors import SinkRefused
from penstock.postgres.connection import Connection
from penstock.sinks.mirror.changes import missing_row, since_truncate
from penstock.sinks.postgres.changes import Applier, by_table
from penstock.sinks.postgres.kept import KeptValues, names_kept_of
from penstock.sinks.postgres.refusals import Refusal, RowRefused, is_of_a_row, refusal_of
from penstock.sinks.postgres.rows import KINDS, RowChange, Rows, key_line, mentioned
from penstock.sinks.postgres.staging import StagedChanges
from penstock.sinks.postgres.tables import Tables
from penstock.sinks.postgres.target import Target

_UNTIDY_ROWS = 1_000


@dataclass(frozen=True)
class RefusedRow:
    change: RowChange
    refusal: Refusal


@dataclass(frozen=True)
class _Waiting:
    """A row that was refused when ``after`` attempts had succeeded."""

    rows: Rows
    number: int
    target: Target
    refusal: Refusal
    after: int

    @property
    def place(self) -> tuple[int, int]:
        return id(self.rows), self.number

    @property
    def change(self) -> RowChange:
        return self.rows.at(self.number)


R = TypeVar("R", RefusedRow, _Waiting)


class _Undone(Exception):
    """Leaves an attempt."""


class Bisection:
    """``held``: the refused rows of a table that are known from before, by key. ``enough`` is told each row that is refused
    whatever else is written, or the number of all, and may raise."""

    def __init__(
        self,
        connection: Connection,
        applier: Applier,
        tables: Tables,
        held: Callable[[Relation], dict[str, RowChange]],
        enough: Callable[[RefusedRow, int], None],
    ) -> None:
        self._connection, self._applier, self._tables = connection, applier, tables
        self._held, self._enough = held, enough
        self._kept = KeptValues(connection, applier)
        self._successes = 0
        self._count = 0
        self._left = 0  # rows in temporary tables, of attempts that are over
        self._at_once = False  # constraints that are deferred are looked at after every attempt

    def apply(self, staged: Sequence[StagedChanges]) -> list[RefusedRow]:
        """All of it but the rows that are returned, in the order in which they were committed."""
        try:
            with self._applier.attempt():
                refused = self._applied(staged)
                self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:  # a constraint that is looked at in the end does not tell which row it was
            _require_of_a_row(error)
            self._tables.forget()
            self._at_once, self._count, self._successes = True, 0, 0
            return self._applied(staged)
        return refused

    def _applied(self, staged: Sequence[StagedChanges]) -> list[RefusedRow]:
        if self._goes_in_as_a_whole(staged):
            return []
        lacking: list[RefusedRow] = []
        waiting: list[_Waiting] = []
        for changes in by_table(staged):
            if not self._goes_in_as_a_whole(changes):
                self._apply_table(changes, waiting, lacking)
        self._try_again(waiting)
        found = [*lacking, *map(self._complete, waiting)]
        return sorted(found, key=lambda row: (row.change.lsn, row.change.sequence))

    def _goes_in_as_a_whole(self, changes: Sequence[StagedChanges]) -> bool:
        if any(names_kept_of(change, self._held(change.relation)) for change in changes if change.partly_kept):
            return False
        try:
            with self._applier.attempt():
                self._applier.apply(changes, self._tables.target)
                self._look_at_constraints()
        except (psycopg.Error, RowRefused) as error:
            _require_of_a_row(error)
            self._tables.forget()  # a table that was altered herein is as it was
            return False
        return True

    def _apply_table(self, changes: list[StagedChanges], waiting: list[_Waiting], lacking: list[RefusedRow]) -> None:
        held = self._held(changes[0].relation)
        truncated_at, changes = since_truncate(changes)
        if truncated_at is not None:
            nothing: dict[str, Any] = dict.fromkeys(KINDS)
            emptied = replace(changes[0], truncated_at=truncated_at, bare_rows=0, **nothing)
            self._applier.apply([emptied], self._tables.target)
            held = {}
        for relation, some in groupby(changes, key=lambda change: change.relation):
            target = self._tables.target(self._connection, relation)
            here: list[_Waiting] = []
            for change in some:
                _leave_out_earlier(change, here)
                _leave_out_earlier(change, waiting)
                _leave_out_earlier(change, lacking)
                lacking += self._apply_part(change, target, held, here)
            self._try_together(here, target)
            waiting += here

    def _apply_part(
        self, change: StagedChanges, target: Target, held: dict[str, RowChange], waiting: list[_Waiting]
    ) -> list[RefusedRow]:
        """Rows that are refused come to ``waiting``, and those whose values nobody has are returned."""
        if change.bare_rows:  # one is like another: all of them go in, or the sink stops
            self._applier.apply([replace(change, truncated_at=None)], lambda _connection, _relation: target)
            return []
        settled, missing = self._kept.settled(change, target, held)
        rows = Rows(settled)
        self._attempt([rows.none()], target)  # the temporary tables that all attempts need are made once
        lacking = [_lacking(row) for row in missing]
        for row in lacking:
            self._tell(row)
        refused = self._tried(rows, np.arange(len(rows)), target, tell=True)
        for key in mentioned(change, held):
            del held[key]
        for row in [*map(self._complete, refused), *lacking]:
            if (line := key_line(row.change.key, change.relation)) is not None:
                held[line] = row.change
        waiting += refused
        return lacking

    def _tell(self, row: RefusedRow) -> None:
        self._count += 1
        self._enough(row, self._count)

    def _tried(self, rows: Rows, numbers: Int64s, target: Target, tell: bool = False) -> list[_Waiting]:
        """Applies these rows. What is refused is halved, and what goes in is followed by twice as many."""
        refused: list[_Waiting] = []
        at, size, bad = 0, len(numbers), 0  # among those from ``at`` to ``bad`` there is one that is refused
        while at < len(numbers):
            some = numbers[at : at + size]
            refusal = self._attempt([rows.some(some)], target)
            if refusal is None:
                self._successes += 1
                at += len(some)
                size = max(1, (bad - at) // 2) if at < bad else 2 * size
            elif len(some) > 1:
                bad = at + len(some)
                size = len(some) // 2
            else:
                refused.append(_Waiting(rows, int(some[0]), target, refusal, self._successes))
                if tell:
                    self._tell(self._complete(refused[-1]))
                at, bad = at + 1, 0
            self._tidy(len(some))
        return refused

    def _tidy(self, rows: int) -> None:
        self._left += rows
        if self._left > _UNTIDY_ROWS:
            self._applier.tidy()
            self._left = 0

    def _attempt(self, changes: list[StagedChanges], target: Target) -> Refusal | None:
        try:
            with self._applier.attempt():
                self._applier.apply(changes, lambda _connection, _relation: target)
                self._look_at_constraints()
        except (psycopg.Error, RowRefused) as error:
            _require_of_a_row(error)
            return refusal_of(error)
        return None

    def _look_at_constraints(self) -> None:
        if self._at_once:
            self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _try_together(self, waiting: list[_Waiting], target: Target) -> None:
        """Step 3. Whoever is refused although the others have made room is not for these to help."""
        together = [row for row in waiting if row.refusal.is_unique]
        if not together or not target.unique_besides(together[0].rows.relation.key):
            return
        while together:
            refused = self._make_room_and_try(together, target)
            if not refused:
                _leave_out(waiting, together)
                return
            _leave_out(together, refused)

    def _make_room_and_try(self, together: list[_Waiting], target: Target) -> list[_Waiting]:
        """Those that are refused: then it is as if nothing had been tried."""
        refused: list[_Waiting] = []
        before = self._successes
        try:
            with self._applier.attempt():
                for rows, numbers in _by_rows(together):
                    self._applier.clear(rows.some(numbers), target)
                for rows, numbers in _by_rows(together):
                    refused += self._tried(rows, numbers, target)
                if refused:
                    raise _Undone
        except _Undone:
            self._successes = before
        except (psycopg.Error, RowRefused) as error:
            _require_of_a_row(error)
            self._successes = before
            return together
        return refused

    def _try_again(self, waiting: list[_Waiting]) -> None:
        """Step 4."""
        while again := [row for row in waiting if row.refusal.may_pass and row.after < self._successes]:
            _leave_out(waiting, again)
            for rows, numbers in _by_rows(again):
                target = next(row.target for row in again if row.rows is rows)
                waiting += self._tried(rows, numbers, target)

    def _complete(self, row: _Waiting) -> RefusedRow:
        return RefusedRow(self._kept.completed(row.change, row.target), row.refusal.about(row.rows.relation))


@dataclass(frozen=True)
class Tolerance:
    """What a sink does about refused rows: it stops, or sets up to so many of a batch aside."""

    sink: str
    stops: bool
    most: int

    def enough(self, row: RefusedRow, count: int, before: SinkRefused | None = None) -> None:
        """Raises at a row that need not be followed by others to be one too many."""
        if self.stops and (count > self.most or not row.refusal.may_pass):
            raise stopped_by(self.sink, row, before)
        if count > self.most:
            raise too_many(self.sink, row, self.most)

    def settle(self, refused: Sequence[RefusedRow], before: SinkRefused | None = None) -> None:
        """Raises if there is one that the sink does not go on without."""
        if refused and self.stops:
            raise stopped_by(self.sink, refused[0], before)


def too_many(sink: str, row: RefusedRow, most: int) -> SinkRefused:
    return SinkRefused(
        f"Sink {sink}: the target refuses more than {most:,} rows of one batch, more than `dead_letters.max` allows. One of "
        f"them is the {row.change}, committed at {row.change.lsn}: {row.refusal.reason}.",
        "That many look like a mistake in the target. Mend its table, or raise `dead_letters.max` on the sink; then start "
        "again: nothing was skipped.",
    )


def stopped_by(sink: str, row: RefusedRow, before: SinkRefused | None) -> RowRefused:
    """``before``: what the target said to the whole batch; if it was the same, that has the better advice."""
    refusal = row.refusal
    same = isinstance(before, RowRefused) and before.refusal.sqlstate == refusal.sqlstate
    advice = before.advice if before is not None and same else refusal.advice
    constraint = f" (constraint {refusal.constraint})" if refusal.constraint else ""
    what = f"the {row.change}, committed at {row.change.lsn}"
    mend = advice or "Mend the row in the source and the target's table until they fit."
    return RowRefused(
        f"Sink {sink}: the target refuses {what}: {refusal.reason}{constraint}.",
        f"{mend} Then start again: nothing was skipped. Or set `on_error: dead_letter` to go on without such rows.",
        refusal,
    )


def _require_of_a_row(error: psycopg.Error | RowRefused) -> None:
    if isinstance(error, psycopg.Error) and not is_of_a_row(error):
        raise error


def _lacking(row: RowChange) -> RefusedRow:
    columns = [index for index, column in enumerate(row.relation.columns) if column.name in row.unchanged]
    return RefusedRow(row, RowRefused(*missing_row(row.relation, list(row.key.values()), columns)).refusal)


def _leave_out_earlier(change: StagedChanges, refused: list[R]) -> None:
    """Whatever becomes of the rows of this change, an earlier version of one must not come after it."""
    relation = change.relation
    lines = [key_line(r.change.key, relation) if r.change.relation.oid == relation.oid else None for r in refused]
    gone = mentioned(change, {line for line in lines if line is not None})
    refused[:] = [row for row, line in zip(refused, lines, strict=True) if line not in gone]


def _by_rows(waiting: Iterable[_Waiting]) -> list[tuple[Rows, Int64s]]:
    numbers: dict[int, list[int]] = {}
    rows = {}
    for row in waiting:
        rows[id(row.rows)] = row.rows
        numbers.setdefault(id(row.rows), []).append(row.number)
    return [(rows[key], np.array(sorted(found))) for key, found in numbers.items()]


def _leave_out(waiting: list[_Waiting], others: list[_Waiting]) -> None:
    places = {row.place for row in others}
    waiting[:] = [row for row in waiting if row.place not in places]
