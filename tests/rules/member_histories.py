"""Random histories of a table of members in which rows often cross a filter. Only ``bio`` is long enough to be held back."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.changes.batch import Relation
from penstock.testing.change_batches import UNCHANGED, relation
from tests.table_histories import History, Row, Rows

_COLUMNS = {"id": "int4", "grade": "int4", "bio": "text"}
BY_KEY = relation("public", "members", _COLUMNS, key=("id",))
BY_INDEX = relation("public", "members", _COLUMNS, key=("id", "grade"), identity="i")
WHOLE = relation("public", "members", _COLUMNS, key=("id",), identity="f")
WITHOUT_KEY = relation("public", "members", _COLUMNS, identity="f")

_IDS = st.sampled_from(["1", "2", "3"])
_GRADES = st.sampled_from(["1", "2", None])
_BIOS = st.sampled_from(["a" * 30, "b" * 30, None])

CONDITIONS = [
    {"column": "grade", "eq": 1}, {"column": "grade", "is_null": True}, {"not": {"column": "grade", "lt": 2}},
    {"column": "id", "lt": 2}, {"any": [{"column": "id", "eq": 3}, {"column": "grade", "eq": 2}]},
    {"all": [{"column": "id", "gt": 1}, {"column": "grade", "is_null": False}]}, {"column": "bio", "is_null": False},
    {"column": "bio", "starts_with": "a"}, {"any": [{"column": "bio", "contains": "b"}, {"column": "grade", "eq": 1}]},
    {"column": "bio", "ne": "short"},
]  # fmt: skip


@st.composite
def member_histories(draw: st.DrawFn, table: Relation) -> History:
    state: Rows = []
    for _ in range(draw(st.integers(0, 3))):
        _insert(draw, table, state)
    start = list(state)
    changes: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, 8))):
        step = draw(st.sampled_from([_insert, _update, _update, _update, _delete, _truncate]))
        change = step(draw, table, state)
        if change is not None:
            changes.append(change)
    return History(table, start, changes, state)


def _key(table: Relation, row: Row) -> tuple[str | None, ...]:
    return tuple(row[name] for name in table.key)


def _grade(draw: st.DrawFn, table: Relation) -> str | None:
    return draw(_GRADES.filter(lambda grade: grade is not None) if "grade" in table.key else _GRADES)


def _taken(table: Relation, state: Rows, row: Row) -> bool:
    return bool(table.key) and _key(table, row) in [_key(table, other) for other in state]


def _insert(draw: st.DrawFn, table: Relation, state: Rows) -> tuple[Any, ...] | None:
    row: Row = {"id": draw(_IDS), "grade": _grade(draw, table), "bio": draw(_BIOS)}
    if _taken(table, state, row):
        return None
    state.append(row)
    return draw(st.sampled_from(["insert", "read"])), row


def _update(draw: st.DrawFn, table: Relation, state: Rows) -> tuple[Any, ...] | None:
    if not state:
        return None
    place = draw(st.integers(0, len(state) - 1))
    old = state[place]
    new: Row = {
        "id": draw(_IDS) if draw(st.integers(0, 3)) == 0 else old["id"],
        "grade": _grade(draw, table),
        "bio": draw(_BIOS) if draw(st.booleans()) else old["bio"],
    }
    if _key(table, new) != _key(table, old) and _taken(table, state, new):
        return None
    state[place] = new
    kept_back = new["bio"] is not None and new["bio"] == old["bio"]
    sent: dict[str, Any] = {**new, "bio": UNCHANGED} if kept_back else {**new}
    if table.identity == "f":
        return "update", sent, old
    moved = _key(table, old) != _key(table, new)
    return "update", sent, {name: old[name] for name in table.key} if moved else None


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
