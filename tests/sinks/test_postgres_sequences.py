"""TRUNCATE … RESTART IDENTITY into a target whose tables own sequences."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from penstock.lsn import LSN
from penstock.testing.change_batches import changes, relation
from tests.sinks.test_postgres_sink import Copy, Replica
from tests.target_roles import new_role, role_of

ITEMS = relation("public", "items", id="integer", name="text", key=("id",))
RESTART = "truncate restart identity"

TABLES = {
    "serial": "create table items (id serial primary key, name text); alter sequence items_id_seq start 101",
    "identity": "create table items (id int generated always as identity (start with 101) primary key, name text)",
    "referred to": "create table items (id serial primary key, name text); alter sequence items_id_seq start 101; "
    "create table others (item int references items)",
}


def own(replica: Replica, table: str = "serial") -> None:
    replica.execute(TABLES[table])
    replica.deliver([changes(ITEMS, [("insert", {"id": 1, "name": "a"})])])
    replica.execute("select setval('items_id_seq', 500)")


def next_id(replica: Replica) -> int:
    return int(replica.rows("select nextval('items_id_seq')")[0][0])


@pytest.mark.parametrize("database", [16, 18], indirect=True)
@pytest.mark.parametrize("table", TABLES)
def test_a_sequence_of_the_target_starts_where_its_own_definition_says(
    database: str, tmp_path: Path, table: str
) -> None:
    with closing(Replica(database, tmp_path, schema="existing")) as replica:
        own(replica, table)
        replica.deliver([changes(ITEMS, [(RESTART,), ("insert", {"id": 7, "name": "b"}), ("truncate",)], lsn=0x1010)])
        assert replica.rows("select count(*) from items") == [(0,)]
        assert next_id(replica) == 101


def test_a_plain_truncate_leaves_sequences_alone(database: str, tmp_path: Path) -> None:
    with closing(Replica(database, tmp_path, schema="existing")) as replica:
        own(replica)
        replica.deliver([changes(ITEMS, [("truncate",)], lsn=0x1010)])
        assert next_id(replica) == 501


def test_a_sequence_restarts_with_its_table_while_that_is_imported(database: str, tmp_path: Path) -> None:
    with closing(Replica(database, tmp_path, schema="existing")) as replica:
        replica.execute(TABLES["serial"])
        replica.execute("select setval('items_id_seq', 500)")
        copy = Copy(replica, table=ITEMS)
        copy.part("begin")
        copy.part("rows", changes(ITEMS, [("read", {"id": 1, "name": "a"})]), number=1)
        copy.part("changes", changes(ITEMS, [(RESTART,), ("insert", {"id": 2, "name": "b"})]), upto=LSN(0x200))
        copy.part("end", upto=LSN(0x200))
        assert replica.rows("select id, name from items") == [(2, "b")]
        assert next_id(replica) == 101


def test_a_role_without_the_right_to_set_a_sequence_is_told_which_grant_it_lacks(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limited = new_role(
        database,
        'grant create, temporary on database "{database}" to {role}',
        TABLES["serial"],
        "grant all on items to {role}",
    )
    with closing(Replica(limited, tmp_path, schema="existing")) as replica, caplog.at_level(logging.WARNING):
        replica.deliver([changes(ITEMS, [(RESTART,), ("insert", {"id": 7, "name": "b"})])])
        assert replica.rows("select id from items") == [(7,)]
    assert f'GRANT UPDATE ON SEQUENCE "public"."items_id_seq" TO "{role_of(limited)}"' in caplog.text
