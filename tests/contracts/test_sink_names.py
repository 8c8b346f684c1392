"""Names and shapes of tables that Postgres allows, and so must a sink."""

from __future__ import annotations

import pytest

from penstock.testing.change_batches import changes, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered

ODD_NAMES = [
    'with "quotes"', "with.dots", "Capitals", "with spaces", "🐘 élan", "at", "order", "select", "drop table; --",
    "it's", "back\\slash", "percent%s", "{braces}", "$1", "new\nline",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_schema_a_table_and_a_column_may_have_any_name(target: SinkUnderTest, name: str) -> None:
    table = relation(name, name, {name: "int8", f"{name} 2": "text"}, key=(name,))
    sink = target.make()
    rows = [("insert", {name: id, f"{name} 2": "a"}) for id in (1, 2, 3)]
    deliver(sink, target.next_batch(0x10), [changes(table, rows, lsn=0x5)])
    later = [("update", {name: 1, f"{name} 2": "b"}), ("delete", None, {name: 2}), ("update", {name: 4}, {name: 3})]
    deliver(sink, target.next_batch(0x20), [changes(table, later, lsn=0x15)])
    expected: list[Row] = [{name: "1", f"{name} 2": "b"}, {name: "4", f"{name} 2": None}]
    assert unordered(target.rows(table)) == unordered(expected)


def test_names_that_only_quoting_tells_apart_are_two_tables(target: SinkUnderTest) -> None:
    one, other = relation("a.b", "c", id="int8", key=("id",)), relation("a", "b.c", id="int8", key=("id",), oid=99)
    tables = [changes(one, [("insert", {"id": 1})], lsn=0x5), changes(other, [("insert", {"id": 2})], lsn=0x6)]
    deliver(target.make(), target.next_batch(0x10), tables)
    assert (target.rows(one), target.rows(other)) == ([{"id": "1"}], [{"id": "2"}])


def test_a_row_may_have_as_many_columns_as_postgres_allows(target: SinkUnderTest) -> None:
    names = [f"column {number}" for number in range(1600)]
    wide = relation("public", "wide", dict.fromkeys(names, "text"), key=(names[0],))
    row: Row = {name: None if number % 3 == 1 else str(number) for number, name in enumerate(names)}
    deliver(target.make(), target.next_batch(0x10), [changes(wide, [("insert", row)], lsn=0x5)])
    assert target.rows(wide) == [row]


def test_a_table_without_columns_stops_nothing(target: SinkUnderTest) -> None:
    empty = changes(relation("public", "empty"), [("insert", {}), ("insert", {}), ("truncate",)], lsn=0x5)
    users = relation("public", "users", id="int8", key=("id",))
    sink = target.make()
    deliver(sink, target.next_batch(0x10), [empty, changes(users, [("insert", {"id": 1})], lsn=0x6)])
    deliver(sink, target.next_batch(0x20), [changes(users, [("insert", {"id": 2})], lsn=0x15)])
    assert unordered(target.rows(users)) == unordered([{"id": "1"}, {"id": "2"}])


def test_a_new_column_is_there_with_the_changes_that_use_it(target: SinkUnderTest) -> None:
    before = relation("public", "users", id="int8", key=("id",))
    after = relation("public", "users", id="int8", name="text", key=("id",))
    sink = target.make()
    deliver(sink, target.next_batch(0x10), [changes(before, [("insert", {"id": 1})], lsn=0x5)])
    deliver(sink, target.next_batch(0x20), [changes(after, [("insert", {"id": 2, "name": "Bob"})], lsn=0x15)])
    later = changes(after, [("update", {"id": 1, "name": "Ada"})], lsn=0x25)
    deliver(sink, target.next_batch(0x30), [later])
    assert unordered(target.rows(after)) == unordered([{"id": "1", "name": "Ada"}, {"id": "2", "name": "Bob"}])
