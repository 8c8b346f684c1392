"""Imports: begin, rows, changes, end. The table is there in the end, whatever is killed, repeated or written meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.sinks.contract import Sink
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered
from tests.contracts.table_import import TableImport
from tests.import_histories import ImportHistory, import_histories, parts_of
from tests.table_histories import bag

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
ORDERS = relation("public", "orders", id="int8", user_id="int8", key=("id",))
READINGS = relation("public", "readings", sensor="text", value="text", identity="f")

ADA: Row = {"id": "1", "name": "Ada", "bio": "long"}
BOB: Row = {"id": "2", "name": "Bob", "bio": None}
EVE: Row = {"id": "3", "name": "Eve", "bio": "longer"}
COUNTESS: Row = {**ADA, "name": "Countess"}
FIFTH: Row = {**ADA, "id": "5"}


def check(target: SinkUnderTest, *rows: Row) -> None:
    assert unordered(target.rows(USERS)) == unordered(list(rows))


def test_an_import_brings_the_table(target: SinkUnderTest) -> None:
    copy = TableImport(target, target.make(), USERS)
    copy.begin()
    copy.rows(2, BOB)
    copy.rows(1, ADA)
    copy.replay(0x80, [("update", COUNTESS), ("delete", None, {"id": 2}), ("insert", EVE)])
    copy.end(0x80)
    check(target, COUNTESS, EVE)


def test_an_imported_table_goes_on_with_the_stream(target: SinkUnderTest) -> None:
    sink = target.make()
    deliver(sink, target.next_batch(0x100))
    TableImport(target, sink, USERS).whole(ADA, BOB, upto=0x120)
    rows = [("update", COUNTESS), ("delete", None, {"id": 2}), ("insert", EVE)]
    deliver(sink, target.next_batch(0x200), [changes(USERS, rows, lsn=0x150)])
    check(target, COUNTESS, EVE)


def test_a_table_without_rows_is_imported_all_the_same(target: SinkUnderTest) -> None:
    sink = target.make()
    copy = TableImport(target, sink, USERS)
    copy.begin()
    copy.changes(0x80)
    copy.end(0x80)
    check(target)
    deliver(sink, target.next_batch(0x100), [changes(USERS, [("insert", ADA)], lsn=0x90)])
    check(target, ADA)


def test_parts_without_rows_and_receipts_without_changes_are_fine(target: SinkUnderTest) -> None:
    copy = TableImport(target, target.make(), USERS)
    copy.begin()
    copy.rows(1)
    copy.rows(2, ADA)
    copy.changes(0x70)
    copy.changes(0x80)
    copy.end(0x90)
    check(target, ADA)


CHANGES: list[tuple[str, list[dict[str, Any]], list[tuple[Any, ...]], list[Row]]] = [
    ("a row that an insert brings is there already", [ADA], [("insert", ADA)], [ADA]),
    ("a row that an update is about is absent", [], [("update", ADA), ("delete", None, {"id": 1})], []),
    ("a row that a delete is about is absent", [BOB], [("delete", None, {"id": 1})], [BOB]),
    ("a row was seen twice", [ADA, COUNTESS], [("update", COUNTESS)], [COUNTESS]),
    ("a row was seen twice and is gone", [ADA, COUNTESS], [("update", COUNTESS), ("delete", None, {"id": 1})], []),
    ("a key changed before it was read", [FIFTH], [("update", FIFTH, {"id": 1})], [FIFTH]),
    ("a key changed after it was read", [ADA], [("update", FIFTH, {"id": 1})], [FIFTH]),
    ("a row was seen under both keys", [ADA, FIFTH], [("update", FIFTH, {"id": 1})], [FIFTH]),
    ("a row was deleted and inserted again", [EVE], [("delete", None, {"id": 3}), ("insert", EVE)], [EVE]),
    ("the table was truncated", [ADA, BOB], [("truncate",), ("insert", EVE)], [EVE]),
    ("the table was truncated and nothing came after", [ADA, BOB], [("insert", EVE), ("truncate",)], []),
    ("an unchanged TOAST value is kept", [ADA], [("update", {**COUNTESS, "bio": UNCHANGED})], [COUNTESS]),
    (
        "an unchanged TOAST value of a row that was seen twice",
        [ADA, COUNTESS],
        [("update", {**COUNTESS, "bio": UNCHANGED})],
        [COUNTESS],
    ),
    (
        "an unchanged TOAST value moves with the key",
        [ADA],
        [("update", {**FIFTH, "bio": UNCHANGED}, {"id": 1})],
        [FIFTH],
    ),
    (
        "an unchanged TOAST value was read after the key changed",
        [FIFTH],
        [("update", {**FIFTH, "bio": UNCHANGED}, {"id": 1})],
        [FIFTH],
    ),
    (
        "an unchanged TOAST value of a row that is absent, and removed later",
        [BOB],
        [("update", {**ADA, "bio": UNCHANGED}), ("delete", None, {"id": 1})],
        [BOB],
    ),
]  # fmt: skip


@pytest.mark.parametrize("apart", [False, True], ids=["in one part", "in a part each"])
@pytest.mark.parametrize(("seen", "then", "gives"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_changes_since_the_import_began_come_to_the_same(
    target: SinkUnderTest, apart: bool, seen: list[Row], then: list[tuple[Any, ...]], gives: list[Row]
) -> None:
    copy = TableImport(target, target.make(), USERS)
    copy.begin()
    for number, row in enumerate(seen, 1):
        copy.rows(number, row)
    for at, some in enumerate([[change] for change in then] if apart else [then]):
        copy.replay(0x20 * (at + 1), some)
    copy.end(0x400)
    check(target, *gives)


def test_rows_that_were_read_again_replace_those_with_their_keys(target: SinkUnderTest) -> None:
    copy = TableImport(target, target.make(), USERS)
    copy.begin()
    copy.rows(1, ADA, BOB)
    copy.rows(2, COUNTESS, EVE, replaces=True)
    copy.rows(3, EVE, EVE, replaces=True)
    copy.end(0x80)
    check(target, COUNTESS, BOB, EVE)


def test_rows_may_be_read_again_between_the_changes(target: SinkUnderTest) -> None:
    """No chunk has seen the row: it moved in between, with a change that did not bring all of it."""
    copy = TableImport(target, target.make(), USERS)
    copy.begin()
    copy.rows(1, BOB)
    copy.replay(0x80, [("update", {**EVE, "bio": UNCHANGED}, {"id": 1})])
    copy.rows(2, EVE, replaces=True)
    copy.replay(0x90, [("update", {**EVE, "name": "Eva", "bio": UNCHANGED})])
    copy.end(0x90)
    check(target, BOB, {**EVE, "name": "Eva"})


def test_a_table_without_a_key_keeps_count_of_equal_rows(target: SinkUnderTest) -> None:
    same: Row = {"sensor": "a", "value": "1"}
    other: Row = {"sensor": "b", "value": None}
    copy = TableImport(target, target.make(), READINGS)
    copy.begin()
    copy.rows(1, same, same, same, other)
    copy.replay(0x80, [("delete", None, same), ("update", {**other, "value": "2"}, other), ("insert", other)])
    copy.end(0x80)
    expected: list[Row] = [same, same, other, {**other, "value": "2"}]
    assert unordered(target.rows(READINGS)) == unordered(expected)


def test_a_column_that_came_while_the_table_was_copied_is_there(target: SinkUnderTest) -> None:
    wider = relation("public", "users", id="int8", name="text", bio="text", age="int4", key=("id",))
    copy = TableImport(target, target.make(), USERS)
    copy.begin()
    copy.rows(1, ADA, BOB)
    copy.changes(
        0x80,
        changes(USERS, [("update", COUNTESS)], lsn=0x50),
        changes(wider, [("update", {**BOB, "age": 36})], lsn=0x60),
    )
    copy.end(0x80)
    assert unordered(target.rows(wider)) == unordered([{**COUNTESS, "age": None}, {**BOB, "age": "36"}])


def test_two_imports_may_take_turns(target: SinkUnderTest) -> None:
    sink = target.make()
    users, orders = TableImport(target, sink, USERS, 1), TableImport(target, sink, ORDERS, 2)
    users.begin()
    orders.begin()
    users.rows(1, ADA)
    orders.rows(1, {"id": "7", "user_id": "1"})
    users.rows(2, BOB)
    orders.replay(0x80, [("insert", {"id": "8", "user_id": "2"})])
    users.replay(0x80, [("update", COUNTESS)])
    orders.end(0x80)
    users.end(0x80)
    check(target, COUNTESS, BOB)
    assert unordered(target.rows(ORDERS)) == unordered([{"id": "7", "user_id": "1"}, {"id": "8", "user_id": "2"}])


def test_a_table_is_copied_again_while_the_stream_goes_on(target: SinkUnderTest) -> None:
    """A sink that swaps tables shows the old one, with its changes, until the moment when it shows the new one."""
    sink = target.make()
    TableImport(target, sink, USERS, job=1).whole(ADA, BOB, upto=0x10)
    copy = TableImport(target, sink, USERS, job=2, again=True)
    steps: list[tuple[Callable[[], None], list[Row]]] = [
        (copy.begin, [ADA, BOB]),
        (lambda: copy.rows(1, COUNTESS), [ADA, BOB]),
        (lambda: stream(sink, target, 0x100, ("update", COUNTESS)), [COUNTESS, BOB]),
        (lambda: copy.rows(2, EVE), [COUNTESS, BOB]),
        (lambda: copy.replay(0x100, [("update", COUNTESS)]), [COUNTESS, BOB]),
        (lambda: stream(sink, target, 0x200, ("insert", EVE), ("delete", None, {"id": 2})), [COUNTESS, EVE]),
        (
            lambda: copy.replay(0x210, [("insert", EVE), ("delete", None, {"id": 2}), ("insert", {"id": "4"})]),
            [COUNTESS, EVE],
        ),
        (lambda: copy.end(0x210), [COUNTESS, EVE, {"id": "4", "name": None, "bio": None}]),
    ]
    for step, shown in steps:
        step()
        if sink.capabilities.swaps_tables:
            check(target, *shown)
    check(target, *steps[-1][1])


def stream(sink: Sink[Any, Any], target: SinkUnderTest, end: int, *rows: tuple[Any, ...]) -> None:
    deliver(sink, target.next_batch(end), [changes(USERS, list(rows), lsn=end - 1)])


def test_a_table_that_the_stream_filled_before_is_imported_as_it_is(target: SinkUnderTest) -> None:
    sink = target.make()
    deliver(sink, target.next_batch(0x100), [changes(USERS, [("insert", ADA), ("insert", BOB)], lsn=0x50)])
    TableImport(target, sink, USERS).whole(EVE, upto=0x110)
    check(target, EVE)


@settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(import_histories(), st.lists(st.integers(0, 100), max_size=2), st.lists(st.integers(0, 100), max_size=2))
def test_a_table_that_is_written_to_while_it_is_copied_arrives_as_it_is(
    target: SinkUnderTest,
    tmp_path_factory: pytest.TempPathFactory,
    imported: ImportHistory,
    cuts: list[int],
    later: list[int],
) -> None:
    table = imported.table
    fresh = target.beside(tmp_path_factory.mktemp("import"))
    try:
        copy = TableImport(fresh, fresh.make(), table)
        copy.begin()
        for number, row in enumerate(imported.seen, 1):
            copy.rows(number, row)
        for number, part in enumerate(parts_of(table, imported.while_read, 0x100, cuts)):
            copy.changes(0x101 + number, part)
        copy.rows(100, *imported.seen_again, replaces=True)
        for number, part in enumerate(parts_of(table, imported.afterwards, 0x200, later)):
            copy.changes(0x201 + number, part)
        copy.end(0x300)
        assert bag(fresh.rows(table)) == bag(imported.history.end)
    finally:
        fresh.close()


def test_a_table_without_a_key_gets_what_was_inserted_while_it_was_copied(target: SinkUnderTest) -> None:
    readings = relation("public", "readings", sensor="text", value="text")
    rows: list[Row] = [{"sensor": "a", "value": str(number)} for number in range(3)]
    copy = TableImport(target, target.make(), readings)
    copy.begin()
    copy.rows(1, rows[0])
    copy.replay(0x80, [("insert", rows[1]), ("insert", rows[2])])
    copy.end(0x80)
    assert unordered(target.rows(readings)) == unordered(rows)
