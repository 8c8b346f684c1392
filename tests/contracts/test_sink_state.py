"""Whatever was changed, the sink's state is the source's."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.changes.batch import Relation
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
PAIRS = relation("public", "pairs", a="int8", b="text", value="text", key=("a", "b"))
FULL = relation("public", "readings", sensor="text", value="text", identity="f")
NOTHING = relation("public", "log", line="text", identity="n")

ADA: Row = {"id": "1", "name": "Ada", "bio": "long"}
BOB: Row = {"id": "2", "name": "Bob", "bio": None}


def check(target: SinkUnderTest, table: Relation, *batches: list[tuple[Any, ...]], gives: list[Row]) -> None:
    """Delivers each list of changes as a batch of its own, and compares."""
    sink = target.make()
    for number, rows in enumerate(batches, 1):
        batch = target.next_batch(0x100 * number)
        deliver(sink, batch, [changes(table, rows, lsn=batch.start + 1)])
    assert unordered(target.rows(table)) == unordered(gives)


# Each as one batch, where a sink may reduce it, and as one batch per change.
def one_batch(rows: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    return [rows]


def batch_each(rows: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    return [[row] for row in rows]


in_batches = pytest.mark.parametrize("cut", [one_batch, batch_each])


@in_batches
def test_inserts_and_rows_of_an_import_are_there(target: SinkUnderTest, cut: Any) -> None:
    check(target, USERS, *cut([("insert", ADA), ("read", BOB)]), gives=[ADA, BOB])


@in_batches
def test_an_update_changes_its_row_alone(target: SinkUnderTest, cut: Any) -> None:
    rows = [("insert", ADA), ("insert", BOB), ("update", {**ADA, "name": "Countess"})]
    check(target, USERS, *cut(rows), gives=[{**ADA, "name": "Countess"}, BOB])


@in_batches
def test_a_delete_removes_its_row_alone(target: SinkUnderTest, cut: Any) -> None:
    check(target, USERS, *cut([("insert", ADA), ("insert", BOB), ("delete", None, {"id": 1})]), gives=[BOB])


@in_batches
def test_a_row_may_come_back_after_its_delete(target: SinkUnderTest, cut: Any) -> None:
    rows = [("insert", ADA), ("delete", None, {"id": 1}), ("insert", {**ADA, "name": "Augusta"})]
    check(target, USERS, *cut(rows), gives=[{**ADA, "name": "Augusta"}])


@in_batches
def test_a_truncate_removes_what_came_before_and_nothing_after(target: SinkUnderTest, cut: Any) -> None:
    check(target, USERS, *cut([("insert", ADA), ("truncate",), ("insert", BOB)]), gives=[BOB])


@in_batches
def test_an_update_of_the_key_moves_the_row(target: SinkUnderTest, cut: Any) -> None:
    rows = [("insert", ADA), ("insert", BOB), ("update", {**ADA, "id": "3"}, {"id": 1})]
    check(target, USERS, *cut(rows), gives=[{**ADA, "id": "3"}, BOB])


@in_batches
def test_keys_may_change_places(target: SinkUnderTest, cut: Any) -> None:
    rows = [
        ("insert", ADA), ("insert", BOB), ("update", {**ADA, "id": "9"}, {"id": 1}),
        ("update", {**BOB, "id": "1"}, {"id": 2}), ("update", {**ADA, "id": "2"}, {"id": 9}),
    ]  # fmt: skip
    check(target, USERS, *cut(rows), gives=[{**ADA, "id": "2"}, {**BOB, "id": "1"}])


@in_batches
def test_a_key_of_several_columns_is_one_key(target: SinkUnderTest, cut: Any) -> None:
    first, second = {"a": "1", "b": "x", "value": "p"}, {"a": "1", "b": "y", "value": "q"}
    rows = [
        ("insert", first), ("insert", second), ("update", {**second, "value": "r"}),
        ("update", {**first, "b": "z"}, {"a": 1, "b": "x"}), ("delete", None, {"a": 1, "b": "y"}),
    ]  # fmt: skip
    check(target, PAIRS, *cut(rows), gives=[{"a": "1", "b": "z", "value": "p"}])


@in_batches
def test_an_unchanged_toast_value_stays(target: SinkUnderTest, cut: Any) -> None:
    rows = [("insert", ADA), ("update", {"id": 1, "name": "Countess", "bio": UNCHANGED})]
    check(target, USERS, *cut(rows), gives=[{**ADA, "name": "Countess"}])


@in_batches
def test_an_unchanged_toast_value_moves_with_its_key(target: SinkUnderTest, cut: Any) -> None:
    rows = [
        ("insert", ADA), ("update", {"id": 5, "name": "Ada", "bio": UNCHANGED}, {"id": 1}),
        ("update", {"id": 5, "name": None, "bio": UNCHANGED}),
    ]  # fmt: skip
    check(target, USERS, *cut(rows), gives=[{"id": "5", "name": None, "bio": "long"}])


@in_batches
def test_an_unchanged_toast_value_with_whole_old_rows_stays(target: SinkUnderTest, cut: Any) -> None:
    table = relation("public", "whole", id="int8", name="text", bio="text", key=("id",), identity="f")
    rows = [("insert", ADA), ("update", {"id": 1, "name": "Countess", "bio": UNCHANGED}, ADA)]
    check(target, table, *cut(rows), gives=[{**ADA, "name": "Countess"}])


@in_batches
def test_without_a_key_one_of_several_equal_rows_is_changed(target: SinkUnderTest, cut: Any) -> None:
    same: Row = {"sensor": "a", "value": "1"}
    rows = [
        *[("insert", same)] * 3, ("insert", {"sensor": "a", "value": None}), ("delete", None, same),
        ("update", {"sensor": "b", "value": "1"}, same),
    ]  # fmt: skip
    expected: list[Row] = [same, {"sensor": "b", "value": "1"}, {"sensor": "a", "value": None}]
    check(target, FULL, *cut(rows), gives=expected)


@in_batches
def test_without_a_key_a_null_matches_a_null_and_nothing_else(target: SinkUnderTest, cut: Any) -> None:
    with_null: Row = {"sensor": "a", "value": None}
    with_empty: Row = {"sensor": "a", "value": ""}
    rows = [("insert", with_empty), ("insert", with_null), ("delete", None, with_null)]
    check(target, FULL, *cut(rows), gives=[with_empty])


@in_batches
def test_a_table_without_any_identity_takes_inserts(target: SinkUnderTest, cut: Any) -> None:
    rows = [("insert", {"line": "a"}), ("insert", {"line": "a"}), ("truncate",), ("insert", {"line": "b"})]
    check(target, NOTHING, *cut([*rows, ("insert", {"line": "b"})]), gives=[{"line": "b"}, {"line": "b"}])


@in_batches
def test_a_null_stays_apart_from_an_empty_string(target: SinkUnderTest, cut: Any) -> None:
    rows: list[Row] = [{"id": "1", "name": "", "bio": None}, {"id": "2", "name": None, "bio": ""}]
    check(target, USERS, *cut([("insert", row) for row in rows]), gives=rows)


def test_any_text_arrives_as_it_is(target: SinkUnderTest) -> None:
    texts = ['"', "\\", "'", "\n", "\t\r\x01\x1f", "\u2028", "🐘", "NULL", "null", "\\N", "{}", "a,b", " ", "é" * 500]
    rows: list[Row] = [{"id": str(id), "name": text, "bio": None} for id, text in enumerate(texts)]
    check(target, USERS, [("insert", row) for row in rows], gives=rows)
