"""Imports: which parts a sink holds. Each part has its effect once, whatever is killed or comes again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.admission import Ready
from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Imported, Sink, UnderWay
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered
from tests.contracts.table_import import TableImport

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
ORDERS = relation("public", "orders", id="int8", user_id="int8", key=("id",))
READINGS = relation("public", "readings", sensor="text", value="text", identity="f")

ADA: Row = {"id": "1", "name": "Ada", "bio": "long"}
BOB: Row = {"id": "2", "name": "Bob", "bio": None}
EVE: Row = {"id": "3", "name": "Eve", "bio": "longer"}
COUNTESS: Row = {**ADA, "name": "Countess"}


def check(target: SinkUnderTest, *rows: Row) -> None:
    assert unordered(target.rows(USERS)) == unordered(list(rows))


def holds(sink: Sink[Any, Any]) -> Imported:
    imported = sink.imported()
    assert imported is not None
    return imported


def test_parts_leave_the_position_where_it_is(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    TableImport(progress_target, sink, ORDERS, 1).whole({"id": "7", "user_id": "1"}, upto=0x80)
    assert sink.prepare() is None
    deliver(sink, progress_target.next_batch(0x100))
    TableImport(progress_target, sink, USERS, 2).whole(ADA, upto=0x180)
    assert progress_target.make().prepare() == LSN(0x100)


Step = Callable[[TableImport], None]
STEPS: list[Step] = [
    lambda copy: copy.begin(),
    lambda copy: copy.rows(1, ADA, ADA),
    lambda copy: copy.rows(2, BOB),
    lambda copy: copy.rows(3, COUNTESS, replaces=True),
    lambda copy: copy.replay(0x50, [("update", {**EVE, "name": "?"}), ("update", {**ADA, "bio": UNCHANGED})]),
    lambda copy: copy.replay(0x60, [("update", EVE), ("delete", None, {"id": 2})]),
    lambda copy: copy.end(0x70),
]


def test_the_same_table_goes_to_two_sinks(progress_target: SinkUnderTest, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = progress_target.beside(tmp_path / "second")
    copies = [TableImport(each, each.make(), USERS, job) for job, each in enumerate((progress_target, second), 1)]
    for step in STEPS:
        for copy in copies:
            step(copy)
    second.close()
    check(progress_target, ADA, EVE)
    check(second, ADA, EVE)


def test_every_part_may_come_twice(progress_target: SinkUnderTest) -> None:
    copy = TableImport(progress_target, progress_target.make(), USERS)
    for step in STEPS:
        step(copy)
        step(copy)
    check(progress_target, ADA, EVE)


def test_a_begin_that_comes_again_leaves_what_came_since(progress_target: SinkUnderTest) -> None:
    copy = TableImport(progress_target, progress_target.make(), USERS)
    copy.begin()
    copy.rows(1, ADA)
    copy.begin()
    copy.rows(1, ADA)
    copy.end(0x80)
    check(progress_target, ADA)


def test_a_table_without_a_key_has_no_row_twice_when_parts_come_twice(progress_target: SinkUnderTest) -> None:
    row = {"sensor": "a", "value": "1"}
    copy = TableImport(progress_target, progress_target.make(), READINGS)
    copy.begin()
    for _ in range(2):
        copy.rows(1, row, row)
    for _ in range(2):
        copy.replay(0x80, [("insert", row), ("delete", None, row), ("delete", None, row)])
    copy.end(0x80)
    assert progress_target.rows(READINGS) == [row]


@pytest.mark.parametrize("again", [False, True], ids=["", "and the last part comes again"])
@pytest.mark.parametrize("crash", range(len(STEPS)))
def test_an_import_goes_on_after_a_crash_behind_any_part(
    progress_target: SinkUnderTest, crash: int, again: bool
) -> None:
    copy = TableImport(progress_target, progress_target.make(), USERS)
    for number, step in enumerate(STEPS):
        step(copy)
        if number == crash:
            copy.sink = progress_target.make()
            if again:
                step(copy)
    check(progress_target, ADA, EVE)
    deliver(copy.sink, progress_target.next_batch(0x100), [changes(USERS, [("delete", None, {"id": 1})], lsn=0x90)])
    check(progress_target, EVE)


def test_a_part_that_was_written_and_not_committed_is_not_there_or_there_once(progress_target: SinkUnderTest) -> None:
    copy = TableImport(progress_target, progress_target.make(), USERS)
    copy.begin()
    copy.rows(1, ADA)
    staged = copy.write_rows(2, BOB)
    assert staged is not None
    copy.sink = progress_target.make()
    there = progress_target.rows_go_straight_in
    assert holds(copy.sink).under_way == {1: UnderWay(frozenset({1, 2} if there else {1}))}
    if there:
        copy.rows(2, BOB)
    copy.end(0x80)
    check(progress_target, ADA, *([BOB] if there else []))


def test_the_sink_says_what_it_holds_of_imports(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    assert holds(sink) == Imported("")
    copy = TableImport(progress_target, sink, USERS, job=5)
    expected: list[tuple[Step, dict[int, Ready], dict[int, UnderWay]]] = [
        (lambda copy: copy.begin(), {}, {5: UnderWay()}),
        (lambda copy: copy.rows(2, ADA), {}, {5: UnderWay(frozenset({2}))}),
        (lambda copy: copy.rows(1, BOB), {}, {5: UnderWay(frozenset({1, 2}))}),
        (lambda copy: copy.changes(0x60), {}, {5: UnderWay(frozenset({1, 2}), LSN(0x60))}),
        (lambda copy: copy.end(0x70), {USERS.oid: Ready(5, LSN(0x70))}, {}),
    ]
    for step, ready, under_way in expected:
        step(copy)
        assert holds(sink) == Imported(progress_target.subscription, ready, under_way)
        sink = copy.sink = progress_target.make()
        assert holds(sink) == Imported(progress_target.subscription, ready, under_way)


def test_a_sink_that_keeps_no_position_keeps_no_record_of_imports(target: SinkUnderTest) -> None:
    assert (target.make().imported() is None) is not target.keeps_progress


def test_a_part_of_an_import_that_is_complete_changes_nothing(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    TableImport(progress_target, sink, USERS, job=5).whole(ADA, upto=0x80)
    for job in (4, 5):
        late = TableImport(progress_target, sink, USERS, job)
        late.begin()
        late.rows(9, BOB)
        late.replay(0x90, [("truncate",)])
        late.end(0x90)
    check(progress_target, ADA)
    assert holds(sink).ready == {USERS.oid: Ready(5, LSN(0x80))}


def test_a_part_of_an_import_that_the_sink_knows_nothing_of_makes_delivery_look_anew(
    progress_target: SinkUnderTest,
) -> None:
    copy = TableImport(progress_target, progress_target.make(), USERS)
    with pytest.raises(SinkUnavailable, match=r"no record of import 1 of public\.users"):
        copy.rows(1, ADA)
    assert holds(progress_target.make()) == Imported("")


def test_what_an_abandoned_import_left_does_not_stay(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    abandoned = TableImport(progress_target, sink, USERS, job=1)
    abandoned.begin()
    abandoned.rows(1, ADA, BOB)
    abandoned.replay(0x50, [("insert", EVE)])
    copy = TableImport(progress_target, sink, USERS, job=2)
    copy.begin()
    assert set(holds(sink).under_way) == {2}
    copy.rows(1, COUNTESS)
    copy.end(0x80)
    check(progress_target, COUNTESS)


def test_an_import_of_another_table_survives_the_begin_of_one(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    orders = TableImport(progress_target, sink, ORDERS, job=1)
    orders.begin()
    orders.rows(1, {"id": "7", "user_id": "1"})
    TableImport(progress_target, sink, USERS, job=2).whole(ADA, upto=0x50)
    orders.end(0x80)
    assert progress_target.rows(ORDERS) == [{"id": "7", "user_id": "1"}]


def test_records_of_another_subscription_mean_nothing(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    TableImport(progress_target, sink, USERS, job=7).whole(ADA, BOB, upto=0x80)
    left = TableImport(progress_target, sink, ORDERS, job=8)
    left.begin()
    left.rows(1, {"id": "7", "user_id": "1"})
    progress_target.subscription = "penstock_2"
    sink = progress_target.make()
    assert holds(sink).subscription == "penstock_1"
    copy = TableImport(progress_target, sink, USERS, job=1)
    copy.begin()
    assert holds(sink) == Imported("penstock_2", {}, {1: UnderWay()})
    copy.rows(1, COUNTESS)
    copy.end(0x90)
    orders = TableImport(progress_target, sink, ORDERS, job=8)
    orders.whole({"id": "8", "user_id": "1"}, upto=0x90)
    check(progress_target, COUNTESS)
    assert progress_target.rows(ORDERS) == [{"id": "8", "user_id": "1"}]
    ready = {USERS.oid: Ready(1, LSN(0x90)), ORDERS.oid: Ready(8, LSN(0x90))}
    assert holds(progress_target.make()) == Imported("penstock_2", ready)
