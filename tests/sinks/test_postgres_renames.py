"""Names in the source that pass from one table to another, and what the Postgres sink's target makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.changes.batch import ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.testing.change_batches import changes, relation
from tests.sinks.test_postgres_sink import Replica

FIRST, SECOND = 16390, 16400


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Replica]:
    found = Replica(database, tmp_path)
    found.deliver([inserts(table("orders", FIRST), 1, lsn=0x10)])
    yield found
    found.sink.close()


def table(name: str, oid: int) -> Relation:
    return relation("public", name, id="integer", v="text", key=("id",), oid=oid)


def inserts(of: Relation, *ids: int, lsn: int) -> ChangeBatch:
    return changes(of, [("insert", {"id": id, "v": "x"}) for id in ids], lsn=lsn)


def ids(replica: Replica, name: str) -> list[int]:
    return [id for (id,) in replica.rows(f"select id from {name} order by id")]


def test_a_table_that_gave_its_name_away_keeps_its_rows_also_when_it_changes_last(replica: Replica) -> None:
    replica.deliver(
        [inserts(table("old_orders", FIRST), 3, lsn=0x1030)],
        [inserts(table("orders", FIRST), 2, lsn=0x1010)],
        [inserts(table("orders", SECOND), 9, lsn=0x1020)],
    )
    assert (ids(replica, "old_orders"), ids(replica, "orders")) == ([1, 2, 3], [9])


def test_a_table_that_gave_its_name_away_keeps_its_rows_when_the_other_is_imported(replica: Replica) -> None:
    orders = table("orders", SECOND)

    def part(phase: Any, *some: ChangeBatch, **members: Any) -> None:
        batch = Batch(-1, LSN(0), LSN(0), str(replica.directory), ImportPart(1, orders, phase, **members))
        replica.sink.commit(batch, [replica.sink.write(batch, iter(some))])

    part("begin")
    part("rows", changes(orders, [("read", {"id": 9, "v": "x"})]), number=1)
    part("changes", upto=LSN(0x1010))
    part("end", upto=LSN(0x1010))
    replica.deliver([inserts(table("old_orders", FIRST), 2, lsn=0x1020)])
    assert (ids(replica, "old_orders"), ids(replica, "orders")) == ([1, 2], [9])


@pytest.mark.parametrize("at", [(0x2010, 0x2020), (0x2020, 0x2010)])
def test_tables_that_swap_their_names_swap_them(replica: Replica, at: tuple[int, int]) -> None:
    replica.deliver([inserts(table("items", SECOND), 11, lsn=0x1010)])
    replica.deliver(
        [inserts(table("items", FIRST), 2, lsn=at[0])],
        [inserts(table("orders", SECOND), 12, lsn=at[1])],
    )
    assert (ids(replica, "items"), ids(replica, "orders")) == ([1, 2], [11, 12])


def test_changes_from_before_and_after_a_new_name_are_applied_in_order(replica: Replica) -> None:
    replica.deliver(
        [changes(table("sales", FIRST), [("update", {"id": 1, "v": "after"})], lsn=0x1020)],
        [changes(table("orders", FIRST), [("update", {"id": 1, "v": "before"})], lsn=0x1010)],
    )
    assert replica.rows("select id, v from sales") == [(1, "after")]
    assert replica.rows("select to_regclass('orders')") == [(None,)]
