"""The Postgres sink against a real target: what its statements do to tables that somebody made, and to odd rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.postgres.sink import PostgresSink
from penstock.testing.change_batches import UNCHANGED, changes, relation
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.postgres.ticket_type import TICKET

ACCOUNTS = relation("public", "accounts", id="integer", email="text", note="text", key=("id",))


class Replica:
    """``deliver`` is one micro-batch of as many tasks as there are sequences of changes."""

    def __init__(self, url: str, directory: Path, pipeline: str = "", **settings: Any) -> None:
        self.url, self.directory, self._number = url, directory, 0
        self.sink = PostgresSink(PostgresSink.Settings(name="replica", type="postgres", url=SecretStr(url), **settings))
        self.sink.pipeline = pipeline
        self.sink.prepare()

    def close(self) -> None:
        self.sink.close()

    def deliver(self, *tasks: list[ChangeBatch]) -> None:
        batch = self.batch()
        self.sink.commit(batch, [self.sink.write(batch, iter(task)) for task in tasks])
        self._number += 1

    def batch(self) -> Batch:
        start = LSN(0x1000 * self._number)
        return Batch(self._number, start, LSN(start + 0x1000), str(self.directory / "staging"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Replica]:
    found = Replica(database, tmp_path)
    yield found
    found.sink.close()


def accounts(*rows: tuple[Any, ...], lsn: int = 0x10) -> list[ChangeBatch]:
    return [changes(ACCOUNTS, list(rows), lsn=lsn)]


def account(id: int, email: str, note: str = "") -> dict[str, Any]:
    return {"id": id, "email": email, "note": note}


def both(replica: Replica) -> None:
    replica.execute("create table accounts (id int primary key, email text unique, note text)")
    replica.deliver(accounts(("insert", account(1, "a")), ("insert", account(2, "b"))))


def test_two_rows_that_swap_a_unique_value_do(replica: Replica) -> None:
    both(replica)
    replica.deliver(accounts(("update", account(1, "b")), ("update", account(2, "a"))))
    assert replica.rows("select id, email from accounts order by id") == [(1, "b"), (2, "a")]


def test_a_unique_value_passes_on_between_the_tasks_of_a_batch(replica: Replica) -> None:
    both(replica)
    replica.deliver(accounts(("update", account(1, "b"))), accounts(("update", account(2, "c"))))
    replica.deliver(accounts(("insert", account(3, "b"))), accounts(("delete", None, {"id": 1})))
    assert replica.rows("select id, email from accounts order by id") == [(2, "c"), (3, "b")]


def test_a_unique_expression_counts_as_well(replica: Replica) -> None:
    both(replica)
    replica.deliver(accounts(("update", account(1, "a", "x")), ("update", account(2, "b", "Y"))))
    replica.execute("create unique index on accounts (lower(note))")
    replica.deliver(accounts(("update", account(1, "a", "y")), ("update", account(2, "b", "X"))))
    assert replica.rows("select id, note from accounts order by id") == [(1, "y"), (2, "X")]


def test_a_generated_column_that_is_unique_counts_as_well(replica: Replica) -> None:
    replica.execute(
        "create table accounts (id int primary key, email text, note text, "
        "low text generated always as (lower(email)) stored unique)"
    )
    replica.deliver(accounts(("insert", account(1, "a")), ("insert", account(2, "b"))))
    replica.deliver(accounts(("update", account(1, "b")), ("update", account(2, "a"))))
    assert replica.rows("select id, email from accounts order by id") == [(1, "b"), (2, "a")]


def test_a_condition_of_a_unique_index_is_one_of_its_columns(replica: Replica) -> None:
    replica.execute(
        "create table accounts (id int primary key, email text, note text); "
        "create unique index on accounts (email) where note = 'x'; create unique index on accounts (email) where note = 'y'"
    )
    replica.deliver(accounts(("insert", account(1, "a", "x")), ("insert", account(2, "a", "y"))))
    replica.deliver(accounts(("update", account(1, "a", "y")), ("update", account(2, "a", "x"))))
    assert replica.rows("select id, note from accounts order by id") == [(1, "y"), (2, "x")]


def test_an_index_that_only_a_partition_has_counts_as_well(replica: Replica) -> None:
    replica.execute(
        "create table accounts (id int primary key, email text, note text) partition by range (id); "
        "create table few partition of accounts for values from (0) to (100); create unique index on few (email)"
    )
    replica.deliver(accounts(("insert", account(1, "a")), ("insert", account(2, "b"))))
    replica.deliver(accounts(("update", account(1, "b")), ("update", account(2, "a"))))
    assert replica.rows("select id, email from accounts order by id") == [(1, "b"), (2, "a")]


def test_an_update_touches_only_the_rows_that_change_and_only_their_columns(replica: Replica) -> None:
    replica.execute("create table accounts (note text, extra int default 7, id int primary key, email text)")
    replica.deliver(accounts(("insert", account(1, "a")), ("insert", account(2, "b"))))
    replica.execute("update accounts set extra = 8 where id = 2")
    before = replica.rows("select xmin from accounts where id = 1")
    replica.deliver(accounts(("update", account(2, "c")), ("insert", account(3, "d"))))
    assert replica.rows("select id, email, extra from accounts order by id") == [(1, "a", 7), (2, "c", 8), (3, "d", 7)]
    assert replica.rows("select xmin from accounts where id = 1") == before


def test_an_update_of_a_row_that_somebody_removed_brings_it_back(replica: Replica) -> None:
    both(replica)
    replica.execute("delete from accounts where id = 1")
    replica.deliver(accounts(("update", account(1, "z")), ("update", account(2, "y"))))
    assert replica.rows("select id, email from accounts order by id") == [(1, "z"), (2, "y")]


def test_unchanged_toast_keeps_what_the_target_has_also_when_the_key_changes(replica: Replica) -> None:
    replica.deliver(accounts(("insert", account(1, "a", "long")), ("insert", account(2, "b", "other"))))
    kept = {"email": "new", "note": UNCHANGED}
    replica.deliver(accounts(("update", {"id": 1, **kept}), ("update", {"id": 9, **kept}, {"id": 2})))
    assert replica.rows("select id, email, note from accounts order by id") == [(1, "new", "long"), (9, "new", "other")]


def test_unchanged_toast_of_a_row_that_the_target_lacks_is_refused(replica: Replica) -> None:
    replica.deliver(accounts(("insert", account(1, "a"))))
    with pytest.raises(SinkRefused, match=r"public\.accounts where id = 5 keeps a value of note"):
        replica.deliver(accounts(("update", {"id": 5, "email": "x", "note": UNCHANGED})))
    assert replica.rows("select id from accounts") == [(1,)]
    replica.sink.prepare()
    replica.deliver(accounts(("insert", account(6, "b")), lsn=0x1010))
    assert replica.rows("select count(*) from accounts") == [(2,)]


def test_of_equal_rows_without_a_key_one_goes_for_every_delete(replica: Replica) -> None:
    readings = relation("public", "readings", identity="f", sensor="text", value="json")
    row = {"sensor": None, "value": '{"a": 1}'}
    replica.deliver([changes(readings, [("insert", row)] * 5, lsn=0x10)])
    replica.deliver([changes(readings, [("delete", None, row), ("update", {**row, "sensor": "x"}, row)], lsn=0x1010)])
    assert replica.rows("select sensor, count(*) from readings group by 1 order by 1") == [("x", 1), (None, 3)]


def test_a_row_without_a_key_goes_from_its_partition_alone(replica: Replica) -> None:
    """Rows of two partitions may be at the same place, each in its own."""
    replica.execute("create table readings (sensor int, value text) partition by list (sensor)")
    replica.execute("create table first partition of readings for values in (1)")
    replica.execute("create table rest partition of readings default")
    readings = relation("public", "readings", identity="f", sensor="integer", value="text")
    rows = [{"sensor": sensor, "value": "x"} for sensor in (1, 2)]
    replica.deliver([changes(readings, [("insert", row) for row in rows], lsn=0x10)])
    replica.deliver([changes(readings, [("delete", None, rows[0])], lsn=0x1010)])
    assert replica.rows("select sensor from readings") == [(2,)]


def test_the_rows_of_a_table_that_inherits_from_another_are_its_own(replica: Replica) -> None:
    replica.execute("create table parents (id int primary key, v text)")
    replica.execute("create table children (primary key (id)) inherits (parents)")
    parents = relation("public", "parents", id="integer", v="text", key=("id",), oid=1)
    children = relation("public", "children", id="integer", v="text", key=("id",), oid=2)
    rows = [("insert", {"id": id, "v": "x"}) for id in (1, 2, 3)]
    replica.deliver([changes(parents, rows, lsn=0x10), changes(children, rows, lsn=0x11)])
    replica.deliver([changes(parents, [("delete", None, {"id": 1}), ("update", {"id": 2, "v": "y"})], lsn=0x1010)])
    assert replica.rows("select id, v from only parents order by id") == [(2, "y"), (3, "x")]
    replica.deliver([changes(parents, [("truncate",)], lsn=0x2010)])
    assert replica.rows("select id, v from only parents") == []
    assert replica.rows("select id, v from children order by id") == [(1, "x"), (2, "x"), (3, "x")]


def test_unchanged_toast_of_a_domain_that_forbids_null_stays(database: str, tmp_path: Path) -> None:
    replica = Replica(database, tmp_path, schema="existing")
    replica.execute("create domain given as varchar(9) not null")
    replica.execute("create domain longer as given check (value is not null and length(value) > 2)")
    replica.execute("create table docs (id int primary key, n int, a given, b longer)")
    docs = relation("public", "docs", id="integer", n="integer", a="text", b="text", key=("id",))
    replica.deliver([changes(docs, [("insert", {"id": id, "n": 1, "a": "x", "b": "long"}) for id in (1, 2)], lsn=0x10)])
    kept = [
        ("update", {"id": 1, "n": 2, "a": UNCHANGED, "b": UNCHANGED}),
        ("update", {"id": 2, "a": "y", "b": UNCHANGED}),
    ]
    replica.deliver([changes(docs, kept, lsn=0x1010)])
    assert replica.rows("select n, a, b from docs order by id") == [(2, "x", "long"), (None, "y", "long")]
    with pytest.raises(SinkRefused, match="too long for type character varying"):
        replica.deliver([changes(docs, [("update", {"id": 1, "a": "x" * 10, "b": UNCHANGED})], lsn=0x2010)])
    replica.sink.close()


def test_a_key_of_a_type_with_operators_of_its_own_is_found(database: str, tmp_path: Path) -> None:
    replica = Replica(database, tmp_path, schema="existing")
    replica.execute(
        f"{TICKET} create domain seat as ticket; create table seats (row ticket, seat seat, v text, primary key (row, seat))"
    )
    seats = relation("public", "seats", row="integer", seat="integer", v="text", key=("row", "seat"))
    first = [("insert", {"row": 1, "seat": seat, "v": "x"}) for seat in (1, 2, 3)]
    replica.deliver([changes(seats, first, lsn=0x10)])
    more = [("update", {"row": 1, "seat": 2, "v": "y"}), ("delete", None, {"row": 1, "seat": 3})]
    replica.deliver([changes(seats, more, lsn=0x1010)])
    replica.deliver(
        [changes(seats, [("update", {"row": 2, "seat": 2, "v": UNCHANGED}, {"row": 1, "seat": 2})], lsn=0x2010)]
    )
    found = replica.rows("select row::text, seat::text, v from seats order by 1")
    assert found == [("1", "1", "x"), ("2", "2", "y")]
    replica.sink.close()


def test_identity_and_generated_columns_of_the_target_are_respected(replica: Replica) -> None:
    replica.execute(
        "create table accounts (id int generated always as identity primary key, email text, note text, "
        "domain text generated always as (split_part(email, '@', 2)) stored)"
    )
    wide = relation("public", "accounts", id="integer", email="text", note="text", domain="text", key=("id",))
    rows = [("insert", {"id": 4, "email": "x@y", "domain": "y"}), ("insert", {"id": 5, "email": "v@w", "domain": "w"})]
    replica.deliver([changes(wide, rows, lsn=0x10)])
    replica.deliver([changes(wide, [("update", {"id": 4, "email": "x@z", "domain": "z"})], lsn=0x1010)])
    assert replica.rows("select id, email, domain from accounts order by id") == [(4, "x@z", "z"), (5, "v@w", "w")]


def test_triggers_and_foreign_keys_of_the_target_do_not_fire(replica: Replica) -> None:
    both(replica)
    replica.execute("create table orders (id int primary key, account int references accounts on delete cascade)")
    replica.execute("insert into orders values (1, 1)")
    replica.deliver(accounts(("delete", None, {"id": 1})))
    assert replica.rows("select id, account from orders") == [(1, 1)]


def test_truncating_a_table_that_others_refer_to_leaves_theirs(replica: Replica) -> None:
    both(replica)
    replica.execute("create table orders (id int primary key, account int references accounts)")
    replica.execute("insert into orders values (1, 1)")
    replica.deliver(accounts(("truncate",), ("insert", account(1, "z"))))
    assert replica.rows("select id, email from accounts") == [(1, "z")]
    assert replica.rows("select count(*) from orders") == [(1,)]


def test_values_that_copy_escapes_arrive_as_they_are(replica: Replica) -> None:
    values = ["", "\\N", "\\.", "a\tb\nc\rd\\", "\\\\", "é\u2028", "'\";--"]
    replica.deliver(accounts(*(("insert", account(n, value, value)) for n, value in enumerate(values))))
    replica.deliver(accounts(*(("update", account(n, value + value, value)) for n, value in enumerate(values))))
    found = replica.rows("select email, note from accounts order by id")
    assert found == [(value + value, value) for value in values]


def test_a_batch_is_all_or_nothing(replica: Replica) -> None:
    both(replica)
    orders = relation("public", "orders", id="integer", key=("id",))
    bad = changes(orders, [("insert", {"id": "not a number"})], lsn=0x1020)
    with pytest.raises(SinkRefused, match="invalid input syntax for type integer"):
        replica.deliver(accounts(("delete", None, {"id": 1}), lsn=0x1010), [bad])
    assert replica.rows("select id from accounts order by id") == [(1,), (2,)]
    assert replica.rows("select lsn::text from penstock.progress") == [("0/1000",)]


def test_a_commit_whose_answer_was_lost_is_not_repeated(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is committed, and then the connection breaks: delivery asks for the position and goes on from there."""
    batch = replica.batch()
    receipts = [replica.sink.write(batch, iter(accounts(("insert", account(1, "a")))))]
    monkeypatch.setattr(psycopg.Transaction, "__exit__", _broken_after_commit)
    with pytest.raises(SinkUnavailable):
        replica.sink.commit(batch, receipts)
    monkeypatch.undo()
    assert replica.sink.prepare() == batch.end
    replica.sink.commit(batch, receipts)
    assert replica.rows("select id from accounts") == [(1,)]


_really = psycopg.Transaction.__exit__


def _broken_after_commit(self: psycopg.Transaction, *exception: Any) -> bool:
    _really(self, *exception)
    self.connection.close()
    raise psycopg.OperationalError("the connection is lost")


def test_a_target_that_was_set_back_is_noticed(replica: Replica) -> None:
    both(replica)
    replica.execute("update penstock.progress set lsn = '0/10'")
    with pytest.raises(SinkUnavailable, match="set back while we were running"):
        replica.deliver(accounts(("insert", account(3, "c")), lsn=0x1010))


def test_a_column_that_the_source_added_or_retyped_follows(replica: Replica) -> None:
    replica.deliver(accounts(("insert", account(1, "a", "5"))))
    wider = relation("public", "accounts", id="bigint", email="text", note="integer", more="text[]", key=("id",))
    replica.deliver([changes(wider, [("insert", {"id": 1 << 40, "note": 6, "more": "{x,NULL}"})], lsn=0x1010)])
    assert replica.rows("select * from accounts order by id") == [(1, "a", 5, None), (1 << 40, None, 6, ["x", None])]


def test_a_column_that_went_gives_way_to_a_new_one_of_its_name(replica: Replica) -> None:
    replica.deliver(accounts(("insert", account(1, "a", "x"))))
    shorter = relation("public", "accounts", id="bigint", email="text", key=("id",))
    replica.deliver([changes(shorter, [("insert", {"id": 2})], lsn=0x1010)])
    longer = relation("public", "accounts", id="bigint", email="text", note="integer", key=("id",))
    replica.deliver([changes(longer, [("insert", {"id": 3, "note": 6})], lsn=0x2010)])
    found = replica.rows("select id, note, note__before_1 from accounts order by id")
    assert found == [(1, None, "x"), (2, None, None), (3, 6, None)]


def test_values_that_a_columns_new_type_does_not_take_are_told_with_the_table_and_the_change(replica: Replica) -> None:
    replica.deliver(accounts(("insert", account(1, "a", "x"))))
    retyped = relation("public", "accounts", id="bigint", email="text", note="integer", key=("id",))
    with pytest.raises(SinkRefused) as refused:
        replica.deliver([changes(retyped, [("insert", {"id": 2, "note": 6})], lsn=0x1010)])
    said = str(refused.value)
    assert "public.accounts of the target cannot be altered to fit the source's (" in said
    assert 'ALTER COLUMN "note" TYPE integer' in said
    assert 'invalid input syntax for type integer: "x"' in said
    assert "alter the table there yourself; then start again" in str(refused.value.advice)


def test_a_column_follows_to_a_type_that_its_default_is_none_of(replica: Replica) -> None:
    replica.deliver(accounts(("insert", account(1, "a", "5"))))
    replica.execute("alter table accounts alter note set default 'none', alter email set default 'nobody'")
    retyped = relation("public", "accounts", id="bigint", email="text", note="integer", key=("id",))
    replica.deliver([changes(retyped, [("insert", {"id": 2, "note": 6})], lsn=0x1010)])
    assert replica.rows("select id, note from accounts order by id") == [(1, 5), (2, 6)]
    replica.execute("insert into accounts (id) values (3)")
    assert replica.rows("select email, note from accounts where id = 3") == [("nobody", None)]


def test_with_existing_tables_nothing_is_created_or_altered(database: str, tmp_path: Path) -> None:
    replica = Replica(database, tmp_path, schema="existing")
    with pytest.raises(SinkRefused, match=r"the target has no table public\.accounts"):
        replica.deliver(accounts(("insert", account(1, "a"))))
    replica.execute("create table accounts (id int primary key, email text)")
    with pytest.raises(SinkRefused, match=r"has no column note, which public\.accounts has"):
        replica.deliver(accounts(("insert", account(1, "a"))))
    replica.execute("alter table accounts add note varchar(10)")
    replica.deliver(accounts(("insert", account(1, "a", "short"))))
    assert replica.rows("select * from accounts") == [(1, "a", "short")]
    replica.sink.close()


@pytest.mark.parametrize("gone", ["drop table accounts", "alter table accounts rename to former"])
def test_a_table_that_somebody_takes_away_is_not_made_anew_without_its_rows(replica: Replica, gone: str) -> None:
    both(replica)
    replica.execute(gone)
    for _ in range(2):
        with pytest.raises(SinkRefused, match=r"public\.accounts, which held rows of the source, is gone") as refused:
            replica.deliver(accounts(("insert", account(3, "c")), lsn=0x1010))
        assert "resync public.accounts" in (refused.value.advice or "")
        replica.sink.prepare()
    if gone.startswith("drop"):
        Copy(replica, job=7).whole(account(1, "a"), account(2, "b"))
    else:
        replica.execute("alter table former rename to accounts")
    replica.deliver(accounts(("insert", account(3, "c")), lsn=0x1010))
    assert replica.rows("select id from accounts order by id") == [(1,), (2,), (3,)]


def test_a_renamed_table_is_renamed_and_one_that_takes_its_name_begins_empty(replica: Replica) -> None:
    def named(table: str, oid: int) -> Relation:
        return relation("public", table, id="integer", key=("id",), oid=oid)

    replica.deliver([changes(named("orders", 7), [("insert", {"id": 1})], lsn=0x10)])
    replica.deliver(
        [changes(named("old_orders", 7), [("insert", {"id": 2})], lsn=0x1010)],
        [changes(named("orders", 8), [("insert", {"id": 3})], lsn=0x1020)],
    )
    assert replica.rows("select id from old_orders order by id") == [(1,), (2,)]
    assert replica.rows("select id from orders") == [(3,)]


class Copy:
    """An import into the replica."""

    def __init__(self, replica: Replica, job: int = 1, table: Relation = ACCOUNTS) -> None:
        self.replica, self.job, self.table = replica, job, table

    def part(self, phase: Any, *some: ChangeBatch, **members: Any) -> None:
        sink = self.replica.sink
        batch = Batch(
            -1, LSN(0), LSN(0), str(self.replica.directory), ImportPart(self.job, self.table, phase, **members)
        )
        sink.commit(batch, [sink.write(batch, iter(some))])

    def whole(self, *rows: dict[str, Any]) -> None:
        self.part("begin")
        self.part("rows", changes(self.table, [("read", row) for row in rows]), number=1)
        self.part("changes", upto=LSN(0x100))
        self.part("end", upto=LSN(0x100))


def test_an_import_replaces_the_table_that_the_sink_made(replica: Replica) -> None:
    Copy(replica).whole(account(1, "a"), account(2, "b"))
    before = replica.rows("select 'accounts'::regclass::oid")
    Copy(replica, job=2).whole(account(2, "c"))
    assert replica.rows("select id, email from accounts") == [(2, "c")]
    assert replica.rows("select 'accounts'::regclass::oid") != before
    assert replica.rows(
        "select conname from pg_constraint where conrelid = 'accounts'::regclass and contype = 'p'"
    ) == [("accounts_pkey",)]


@pytest.mark.parametrize(
    "hangs_on_it",
    [
        "create view seen as select * from accounts",
        "create table orders (account int references accounts)",
        "grant select on accounts to public",
        "create function f() returns trigger language plpgsql as 'begin return new; end'; "
        "create trigger t before insert on accounts for each row execute function f()",
    ],
)
def test_an_import_replaces_the_rows_of_a_table_that_something_hangs_on(replica: Replica, hangs_on_it: str) -> None:
    Copy(replica).whole(account(1, "a"), account(2, "b"))
    before = replica.rows("select 'accounts'::regclass::oid")
    replica.execute(hangs_on_it)
    Copy(replica, job=2).whole(account(2, "c"), account(3, "d"))
    assert replica.rows("select id, email from accounts order by id") == [(2, "c"), (3, "d")]
    assert replica.rows("select 'accounts'::regclass::oid") == before
    assert replica.rows("select to_regclass('accounts__import_2')") == [(None,)]


def test_an_import_fills_an_empty_table_that_somebody_made_and_never_drops_it(replica: Replica) -> None:
    replica.execute("create table accounts (note text, extra int default 7, id int primary key, email text)")
    before = replica.rows("select 'accounts'::regclass::oid")
    for job in (1, 2):
        Copy(replica, job).whole(account(job, "a"))
        assert replica.rows("select id, email, extra from accounts") == [(job, "a", 7)]
    assert replica.rows("select 'accounts'::regclass::oid") == before


def test_an_import_adds_the_columns_that_a_table_of_somebody_else_lacks(replica: Replica) -> None:
    replica.execute("create table accounts (id int primary key)")
    Copy(replica).whole(account(1, "a", "n"))
    assert replica.rows("select id, email, note from accounts") == [(1, "a", "n")]


def test_an_import_into_existing_tables_stops_at_a_column_that_one_lacks(database: str, tmp_path: Path) -> None:
    replica = Replica(database, tmp_path, schema="existing")
    replica.execute("create table accounts (id int primary key, email text)")
    with pytest.raises(SinkRefused, match=r"public\.accounts of the target has no column note"):
        Copy(replica).whole(account(1, "a", "n"))
    replica.close()


def test_an_import_refuses_to_replace_rows_that_did_not_come_from_the_source(replica: Replica) -> None:
    replica.execute("create table accounts (id int primary key, email text, note text)")
    replica.execute("insert into accounts values (1, 'theirs')")
    with pytest.raises(SinkRefused, match=r"public\.accounts of the target has rows that did not come from the source"):
        Copy(replica).part("begin")
    assert replica.rows("select id, email from accounts") == [(1, "theirs")]


def test_a_table_that_is_being_filled_and_somebody_drops_is_refused_not_begun_anew(replica: Replica) -> None:
    copy = Copy(replica)
    copy.part("begin")
    copy.part("rows", changes(ACCOUNTS, [("read", account(1, "a"))]), number=1)
    replica.execute("drop table accounts__import_1")
    more = [changes(ACCOUNTS, [("read", account(2, "b"))])]
    later: list[tuple[str, list[ChangeBatch], dict[str, Any]]] = [
        ("rows", more, {"number": 2}), ("changes", [], {"upto": LSN(0x100)}), ("end", [], {"upto": LSN(0x100)}),
    ]  # fmt: skip
    for phase, some, members in later:
        with pytest.raises(SinkRefused, match=r"public\.accounts__import_1, which an import is filling, is gone"):
            copy.part(phase, *some, **members)


def test_a_character_that_the_targets_encoding_lacks_is_refused_with_the_table(
    postgres18: EmbeddedPostgres, tmp_path: Path
) -> None:
    postgres18.execute("create database latin template template0 encoding latin1 lc_collate 'C' lc_ctype 'C'")
    replica = Replica(postgres18.url_of("latin"), tmp_path)
    replica.deliver(accounts(("insert", account(1, "Grüße")), lsn=0x10))
    with pytest.raises(SinkRefused, match=r"has no equivalent in encoding \"LATIN1\".*accounts"):
        replica.deliver(accounts(("insert", account(2, "🐘")), lsn=0x1010))
    assert replica.rows("select email from accounts") == [("Grüße",)]
    replica.sink.close()
    postgres18.drop_database("latin")
