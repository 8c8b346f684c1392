"""The Postgres sink with a role that may not turn foreign keys off: a batch keeps them, or is refused with their name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import ImportPart
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.sinks.test_postgres_sink import Replica
from tests.target_roles import as_superuser, new_role, role_of

CUSTOMERS = relation("public", "customers", id="integer", email="text", key=("id",))
ORDERS = relation("public", "orders", id="integer", customer="integer", note="text", key=("id",))
STAFF = relation("public", "staff", id="integer", boss="integer", key=("id",))


def customer(id: int, email: str = "") -> dict[str, Any]:
    return {"id": id, "email": email or f"c{id}"}


def order(id: int, customer: int, note: Any = "") -> dict[str, Any]:
    return {"id": id, "customer": customer, "note": note}


def employee(id: int, boss: int | None) -> dict[str, Any]:
    return {"id": id, "boss": boss}


def gone(id: int) -> tuple[str, None, dict[str, int]]:
    return "delete", None, {"id": id}


class Shop(Replica):
    """The role of ``url`` may do what it likes to the tables, but for what only a superuser may. ``mine``: its superuser."""

    def __init__(self, superuser: str, directory: Path) -> None:
        self.mine = superuser
        role = new_role(
            superuser, 'grant create on database "{database}" to {role}', "grant all on schema public to {role}"
        )
        super().__init__(role, directory)

    def batch_of(self, **rows: list[Any]) -> None:
        """One batch; the tables' changes in one task, in this order."""
        relations = {"customers": CUSTOMERS, "orders": ORDERS, "staff": STAFF}
        lsn = 0x1000 * self._number + 0x10
        self.deliver(
            [changes(relations[name], some, lsn=lsn + place) for place, (name, some) in enumerate(rows.items())]
        )

    def both(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        return (
            self.rows("select id, email from customers order by id"),
            self.rows("select id, customer, note from orders order by id"),
        )


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(database, tmp_path)
    yield found
    found.sink.close()


def tables(shop: Shop, action: str = "", customers: str = "") -> None:
    shop.execute(f"create table customers (id int primary key, email text unique{customers})")
    shop.execute(
        "create table orders (id int primary key, note text, "
        f"customer int constraint of_whom references customers {action})"
    )


ACTIONS = ["", "on delete cascade on update cascade", "on delete restrict", "on delete set null", "deferrable"]


@pytest.mark.parametrize("children_first", [True, False])
@pytest.mark.parametrize("action", ACTIONS)
def test_parents_come_before_their_children_and_go_after_them(shop: Shop, action: str, children_first: bool) -> None:
    tables(shop, action)
    insert = {"customers": [("insert", customer(1)), ("insert", customer(2))], "orders": [("insert", order(10, 1))]}
    moved = {
        "customers": [gone(1), ("insert", customer(3))],
        "orders": [("update", order(10, 3, "moved")), ("insert", order(11, 2))],
    }
    removed = {"customers": [gone(3)], "orders": [gone(10)]}
    for batch in (insert, moved, removed):
        named: list[tuple[str, Any]] = list(batch.items())
        shop.batch_of(**dict(reversed(named) if children_first else named))
        if batch is moved:
            assert shop.both() == ([(2, "c2"), (3, "c3")], [(10, 3, "moved"), (11, 2, "")])
    assert shop.both() == ([(2, "c2")], [(11, 2, "")])


@pytest.mark.parametrize("action", ACTIONS)
def test_a_unique_value_of_a_parent_changes_and_its_children_stay(shop: Shop, action: str) -> None:
    tables(shop, action)
    shop.batch_of(
        customers=[("insert", customer(1, "a")), ("insert", customer(2, "b"))], orders=[("insert", order(10, 1))]
    )
    shop.batch_of(customers=[("update", customer(2, "c")), ("update", customer(1, "b"))])
    assert shop.both() == ([(1, "b"), (2, "c")], [(10, 1, "")])


@pytest.mark.parametrize("action", ACTIONS)
def test_a_parents_key_changes_and_its_children_follow_with_what_was_not_sent_again(shop: Shop, action: str) -> None:
    tables(shop, action)
    shop.batch_of(customers=[("insert", customer(1, "a"))], orders=[("insert", order(10, 1, "long"))])
    shop.batch_of(customers=[("update", customer(5, "b"), {"id": 1})], orders=[("update", order(10, 5, UNCHANGED))])
    assert shop.both() == ([(5, "b")], [(10, 5, "long")])


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_parts_of_several_tasks_are_one_batch(shop: Shop) -> None:
    tables(shop)
    shop.deliver(
        [changes(ORDERS, [("insert", order(10, 1))], lsn=0x10)],
        [changes(CUSTOMERS, [("insert", customer(1))], lsn=0x10)],
        [changes(CUSTOMERS, [("insert", customer(2))], lsn=0x10)],
        [changes(ORDERS, [("insert", order(11, 2))], lsn=0x10)],
    )
    shop.deliver(
        [changes(CUSTOMERS, [gone(1), ("update", customer(9, "x"))], lsn=0x1010)],
        [changes(CUSTOMERS, [("update", customer(2, "new"))], lsn=0x1010)],
        [changes(ORDERS, [("update", order(10, 2))], lsn=0x1010)],
        [changes(ORDERS, [("update", order(11, 9))], lsn=0x1010)],
    )
    assert shop.both() == ([(2, "new"), (9, "x")], [(10, 2, ""), (11, 9, "")])


def test_changes_that_one_task_cuts_in_pieces_keep_their_order(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.postgres.staging._NET_BYTES", 1)
    tables(shop)
    pieces: list[ChangeBatch] = [
        changes(CUSTOMERS, [("insert", customer(1))], lsn=0x10),
        changes(CUSTOMERS, [gone(1)], lsn=0x20),
        changes(CUSTOMERS, [("insert", customer(2))], lsn=0x30),
        changes(CUSTOMERS, [("update", customer(2, "new"))], lsn=0x40),
    ]
    shop.deliver(pieces)
    assert shop.both() == ([(2, "new")], [])


@pytest.mark.parametrize("deferrable", ["", "deferrable"])
def test_rows_of_a_table_that_refers_to_itself_come_and_go_in_any_order(shop: Shop, deferrable: str) -> None:
    shop.execute(f"create table staff (id int primary key, boss int references staff {deferrable})")
    shop.batch_of(staff=[("insert", employee(1, None)), ("insert", employee(2, 1)), ("insert", employee(3, 2))])
    shop.batch_of(
        staff=[("update", employee(3, 4)), ("insert", employee(4, 5)), ("insert", employee(5, None)), gone(2)]
    )
    assert shop.rows("select id, boss from staff order by id") == [(1, None), (3, 4), (4, 5), (5, None)]
    shop.batch_of(staff=[gone(5), gone(4), ("update", employee(3, 3)), gone(1)])
    assert shop.rows("select id, boss from staff order by id") == [(3, 3)]
    shop.batch_of(staff=[gone(3)])
    assert shop.rows("select id from staff") == []


class History:
    """Transactions that keep all foreign keys, one change after the other, and what the tables hold then."""

    def __init__(self, seed: str) -> None:
        self._random, self._made = Random(seed), 0
        self.customers: dict[int, str] = {}
        self.orders: dict[int, int] = {}
        self.staff: dict[int, int | None] = {}

    def changes(self, count: int) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"orders": [], "staff": [], "customers": []}
        for _ in range(count):
            kind = self._random.choice(list(found))
            found[kind] += getattr(self, f"_change_{kind}")()
        return {name: some for name, some in found.items() if some}

    def _new(self) -> int:
        self._made += 1
        return self._made

    def _change_customers(self) -> list[Any]:
        free = [id for id in self.customers if id not in self.orders.values()]
        kind = self._random.choice(["insert", "update", "delete"])
        if kind == "delete" and free:
            del self.customers[id := self._random.choice(free)]
            return [gone(id)]
        id = self._random.choice(list(self.customers)) if kind == "update" and self.customers else self._new()
        verb = "update" if id in self.customers else "insert"
        self.customers[id] = f"e{self._new()}"
        return [(verb, customer(id, self.customers[id]))]

    def _change_orders(self) -> list[Any]:
        kind = self._random.choice(["insert", "update", "update", "delete"])
        if kind == "delete" and self.orders:
            del self.orders[id := self._random.choice(list(self.orders))]
            return [gone(id)]
        if not self.customers:
            return []
        id = self._random.choice(list(self.orders)) if kind == "update" and self.orders else self._new()
        verb = "update" if id in self.orders else "insert"
        self.orders[id] = self._random.choice(list(self.customers))
        return [(verb, order(id, self.orders[id]))]

    def _change_staff(self) -> list[Any]:
        free = [id for id in self.staff if all(boss != id or other == id for other, boss in self.staff.items())]
        kind = self._random.choice(["insert", "update", "delete"])
        if kind == "delete" and free:
            del self.staff[id := self._random.choice(free)]
            return [gone(id)]
        id = self._random.choice(list(self.staff)) if kind == "update" and self.staff else self._new()
        verb = "update" if id in self.staff else "insert"
        self.staff[id] = self._random.choice([None, id, *self.staff])
        return [(verb, employee(id, self.staff[id]))]


@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_keeps_the_foreign_keys_in_the_source_does_so_batch_by_batch(shop: Shop, action: str) -> None:
    tables(shop, action)
    shop.execute(f"create table staff (id int primary key, boss int references staff {action})")
    history = History(action)
    for count in [3, 40, 1, 15, 60, 5, 30, 100] * 3:
        shop.batch_of(**history.changes(count))
        assert dict(shop.rows("select id, email from customers")) == history.customers
        assert dict(shop.rows("select id, customer from orders")) == history.orders
        assert dict(shop.rows("select id, boss from staff")) == history.staff


def circle(shop: Shop, deferrable: str) -> None:
    tables(shop, deferrable, ", latest int")
    shop.execute(
        f"alter table customers add constraint latest_order foreign key (latest) references orders {deferrable}"
    )


RELATED = relation("public", "customers", id="integer", email="text", latest="integer", key=("id",))


def both_of_a_circle() -> list[ChangeBatch]:
    return [
        changes(RELATED, [("insert", {**customer(1), "latest": 10})], lsn=0x10),
        changes(ORDERS, [("insert", order(10, 1))], lsn=0x11),
    ]


def test_tables_that_refer_to_each_other_are_written_where_their_constraints_can_wait(shop: Shop) -> None:
    circle(shop, "deferrable")
    shop.deliver(both_of_a_circle())
    shop.deliver(
        [changes(RELATED, [gone(1)], lsn=0x1010), changes(ORDERS, [gone(10)], lsn=0x1011)],
    )
    assert shop.both() == ([], [])


def test_tables_that_refer_to_each_other_at_once_are_refused_with_the_constraint_and_the_remedy(shop: Shop) -> None:
    circle(shop, "")
    with pytest.raises(SinkRefused) as refused:
        shop.deliver(both_of_a_circle())
    role = role_of(shop.url)
    assert "latest_order" in str(refused.value) or "of_whom" in str(refused.value)
    assert refused.value.advice is not None
    assert f'GRANT SET ON PARAMETER session_replication_role TO "{role}"' in refused.value.advice
    assert 'ALTER CONSTRAINT "' in refused.value.advice
    assert shop.both() == ([], [])

    remedy = refused.value.advice.split("as the table's owner: ")[1].split(";")[0]
    shop.execute(remedy)
    shop.sink.prepare()
    shop.deliver(both_of_a_circle())
    assert shop.both()[1] == [(10, 1, "")]


def test_a_truncated_parent_is_emptied_after_its_children(shop: Shop) -> None:
    tables(shop)
    shop.batch_of(customers=[("insert", customer(1))], orders=[("insert", order(10, 1))])
    shop.batch_of(customers=[("truncate",), ("insert", customer(2))], orders=[("truncate",), ("insert", order(11, 2))])
    assert shop.both() == ([(2, "c2")], [(11, 2, "")])


@pytest.mark.parametrize("action", ACTIONS)
def test_a_parent_that_is_copied_again_keeps_its_children(shop: Shop, action: str) -> None:
    shop.batch_of(customers=[("insert", customer(1)), ("insert", customer(2)), ("insert", customer(4))])
    shop.execute(
        "create table orders (id int primary key, note text, "
        f"customer int constraint of_whom references customers {action})"
    )
    shop.batch_of(orders=[("insert", order(10, 1))])
    import_of(shop, CUSTOMERS, [("read", customer(1, "new")), ("read", customer(3)), ("read", customer(4))])
    assert shop.both() == ([(1, "new"), (3, "c3"), (4, "c4")], [(10, 1, "")])
    shop.batch_of(orders=[("insert", order(11, 3))])
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        shop.execute("insert into orders (id, customer) values (12, 99)")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_parent_that_is_copied_again_may_be_ahead_of_its_children(shop: Shop, action: str) -> None:
    shop.batch_of(customers=[("insert", customer(1)), ("insert", customer(2))])
    shop.execute(
        "create table orders (id int primary key, note text, "
        f"customer int constraint of_whom references customers {action})"
    )
    shop.batch_of(orders=[("insert", order(10, 1, "kept"))])
    import_of(shop, CUSTOMERS, [("read", customer(2)), ("read", customer(3))])
    assert shop.both() == ([(2, "c2"), (3, "c3")], [(10, 1, "kept")])
    shop.batch_of(orders=[("update", order(10, 3, UNCHANGED))])
    assert shop.both() == ([(2, "c2"), (3, "c3")], [(10, 3, "kept")])
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        shop.execute("insert into orders (id, customer) values (12, 1)")


def import_of(shop: Replica, table: Relation, rows: list[Any]) -> None:
    batch = shop.batch()
    for phase in ("begin", "rows", "end"):
        part = ImportPart(1, table, phase, 1, upto=LSN(0x9000) if phase == "end" else None)
        of_part = type(batch)(-1, batch.start, batch.end, batch.staging, part)
        receipts = [shop.sink.write(of_part, iter([changes(table, rows)]))] if phase == "rows" else []
        shop.sink.commit(of_part, receipts)


@pytest.mark.parametrize("at_work", [True, False])
def test_a_foreign_key_of_a_copy_that_is_ahead_of_what_it_refers_to_becomes_valid_when_that_has_come(
    database: str, target_database: str, tmp_path: Path, at_work: bool
) -> None:
    """The source has both rows; the parent's comes by the stream, the child's with an import."""
    as_superuser(
        database,
        "create table customers (id int primary key, email text)",
        "create table orders (id int primary key, customer int constraint of_whom references customers, note text)",
    )
    oids = [
        oid for name in ("customers", "orders") for (oid,) in asked(database, f"select '{name}'::regclass::oid::int")
    ]
    customers = replace(CUSTOMERS, oid=oids[0])
    orders = replace(ORDERS, oid=oids[1])
    rights = 'grant create on database "{database}" to {role}', "grant all on schema public to {role}"
    replica = Replica(new_role(target_database, *rights) if at_work else target_database, tmp_path)
    replica.sink.source = database
    replica.sink.prepare()
    replica.deliver([changes(customers, [("insert", customer(1))], lsn=0x10)])
    import_of(replica, orders, [("read", order(10, 1)), ("read", order(11, 2))])
    is_valid = "select convalidated from pg_constraint where conname = 'of_whom'"
    assert replica.rows(is_valid) == [(False,)]
    replica.deliver([changes(customers, [("insert", customer(2))], lsn=0x1010)])
    replica.sink.close()  # what the stream does not tell is settled now, or every ten seconds
    assert replica.rows(is_valid) == [(True,)]


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()
