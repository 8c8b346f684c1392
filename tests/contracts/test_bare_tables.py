"""Tables without any column: Postgres has them, and their rows are but their number."""

from __future__ import annotations

from typing import Any

from penstock.testing.change_batches import changes, relation
from tests.contracts.sink_under_test import SinkUnderTest, deliver
from tests.contracts.table_import import TableImport

BARE = relation("public", "bare", identity="f", oid=7)
WITH_COLUMN = relation("public", "bare", a="int8", identity="f", oid=7)


def test_rows_are_counted(target: SinkUnderTest) -> None:
    sink = target.make()
    deliver(sink, target.next_batch(0x10), [changes(BARE, [("insert", {})] * 3, lsn=0x5)])
    assert len(target.rows(BARE)) == 3
    rows: list[tuple[Any, ...]] = [("delete", None, {}), ("insert", {}), ("delete", None, {})]
    deliver(sink, target.next_batch(0x20), [changes(BARE, rows, lsn=0x15)])
    assert target.rows(BARE) == [{}, {}]
    deliver(sink, target.next_batch(0x30), [changes(BARE, [("insert", {}), ("truncate",), ("insert", {})], lsn=0x25)])
    assert target.rows(BARE) == [{}]


def test_rows_that_an_import_reads_are_counted(progress_target: SinkUnderTest) -> None:
    target = progress_target
    sink = target.make()
    copy = TableImport(target, sink, BARE)
    copy.begin()
    copy.rows(1, {}, {})
    copy.rows(2, {})
    copy.sink = target.make()
    copy.rows(2, {})  # once more, as after a kill
    copy.replay(0x100, [("insert", {}), ("delete", None, {}), ("delete", None, {})])
    copy.end(0x100)
    assert len(target.rows(BARE)) == 2
    target.position = type(target.position)(0x100)
    deliver(copy.sink, target.next_batch(0x110), [changes(BARE, [("insert", {})], lsn=0x105)])
    assert len(target.rows(BARE)) == 3


def test_a_column_that_comes_is_null_in_the_rows_from_before(table_target: SinkUnderTest) -> None:
    sink = table_target.make()
    deliver(sink, table_target.next_batch(0x10), [changes(BARE, [("insert", {})] * 2, lsn=0x5)])
    deliver(sink, table_target.next_batch(0x20), [changes(WITH_COLUMN, [("insert", {"a": 1})], lsn=0x15)])
    assert sorted(row["a"] or "" for row in table_target.rows(WITH_COLUMN)) == ["", "", "1"]


def test_rows_from_before_and_after_the_last_column_went_are_counted(table_target: SinkUnderTest) -> None:
    sink = table_target.make()
    deliver(sink, table_target.next_batch(0x10), [changes(WITH_COLUMN, [("insert", {"a": 1})] * 2, lsn=0x5)])
    deliver(sink, table_target.next_batch(0x20), [changes(BARE, [("insert", {}), ("insert", {})], lsn=0x15)])
    deliver(sink, table_target.next_batch(0x30), [changes(BARE, [("delete", None, {})], lsn=0x25)])
    assert len(table_target.rows(BARE)) == 3


def test_an_import_of_a_table_whose_last_column_goes_meanwhile_counts_its_rows(table_target: SinkUnderTest) -> None:
    copy = TableImport(table_target, table_target.make(), WITH_COLUMN)
    copy.begin()
    copy.rows(1, {"a": 1}, {"a": 2})
    copy.replay(0x100, [("insert", {})], BARE)
    copy.sink = table_target.make()
    copy.replay(0x110, [("insert", {})], BARE)
    copy.end(0x110)
    assert len(table_target.rows(BARE)) == 4
