"""Imports of tables that are written to meanwhile: what was read when, and what is replayed over it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from penstock.changes.batch import Relation
from penstock.testing.change_batches import UNCHANGED, changes
from tests.table_histories import KEYED, History, Row, Rows, histories

Key = tuple[str | None, ...]


@dataclass(frozen=True)
class ImportHistory:
    """An import of a table, begun after ``begin`` of its changes, and read until ``read`` of them were made.

    ``seen``: rows as they were at different times in between. A row whose key changed may be in there twice or not at
    all. ``seen_again``: as of ``read``, the rows that an update touched without bringing all of their values.
    """

    history: History
    begin: int
    read: int
    seen: Rows
    seen_again: Rows

    @property
    def table(self) -> Relation:
        return self.history.table

    @property
    def while_read(self) -> list[tuple[Any, ...]]:
        return self.history.changes[self.begin : self.read]

    @property
    def afterwards(self) -> list[tuple[Any, ...]]:
        return self.history.changes[self.read :]


@st.composite
def import_histories(draw: st.DrawFn, tables: tuple[Relation, ...] = KEYED) -> ImportHistory:
    history = draw(histories(tables))
    begin = draw(st.integers(0, history.length))
    read = draw(st.integers(begin, history.length))
    states = states_of(history)
    during = history.changes[begin:read]
    seen: Rows = []
    for key in sorted({key_of(history.table, row) for state in states for row in state}, key=repr):
        # Only a row that was changed meanwhile can be seen twice: it has moved.
        looks = draw(st.integers(1, 2)) if key in _touched(history.table, during) else 1
        for _ in range(looks):
            seen += _with_keys(history.table, states[draw(st.integers(begin, read))], {key})
    again = _with_keys(history.table, states[read], _partly_sent(history.table, during))
    return ImportHistory(history, begin, read, seen, again)


def states_of(history: History) -> list[Rows]:
    """The table before the first change, and after each of them."""
    states = [list(history.start)]
    for change in history.changes:
        states.append(_after(history.table, states[-1], change))
    return states


def _after(table: Relation, state: Rows, change: tuple[Any, ...]) -> Rows:
    op, new, old = (*change, None, None)[:3]
    if op == "truncate":
        return []
    if op in ("insert", "read"):
        return [*state, dict(new)]
    key = key_of(table, old or new)
    before = next(row for row in state if key_of(table, row) == key)
    others = [row for row in state if row is not before]
    if op == "delete":
        return others
    return [*others, {name: before[name] if value is UNCHANGED else value for name, value in new.items()}]


def key_of(table: Relation, row: Row) -> Key:
    return tuple(row[name] for name in table.key)


def _with_keys(table: Relation, rows: Rows, keys: set[Key]) -> Rows:
    return [row for row in rows if key_of(table, row) in keys]


def _touched(table: Relation, some: list[tuple[Any, ...]]) -> set[Key]:
    return {key_of(table, row) for change in some for row in change[1:] if row is not None}


def _partly_sent(table: Relation, some: list[tuple[Any, ...]]) -> set[Key]:
    """The keys of updates that kept back a value."""
    return {key_of(table, change[1]) for change in some if change[0] == "update" and UNCHANGED in change[1].values()}


def parts_of(table: Relation, some: list[tuple[Any, ...]], lsn: int, cuts: list[int]) -> list[Any]:
    """The changes in batches, cut at these places; commit LSNs count from ``lsn`` on, three changes to a commit."""
    places = sorted({0, len(some), *(cut % (len(some) + 1) for cut in cuts)})
    return [
        changes(
            table, some[a:b], lsn=[lsn + at // 3 for at in range(a, b)], sequence=[at % 3 + 1 for at in range(a, b)]
        )
        for a, b in pairwise(places)
    ]
