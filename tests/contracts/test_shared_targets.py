"""Several pipelines into one target, with sinks of the same name."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import Sink
from penstock.testing.change_batches import changes, relation
from tests.contracts.sink_under_test import SinkUnderTest, deliver
from tests.contracts.table_import import TableImport

USERS = relation("public", "users", id="int8", key=("id",), oid=7)
GOODS = relation("public", "goods", id="int8", key=("id",), oid=7)  # of another database, which has oids of its own
OTHERS_USERS = relation("public", "users", id="int8", key=("id",), oid=8)


def both(target: SinkUnderTest) -> tuple[Sink[Any, Any], Sink[Any, Any]]:
    return target.make("shop"), target.make("garage", others_stay=True)


def test_each_pipeline_has_a_position_and_imports_of_its_own(table_target: SinkUnderTest) -> None:
    shop, garage = both(table_target)
    deliver(shop, table_target.next_batch(0x10), [changes(USERS, [("insert", {"id": 1})], lsn=0x5)])
    TableImport(table_target, garage, GOODS).whole({"id": 1}, {"id": 2}, upto=0x500)
    assert (shop.prepare(), garage.prepare()) == (LSN(0x10), None)
    assert [bool(found and found.ready) for found in (shop.imported(), garage.imported())] == [False, True]
    TableImport(table_target, shop, USERS).whole({"id": 3}, upto=0x10)
    assert (table_target.rows(USERS), len(table_target.rows(GOODS))) == ([{"id": "3"}], 2)


def test_parts_of_imports_with_the_same_number_do_not_meet(table_target: SinkUnderTest) -> None:
    shop, garage = both(table_target)
    copies = [TableImport(table_target, shop, USERS), TableImport(table_target, garage, GOODS)]
    for copy in copies:
        copy.begin()
    for copy, id in zip(copies, (1, 2), strict=True):
        copy.rows(1, {"id": id})
    for copy in copies:
        copy.end(0x100)
    assert (table_target.rows(USERS), table_target.rows(GOODS)) == ([{"id": "1"}], [{"id": "2"}])


def test_a_table_that_another_pipeline_fills_is_refused(table_target: SinkUnderTest) -> None:
    shop, garage = both(table_target)
    deliver(shop, table_target.next_batch(0x10), [changes(USERS, [("insert", {"id": 1})], lsn=0x5)])
    filled = r'public\.users of the target is filled by sink "\w+" of pipeline "shop"'
    with pytest.raises(SinkRefused, match=filled):
        deliver(garage, table_target.next_batch(0x20), [changes(OTHERS_USERS, [("insert", {"id": 2})], lsn=0x15)])
    with pytest.raises(SinkRefused, match=filled):
        TableImport(table_target, garage, OTHERS_USERS).begin()
    assert table_target.rows(USERS) == [{"id": "1"}]
    deliver(shop, table_target.next_batch(0x30), [changes(USERS, [("insert", {"id": 3})], lsn=0x25)])
    assert len(table_target.rows(USERS)) == 2


def test_a_table_that_another_pipeline_is_about_to_import_is_refused(table_target: SinkUnderTest) -> None:
    shop, garage = both(table_target)
    copy = TableImport(table_target, shop, USERS)
    copy.begin()
    for job in (1, 2):
        with pytest.raises(SinkRefused, match='of pipeline "shop"'):
            TableImport(table_target, garage, OTHERS_USERS, job).begin()
    copy.rows(1, {"id": 1})
    copy.end(0x100)
    assert table_target.rows(USERS) == [{"id": "1"}]


def test_the_advice_says_how_to_take_over_a_table_of_a_pipeline_that_is_gone(table_target: SinkUnderTest) -> None:
    shop, garage = both(table_target)
    deliver(shop, table_target.next_batch(0x10), [changes(USERS, [("insert", {"id": 1})], lsn=0x5)])
    batch = table_target.next_batch(0x20)
    some = [changes(OTHERS_USERS, [("insert", {"id": 2})], lsn=0x15)]
    with pytest.raises(SinkRefused) as refused:
        deliver(garage, batch, some)
    statements = (refused.value.advice or "").partition("run in the target: ")[2].removesuffix("; then start again.")
    table_target.execute(statements)
    deliver(garage, batch, some)
    assert len(table_target.rows(USERS)) == 2
