"""``penstock dead-letters``: shown, tried again, and counted by ``status``."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.sinks.contract import Batch
from penstock.testing.change_batches import changes, relation
from tests.cli.command import Here, write_config
from tests.sinks.test_dead_letters import insert
from tests.sinks.test_postgres_sink import Replica, accounts

NOWHERE = "postgresql://me@127.0.0.1:1/shop"
FILES = {"name": "files", "type": "file", "path": "events"}
ORDERS = relation("public", "orders", id="integer", account="integer", key=("id",))


@pytest.fixture
def file(database: str, tmp_path: Path) -> Path:
    """The config of a pipeline whose replica has refused a row of each of two tables."""
    replica = Replica(database, tmp_path, pipeline="shop", on_error="dead_letter")
    replica.execute("create table accounts (id int primary key, email text check (email <> 'bad'), note text)")
    replica.execute("create table orders (id int primary key, account int constraint positive check (account > 0))")
    orders = [changes(ORDERS, [("insert", {"id": 7, "account": -1})], lsn=0x20)]
    replica.deliver(accounts(insert(1, "bad"), insert(2, "[bold]fine")), orders)
    replica.sink.close()
    sink = {"name": "replica", "type": "postgres", "url": database, "on_error": "dead_letter"}
    return write_config(tmp_path, NOWHERE, [sink, FILES])


def mend(database: str, table: str) -> None:
    with psycopg.connect(database) as connection:
        constraint = {"accounts": "accounts_email_check", "orders": "positive"}[table]
        connection.execute(f"alter table {table} drop constraint {constraint}".encode())


def test_list_shows_each_letter_with_its_reason(file: Path, penstock: Here) -> None:
    outcome = penstock("dead-letters", file, "list")
    assert (outcome.code, outcome.err) == (0, "")
    _, first, second = outcome.out.splitlines()
    assert first.split()[:6] == ["1", "replica", "public.accounts", "insert", "id=1", "0/10"]
    assert second.split()[:6] == ["2", "replica", "public.orders", "insert", "id=7", "0/20"]
    assert '"positive"' in second


def test_list_as_json_has_the_row(file: Path, penstock: Here) -> None:
    (found,) = penstock.json("dead-letters", file, "list", "--table", "orders", "--sink", "replica", "--json")
    reason, at = found.pop("reason"), found.pop("at")
    assert "violates check constraint" in reason
    assert at.startswith("20")
    assert found == {
        "id": 2, "sink": "replica", "schema": "public", "table": "orders", "op": "insert", "key": {"id": "7"},
        "row": {"id": "7", "account": "-1"}, "lsn": "0/20", "sequence": 1, "sqlstate": "23514", "constraint": "positive",
    }  # fmt: skip


def test_replay_ends_with_1_until_none_is_left(file: Path, database: str, penstock: Here) -> None:
    assert penstock("dead-letters", file, "replay").code == 1
    mend(database, "orders")
    outcome = penstock("dead-letters", file, "replay")
    assert outcome.code == 1
    assert "public.accounts" in outcome.out
    assert "public.orders" not in outcome.out
    assert "1 dead letter went in, 1 left." in outcome.err
    mend(database, "accounts")
    done = penstock("dead-letters", file, "replay", "--json")
    assert done.code == 0
    assert [(letter["table"], letter["id"]) for letter in json.loads(done.out)["replayed"]] == [("accounts", 1)]
    again = penstock("dead-letters", file, "replay")
    assert (again.code, again.out) == (0, "")
    assert "There are no dead letters." in penstock("dead-letters", file, "list").err
    with psycopg.connect(database) as connection:
        assert connection.execute("select id, email from accounts order by id").fetchall() == [
            (1, "bad"), (2, "[bold]fine"),
        ]  # fmt: skip


def test_replay_of_one_table_is_done_when_that_has_none_left(file: Path, database: str, penstock: Here) -> None:
    mend(database, "orders")
    assert penstock("dead-letters", file, "replay", "--table", "public.orders").code == 0
    assert [letter["table"] for letter in penstock.json("dead-letters", file, "list", "--json")] == ["accounts"]


def test_a_pipeline_that_delivers_meanwhile_goes_on_where_it_was(
    file: Path, database: str, tmp_path: Path, penstock: Here
) -> None:
    """The sink has prepared before, and hears nothing of the replay."""
    (sink, _) = Pipeline.from_file(file).sinks()
    sink.prepare()
    mend(database, "accounts")
    assert penstock("dead-letters", file, "replay").code == 1
    batch = Batch(1, LSN(0x1000), LSN(0x2000), str(tmp_path / "staging"))
    sink.commit(batch, [sink.write(batch, iter(accounts(("update", {"id": 1, "email": "later"}), lsn=0x1010)))])
    sink.close()
    with psycopg.connect(database) as connection:
        assert connection.execute("select email from accounts where id = 1").fetchall() == [("later",)]
        states = connection.execute("select state from penstock.dead_letters order by id").fetchall()
    assert states == [("replayed",), ("open",)]


def test_status_counts_them(file: Path, penstock: Here) -> None:
    replica, files = penstock.json("status", file, "--json")["sinks"]
    assert (replica["dead_letters"], files["dead_letters"]) == (2, None)
    assert "2 dead letters" in penstock("status", file).out


def test_a_target_that_does_not_answer_is_an_error_of_list_and_none_of_status(tmp_path: Path, penstock: Here) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/replica"
    sink = {"name": "replica", "type": "postgres", "url": url, "on_error": "dead_letter"}
    file = write_config(tmp_path, NOWHERE, [sink])
    outcome = penstock("dead-letters", file, "list")
    assert outcome.code == 1
    assert "127.0.0.1" in outcome.err
    assert "hunter2" not in outcome.err
    assert penstock.json("status", file, "--json")["sinks"][0]["dead_letters"] is None


def test_a_sink_that_keeps_none_is_told_so(file: Path, penstock: Here) -> None:
    outcome = penstock("dead-letters", file, "list", "--sink", "files")
    assert outcome.code == 2
    assert 'Sink "files" keeps no dead letters' in outcome.err
    assert penstock("dead-letters", file, "list", "--table", "public.").code == 2


def test_a_target_that_was_never_delivered_to_has_none(database: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, NOWHERE, [{"name": "replica", "type": "postgres", "url": database}])
    assert penstock.json("dead-letters", file, "list", "--json") == []
    assert penstock("dead-letters", file, "replay").code == 0


def test_only_sinks_that_keep_them_take_the_setting(tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, NOWHERE, [{**FILES, "on_error": "dead_letter"}])
    outcome = penstock("check", file)
    assert outcome.code == 2
    assert "sinks[0].on_error: sinks of this type keep no dead letters yet; use on_error: stop" in outcome.err
