"""Imports of tables that rules put into one, and of tables whose rows rules hold back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import SinkRefused
from penstock.sinks.contract import Merged
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered
from tests.contracts.table_import import TableImport

ORDERS = relation(
    "everything", "orders", tenant="text", id="int8", item="text", key=("tenant", "id"), oid=3_000_000_000
)
A, B = Merged(16501, ("tenant", "a")), Merged(16502, ("tenant", "b"))


def order(tenant: str, id: int, item: str = "thing") -> Row:
    return {"tenant": tenant, "id": str(id), "item": item}


def check(target: SinkUnderTest, *rows: Row) -> None:
    assert unordered(target.rows(ORDERS)) == unordered(list(rows))


def test_tables_that_are_merged_are_imported_beside_each_other(target: SinkUnderTest) -> None:
    sink = target.make()
    deliver(sink, target.next_batch(0x100))
    TableImport(target, sink, ORDERS, 1, merged=A).whole(order("a", 1), order("a", 2), upto=0x110)
    TableImport(target, sink, ORDERS, 2, merged=B).whole(order("b", 1), upto=0x120)
    check(target, order("a", 1), order("a", 2), order("b", 1))
    rows = [("update", order("a", 1, "new")), ("delete", None, {"tenant": "b", "id": 1}), ("insert", order("b", 7))]
    deliver(sink, target.next_batch(0x200), [changes(ORDERS, rows, lsn=0x150)])
    check(target, order("a", 1, "new"), order("a", 2), order("b", 7))


def test_a_merged_table_that_is_imported_again_replaces_its_own_rows_alone(target: SinkUnderTest) -> None:
    sink = target.make()
    TableImport(target, sink, ORDERS, 1, merged=A).whole(order("a", 1), order("a", 2), upto=0x10)
    TableImport(target, sink, ORDERS, 2, merged=B).whole(order("b", 1), upto=0x20)
    again = TableImport(target, sink, ORDERS, 3, again=True, merged=A)
    again.whole(order("a", 2, "new"), order("a", 3), upto=0x30)
    left = [] if sink.capabilities.swaps_tables else [order("a", 1)]  # no event can say which rows go
    check(target, order("a", 2, "new"), order("a", 3), order("b", 1), *left)


def test_merged_tables_are_recorded_each_by_itself(progress_target: SinkUnderTest) -> None:
    sink = progress_target.make()
    TableImport(progress_target, sink, ORDERS, 1, merged=A).whole(order("a", 1), upto=0x10)
    TableImport(progress_target, sink, ORDERS, 2, merged=B).begin()
    known = progress_target.make().imported()
    assert known is not None
    assert {oid: ready.job for oid, ready in known.ready.items()} == {16501: 1}
    assert set(known.under_way) == {2}


def test_every_part_of_a_merged_import_may_come_twice_and_after_a_restart(progress_target: SinkUnderTest) -> None:
    TableImport(progress_target, progress_target.make(), ORDERS, 1, merged=A).whole(order("a", 1), upto=0x10)
    for _ in range(2):
        copy = TableImport(progress_target, progress_target.make(), ORDERS, 2, merged=B)
        for _ in range(2):
            copy.whole(order("b", 1), order("b", 2), upto=0x20)
    check(progress_target, order("a", 1), order("b", 1), order("b", 2))


def test_a_merged_table_whose_rows_nothing_tells_from_the_others_is_not_imported_again(
    table_target: SinkUnderTest,
) -> None:
    sink = table_target.make()
    TableImport(table_target, sink, ORDERS, 1, merged=replace(A, origin=None)).whole(order("a", 1), upto=0x10)
    TableImport(table_target, sink, ORDERS, 2, merged=replace(B, origin=None)).whole(order("b", 1), upto=0x20)
    check(table_target, order("a", 1), order("b", 1))
    again = TableImport(table_target, sink, ORDERS, 3, again=True, merged=replace(A, origin=None))
    with pytest.raises(SinkRefused, match=r"everything\.orders with others was imported again"):
        again.whole(order("a", 2), upto=0x30)
    check(table_target, order("a", 1), order("b", 1))


def test_a_row_that_a_filter_lets_in_after_all_was_read_is_refused_if_it_lacks_a_value(
    table_target: SinkUnderTest,
) -> None:
    """Skipped, as it is before all rows are there, it would be lost."""
    users = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
    sink = table_target.make()
    copy = TableImport(table_target, sink, users)
    copy.begin()
    copy.rows(1, {"id": "1", "name": "Ada", "bio": "long"})
    entering = [("update", {"id": "2", "name": "Bob", "bio": UNCHANGED})]
    copy.replay(0x80, entering)
    with pytest.raises(SinkRefused, match="users"):
        copy.replay(0x90, entering, settled=True)


def test_rows_of_somebody_else_stay_in_a_table_that_others_are_merged_into(table_target: SinkUnderTest) -> None:
    table_target.execute("create schema everything")
    table_target.execute("create table everything.orders (tenant text, id bigint, item text)")
    table_target.execute("insert into everything.orders values ('a', 1, 'theirs'), ('c', 1, 'theirs')")
    table_target.settings = {"existing_rows": "keep"}
    sink = table_target.make()
    TableImport(table_target, sink, ORDERS, 1, merged=A).whole(order("a", 1), upto=0x10)
    TableImport(table_target, sink, ORDERS, 2, merged=B).whole(order("b", 1), upto=0x20)
    check(table_target, order("a", 1), order("b", 1), order("c", 1, "theirs"))
    TableImport(table_target, sink, ORDERS, 3, again=True, merged=A).whole(order("a", 2), upto=0x30)
    check(table_target, order("a", 2), order("b", 1), order("c", 1, "theirs"))
