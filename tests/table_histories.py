"""Random histories of a table: where it starts, what happens to it as Postgres would send it, and where it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from penstock.changes.batch import Relation
from penstock.testing.change_batches import UNCHANGED, relation

Row = dict[str, str | None]
Rows = list[Row]

VALUES = st.sampled_from([None, "", "x", "y", "ünï", "NULL"])
KEYS = st.sampled_from(["1", "2", "3", "", "a b"])

SINGLE = relation("public", "single", id="text", note="text", bio="text", key=("id",))
COMPOSITE = relation("public", "composite", note="text", x="text", bio="text", y="text", key=("y", "x"))
FULL = relation("public", "whole", id="text", note="text", bio="text", key=("id",), identity="f")
WITHOUT_KEY = relation("public", "bag", note="text", bio="text", identity="f")
KEYED = (SINGLE, COMPOSITE, FULL)


@dataclass(frozen=True)
class History:
    table: Relation
    start: Rows
    changes: list[tuple[Any, ...]]  # as change_batches.changes() takes them
    end: Rows

    @property
    def length(self) -> int:
        return len(self.changes)


def bag(rows: Rows) -> Counter[tuple[tuple[str, str | None], ...]]:
    """Rows in a form that is equal for the same rows in any order."""
    return Counter(tuple(sorted(row.items())) for row in rows)


@st.composite
def histories(draw: st.DrawFn, tables: tuple[Relation, ...] = KEYED, longest: int = 14) -> History:
    table = draw(st.sampled_from(tables))
    state = _starting_rows(draw, table)
    start = list(state)
    changes: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(0, longest))):
        step = draw(
            st.sampled_from(["insert", "insert", "update", "update", "move", "move", "delete", "read", "truncate"])
        )
        change = _STEPS[step](draw, table, state)
        if change is not None:
            changes.append(change)
    return History(table, start, changes, state)


def _starting_rows(draw: st.DrawFn, table: Relation) -> Rows:
    rows: Rows = []
    for _ in range(draw(st.integers(0, 5))):
        row = _new_row(draw, table)
        if not table.key or _key(table, row) not in [_key(table, other) for other in rows]:
            rows.append(row)
    return rows


def _new_row(draw: st.DrawFn, table: Relation) -> Row:
    return {column.name: draw(KEYS if column.name in table.key else VALUES) for column in table.columns}


def _key(table: Relation, row: Row) -> tuple[str | None, ...]:
    return tuple(row[name] for name in table.key)


def _insert(draw: st.DrawFn, table: Relation, state: Rows, op: str = "insert") -> tuple[Any, ...] | None:
    row = _new_row(draw, table)
    if table.key and _key(table, row) in [_key(table, other) for other in state]:
        return None
    state.append(row)
    return op, row


def _read(draw: st.DrawFn, table: Relation, state: Rows) -> tuple[Any, ...] | None:
    return _insert(draw, table, state, "read")


def _update(draw: st.DrawFn, table: Relation, state: Rows, moves: bool = False) -> tuple[Any, ...] | None:
    if not state:
        return None
    place = draw(st.integers(0, len(state) - 1))
    old, new = state[place], dict(state[place])
    sent: dict[str, Any] = {}
    for column in table.columns:
        name = column.name
        changes = draw(st.booleans())
        if name in table.key:
            new[name] = draw(KEYS) if moves and changes else old[name]
            sent[name] = new[name]
        else:
            new[name] = draw(VALUES) if changes else old[name]
            kept_back = not changes and old[name] is not None and draw(st.booleans())
            sent[name] = UNCHANGED if kept_back else new[name]
    others = [_key(table, row) for at, row in enumerate(state) if at != place]
    if table.key and _key(table, new) in others:
        return None
    state[place] = new
    return "update", sent, _sent_of_old(draw, table, old, new)


def _move(draw: st.DrawFn, table: Relation, state: Rows) -> tuple[Any, ...] | None:
    return _update(draw, table, state, moves=True)


def _sent_of_old(draw: st.DrawFn, table: Relation, old: Row, new: Row) -> Row | None:
    if table.identity == "f":
        return old
    # Postgres sends the old key where it changed, and where it is kept apart by TOAST.
    same = _key(table, old) == _key(table, new)
    return None if same and draw(st.booleans()) else {name: old[name] for name in table.key}


def _delete(draw: st.DrawFn, table: Relation, state: Rows) -> tuple[Any, ...] | None:
    if not state:
        return None
    row = state.pop(draw(st.integers(0, len(state) - 1)))
    return "delete", None, row if table.identity == "f" else {name: row[name] for name in table.key}


def _truncate(draw: st.DrawFn, table: Relation, state: Rows) -> tuple[Any, ...] | None:
    if draw(st.integers(0, 2)):
        return None
    state.clear()
    return ("truncate",)


_STEPS = {
    "insert": _insert, "read": _read, "update": _update, "move": _move, "delete": _delete, "truncate": _truncate,
}  # fmt: skip
