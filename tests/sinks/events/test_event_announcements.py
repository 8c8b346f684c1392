from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.changes.batch import ChangeBatch
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.events.formats.json import JsonFormat
from penstock.sinks.events.lines import Delivery, EventReceipt, delivery, merged_lines, stage_events
from penstock.testing.change_batches import changes, messages, relation

USERS = relation("public", "users", id="int8", key=("id",))
USERS_LATER = relation("public", "users", id="int8", name="text", key=("id",))
ORDERS = relation("public", "orders", id="int8", key=("id",))


def receipt(tmp_path: Path, *batches: ChangeBatch) -> EventReceipt:
    batch = Batch(0, LSN(0), LSN(0x1000), str(tmp_path))
    return stage_events(batch, iter(batches), JsonFormat())


def events(due: Delivery) -> list[Any]:
    text = b"".join(buffer.to_pybytes() for buffer in merged_lines(due.runs)).decode()
    return [json.loads(line) for line in text.split("\n")[:-1]]


def story(due: Delivery) -> list[tuple[str, str, int]]:
    return [(event["op"], event.get("table", ""), event["sequence"]) for event in events(due)]


def test_a_definition_comes_directly_before_its_tables_first_change(tmp_path: Path) -> None:
    users = changes(USERS, [("insert", {"id": i}) for i in (1, 2)], sequence=[1, 4])
    orders = changes(ORDERS, [("insert", {"id": i}) for i in (1, 2)], sequence=[2, 3])
    due = delivery([receipt(tmp_path, orders), receipt(tmp_path, users)], JsonFormat(), {}, None)
    assert story(due) == [
        ("schema", "users", 0),
        ("insert", "users", 1),
        ("schema", "orders", 1),
        ("insert", "orders", 2),
        ("insert", "orders", 3),
        ("insert", "users", 4),
    ]


def test_a_definition_is_announced_once(tmp_path: Path) -> None:
    first = receipt(tmp_path, changes(USERS, [("insert", {"id": 1})]))
    announced = delivery([first, first], JsonFormat(), {}, None).announced
    assert announced == {'"public"."users"': USERS.fingerprint}
    assert story(delivery([first], JsonFormat(), announced, None)) == [("insert", "users", 1)]


def test_a_changed_definition_is_announced_where_it_changes_even_within_a_transaction(tmp_path: Path) -> None:
    before = changes(USERS, [("insert", {"id": 1})], sequence=1)
    after = changes(USERS_LATER, [("insert", {"id": 2, "name": "Ada"})], sequence=2)
    due = delivery([receipt(tmp_path, after, before)], JsonFormat(), {}, None)
    assert story(due) == [
        ("schema", "users", 0), ("insert", "users", 1), ("schema", "users", 1), ("insert", "users", 2),
    ]  # fmt: skip
    assert due.announced == {'"public"."users"': USERS_LATER.fingerprint}


def test_what_was_delivered_before_is_left_out_and_the_definition_moves_to_what_is_left(tmp_path: Path) -> None:
    users = changes(USERS, [("insert", {"id": i}) for i in (1, 2, 3)], lsn=[0x100, 0x200, 0x300], sequence=[1, 5, 1])
    orders = changes(ORDERS, [("insert", {"id": 9})], lsn=0x100)
    due = delivery([receipt(tmp_path, users, orders)], JsonFormat(), {}, LSN(0x200))
    found = [(event["op"], event["table"], event["lsn"], event["sequence"]) for event in events(due)]
    assert found == [
        ("schema", "users", "0/200", 4), ("insert", "users", "0/200", 5), ("insert", "users", "0/300", 1),
    ]  # fmt: skip
    assert list(due.announced) == ['"public"."users"']


def test_names_with_dots_do_not_collide(tmp_path: Path) -> None:
    one = changes(relation("a.b", "c", id="int8", oid=1), [("insert", {"id": 1})])
    other = changes(relation("a", "b.c", id="int8", oid=1), [("insert", {"id": 1})], sequence=2)
    assert len(delivery([receipt(tmp_path, one, other)], JsonFormat(), {}, None).announced) == 2


def test_messages_have_no_definition(tmp_path: Path) -> None:
    due = delivery([receipt(tmp_path, messages([("p", b"x")]))], JsonFormat(), {}, None)
    assert story(due) == [("message", "", 1)]


def test_nothing_written_is_nothing_due(tmp_path: Path) -> None:
    due = delivery([receipt(tmp_path)], JsonFormat(), {}, LSN(1))
    assert events(due) == []
