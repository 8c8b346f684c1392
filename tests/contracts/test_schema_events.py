"""Sinks of events tell a table's definition before the first change that uses it: whenever it changes, after a restart too."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.changes.batch import Relation
from penstock.sinks.events import FormatName
from penstock.testing.change_batches import changes, relation
from tests.contracts.event_sink_under_test import EventSinkUnderTest
from tests.contracts.sink_under_test import deliver

FIRST = relation("public", "users", id="int4", name="text", key=("id",), oid=7)
WIDER = relation("public", "users", id="int4", name="text", age="int2", key=("id",), oid=7)
RETYPED = relation("public", "users", id="int8", name="text", age="float8", key=("id",), oid=7)
RENAMED = relation("public", "people", id="int8", called="text", age="float8", key=("id",), oid=7)
OTHER = relation("public", "orders", id="int8", paid="bool", key=("id",), oid=8)
AVRO = {"int2": "int", "int4": "int", "int8": "long", "float8": "double", "bool": "boolean", "text": "string"}


@pytest.fixture(params=["json", "pgsink"])
def sent(request: pytest.FixtureRequest, event_target: EventSinkUnderTest) -> EventSinkUnderTest:
    event_target.format = request.param
    return event_target


class Stream:
    """Batches with one row each of these definitions, in order."""

    def __init__(self, target: EventSinkUnderTest) -> None:
        self._target, self._sink, self._lsn = target, target.make(), 0

    def deliver(self, *definitions: Relation) -> None:
        self._lsn += 0x100
        rows = [
            changes(one, [("insert", {one.columns[0].name: number})], lsn=self._lsn + number)
            for number, one in enumerate(definitions)
        ]
        self._batch, self._rows = self._target.next_batch(self._lsn + 0x80), rows
        deliver(self._sink, self._batch, rows)

    def deliver_again(self) -> None:
        deliver(self._sink, self._batch, self._rows)

    def restart(self) -> None:
        self._sink = self._target.make()


def definition(relation: Relation, format: FormatName) -> tuple[str, list[Any]]:
    """What an event should say of it: names and types."""
    if format == "pgsink":
        fields = [(column.name, [AVRO[column.base], "null"]) for column in relation.columns]
        return f"{relation.schema}.{relation.table}", fields
    return f"{relation.schema}.{relation.table}", [(column.name, column.type_name) for column in relation.columns]


def story(target: EventSinkUnderTest) -> list[tuple[str, list[Any]] | str]:
    """Definitions as above, and for each change its table; each change has the columns of its table's last definition."""
    found: list[tuple[str, list[Any]] | str] = []
    known: dict[str, list[str]] = {}
    for event in target.events():
        if target.format == "pgsink" and "schema" in event:
            table, columns = event["schema"]["namespace"], [(f["name"], f["type"]) for f in event["schema"]["fields"]]
        elif event.get("op") == "schema":
            table, columns = f"{event['schema']}.{event['table']}", [(c["name"], c["type"]) for c in event["columns"]]
        else:
            names = ("namespace", "name") if target.format == "pgsink" else ("schema", "table")
            table = ".".join(event[name] for name in names)
            assert list(event["after"]) == known[table]
            found.append(table)
            continue
        known[table] = [name for name, _ in columns]
        found.append((table, columns))
    return found


def test_a_new_definition_comes_before_the_first_change_that_uses_it(sent: EventSinkUnderTest) -> None:
    stream = Stream(sent)
    stream.deliver(FIRST, OTHER, FIRST)
    stream.deliver(FIRST, WIDER, OTHER, RETYPED, RETYPED)
    stream.deliver(RETYPED, RENAMED)
    first, other, wider, retyped, renamed = (
        definition(one, sent.format) for one in (FIRST, OTHER, WIDER, RETYPED, RENAMED)
    )
    users, orders, people = "public.users", "public.orders", "public.people"
    assert story(sent) == [
        first, users, other, orders, users,
        users, wider, users, orders, retyped, users, users,
        users, renamed, people,
    ]  # fmt: skip


def test_a_definition_that_comes_back_is_told_again(sent: EventSinkUnderTest) -> None:
    stream = Stream(sent)
    stream.deliver(FIRST, WIDER)
    stream.deliver(FIRST)
    first, wider = definition(FIRST, sent.format), definition(WIDER, sent.format)
    assert story(sent) == [first, "public.users", wider, "public.users", first, "public.users"]


def test_tables_that_swap_their_names_are_told_anew(sent: EventSinkUnderTest) -> None:
    users = relation("public", "users", id="int8", paid="bool", key=("id",), oid=8)
    orders = relation("public", "orders", id="int4", name="text", key=("id",), oid=7)
    stream = Stream(sent)
    stream.deliver(FIRST, OTHER)
    stream.deliver(users, orders)
    told = [one for one in story(sent) if not isinstance(one, str)]
    assert told == [definition(one, sent.format) for one in (FIRST, OTHER, users, orders)]


def test_after_a_restart_a_changed_definition_comes_before_the_first_change_that_uses_it(
    sent: EventSinkUnderTest,
) -> None:
    stream = Stream(sent)
    stream.deliver(FIRST, OTHER)
    stream.restart()
    stream.deliver(OTHER, WIDER)
    told = [one for one in story(sent) if not isinstance(one, str)]
    again = [] if sent.keeps_progress else [OTHER]  # who begins to read has nothing of the run before
    assert told == [definition(one, sent.format) for one in (FIRST, OTHER, *again, WIDER)]


def test_a_batch_that_comes_again_after_a_restart_tells_its_definitions_with_its_changes(
    sent: EventSinkUnderTest,
) -> None:
    stream = Stream(sent)
    stream.deliver(FIRST)
    stream.deliver(WIDER)
    stream.restart()
    stream.deliver_again()
    first, wider, times = (
        definition(FIRST, sent.format),
        definition(WIDER, sent.format),
        1 if sent.keeps_progress else 2,
    )
    assert story(sent) == [first, "public.users", *[wider, "public.users"] * times]
