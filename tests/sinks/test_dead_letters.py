"""Rows that a Postgres target refuses: named when they stop the sink, set aside when they shall not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.changes.batch import ChangeBatch
from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.postgres.dead_letters import LetterBox
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.sinks.test_postgres_sink import Copy, Replica, account, accounts
from tests.target_roles import new_role

ORDERS = relation("public", "orders", id="integer", account="integer", key=("id",))
GONE = ("delete", None, {"id": 1})
NO_BAD = "check (email <> 'bad')"


class Letters(Replica):
    """A target with a table of somebody's own making, which may refuse rows."""

    def __init__(self, url: str, directory: Path, on_error: str = "dead_letter", **settings: Any) -> None:
        super().__init__(url, directory, on_error=on_error, **settings)

    def accounts(self, constraint: str = "", email: str = "text", note: str = "text") -> None:
        more = f", {constraint}" if constraint else ""
        self.execute(f"create table accounts (id int primary key, email {email}, note {note}{more})")

    def changed(self, *rows: tuple[Any, ...]) -> None:
        self.deliver(accounts(*rows, lsn=0x1000 * self._number + 0x10))

    @property
    def emails(self) -> list[tuple[Any, ...]]:
        return self.rows("select id, email from accounts order by id")

    def letters(self, state: str = "open") -> list[tuple[Any, ...]]:
        return self.rows(f"select op, key->>'id' from penstock.dead_letters where state = '{state}' order by id")

    def replay(self) -> list[tuple[str, Any]]:
        """What is left."""
        return [(letter.op, letter.key.get("id")) for letter in self.sink.dead_letters().replay().left]


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Letters]:
    found = Letters(database, tmp_path)
    yield found
    found.sink.close()


@pytest.fixture
def strict(database: str, tmp_path: Path) -> Iterator[Letters]:
    """``on_error: stop``."""
    found = Letters(database, tmp_path, on_error="stop")
    yield found
    found.sink.close()


def insert(id: int, email: str | None, note: Any = "") -> tuple[Any, ...]:
    return "insert", {"id": id, "email": email, "note": note}


def update(id: int, email: str | None, note: Any = "", was: int | None = None) -> tuple[Any, ...]:
    row = {"id": id, "email": email, "note": note}
    return ("update", row) if was is None else ("update", row, {"id": was})


def refusal(replica: Replica, *rows: tuple[Any, ...]) -> SinkRefused:
    with pytest.raises(SinkRefused) as refused:
        replica.deliver(accounts(*rows, lsn=0x1000 * replica._number + 0x10))
    return refused.value


# on_error: stop


def test_the_error_names_table_key_constraint_and_commit(strict: Letters) -> None:
    strict.accounts(f"constraint no_bad {NO_BAD}")
    rows = [changes(ORDERS, [("insert", {"id": n}) for n in range(50)], lsn=0x10)]
    some = [insert(n, f"e{n}") for n in range(40)]
    tasks = [changes(accounts_(), some, lsn=0x20), changes(accounts_(), [insert(77, "bad")], lsn=0x2A0)]
    with pytest.raises(SinkRefused) as refused:
        strict.deliver(rows, tasks)
    assert "insert of public.accounts where id = 77, committed at 0/2A0" in refused.value.message
    assert '"no_bad"' in refused.value.message
    assert "Then start again: nothing was skipped." in (refused.value.advice or "")
    assert strict.emails == []
    assert strict.rows("select count(*) from penstock.progress") == [(0,)]
    assert strict.letters() == []


def accounts_() -> Any:
    return accounts(insert(0, ""))[0].relation


def test_a_unique_value_of_a_foreign_row_is_named_with_what_to_do(strict: Letters) -> None:
    strict.accounts("unique (email)")
    strict.execute("insert into accounts values (99, 'taken', '')")
    error = refusal(strict, insert(1, "a"), insert(2, "taken"), insert(3, "c"))
    assert "insert of public.accounts where id = 2" in error.message
    assert "accounts_email_key" in error.message
    assert "Remove the row that is in the way, or resync the table" in (error.advice or "")


def test_a_refused_delete_is_named(database: str, tmp_path: Path) -> None:
    strict = without_replication_role(database, tmp_path, "stop")
    strict.accounts()
    strict.changed(insert(1, "a"), insert(2, "b"))
    strict.execute("create table hangers (id int constraint hangs references accounts)")
    strict.execute("insert into hangers values (1)")
    error = refusal(strict, update(2, "c"), GONE)
    assert "delete of public.accounts where id = 1" in error.message
    assert "hangs" in error.message
    strict.sink.close()


def test_nothing_secret_is_shown(database: str, tmp_path: Path) -> None:
    url = new_role(
        database, 'grant create on database "{database}" to {role}', "grant all on schema public to {role}",
        "alter role {role} password 'hunter2'",
    )  # fmt: skip
    for on_error in ("stop", "dead_letter"):
        replica = Letters(f"{url} password=hunter2", tmp_path, on_error=on_error)
        if on_error == "stop":
            replica.accounts(NO_BAD)
            error = refusal(replica, insert(1, "bad"))
            assert "hunter2" not in f"{error.message} {error.advice}"
        else:
            replica.changed(insert(1, "bad"))
            assert "hunter2" not in str(replica.rows("select * from penstock.dead_letters"))
            assert replica.letters() == [("insert", "1")]
        replica.sink.close()


# on_error: dead_letter


@pytest.mark.parametrize(
    ("table", "bad", "state"),
    [
        ({"constraint": NO_BAD}, "bad", "23514"),
        ({"email": "text not null"}, None, "23502"),
        ({"email": "varchar(3)"}, "too long", "22001"),
        ({"email": "smallint"}, "70000", "22003"),
        ({"email": "smallint"}, "seven", "22P02"),
        ({"constraint": "unique (email)"}, "0", "23505"),
    ],
)
def test_exactly_the_refused_rows_are_set_aside_and_all_others_applied(
    replica: Letters, database: str, tmp_path: Path, table: dict[str, str], bad: str | None, state: str
) -> None:
    replica.sink.close()
    existing = Letters(database, tmp_path, schema="existing")
    existing.accounts(**table)
    existing.execute("insert into accounts values (1000, '0', '')")
    good = [insert(n, str(n)) for n in range(1, 40)]
    existing.changed(*good[:17], insert(50, bad), *good[17:30], insert(51, bad), *good[30:])
    assert [id for id, _ in existing.emails] == [*range(1, 40), 1000]
    assert existing.letters() == [("insert", "50"), ("insert", "51")]
    found = existing.rows("select distinct sqlstate, lsn::text, sink, source_table from penstock.dead_letters")
    assert found == [(state, "0/10", "replica", "accounts")]
    assert existing.rows("select lsn::text from penstock.progress") == [("0/1000",)]
    existing.sink.close()


def test_a_letter_holds_the_row_as_postgres_wrote_it(replica: Letters) -> None:
    odd = "\\N\t\"'\n\\;é"
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad", odd), insert(2, "bad", None))
    (first, second) = replica.sink.dead_letters().listed()
    assert first.row == {"id": "1", "email": "bad", "note": odd}
    assert second.row == {"id": "2", "email": "bad", "note": None}
    assert (first.lsn, first.sequence, first.constraint) == (LSN(0x10), 1, "accounts_email_check")


@pytest.mark.parametrize("verb", [insert, update])
def test_a_value_that_does_not_fit_is_told_with_its_column(database: str, tmp_path: Path, verb: Any) -> None:
    """Also where it went through a temporary table, whose columns have other names."""
    replica = Letters(database, tmp_path, schema="existing")
    replica.accounts(email="smallint")
    replica.changed(verb(1, "70000", "x"), verb(2, "2", "y"))
    (letter,) = replica.sink.dead_letters().listed()
    assert letter.reason == 'value "70000" is out of range for type smallint. COPY accounts, column email: "70000"'
    replica.sink.close()


def test_bad_rows_of_several_tables_and_tasks_in_one_batch(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.execute("create table orders (id int primary key, account int check (account > 0))")
    orders = [changes(ORDERS, [("insert", {"id": n, "account": n % 5}) for n in range(1, 11)], lsn=0x30)]
    replica.deliver(accounts(insert(1, "bad"), insert(2, "b")), orders, accounts(insert(3, "c"), insert(4, "bad")))
    assert replica.emails == [(2, "b"), (3, "c")]
    assert replica.rows("select count(*) from orders") == [(8,)]
    assert sorted(replica.letters()) == [("insert", "1"), ("insert", "10"), ("insert", "4"), ("insert", "5")]


def test_a_batch_of_nothing_but_bad_rows_moves_the_position(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(*(insert(n, "bad") for n in range(300)))
    assert replica.emails == []
    assert len(replica.letters()) == 300
    assert replica.rows("select lsn::text from penstock.progress") == [("0/1000",)]


def test_more_letters_than_allowed_stop_the_sink(database: str, tmp_path: Path) -> None:
    replica = Letters(database, tmp_path, dead_letters={"max": 5})
    replica.accounts(NO_BAD)
    replica.changed(*(insert(n, "bad") for n in range(5)))
    error = refusal(replica, *(insert(n, "bad") for n in range(10, 16)))
    assert "more than 5 rows of one batch" in error.message
    assert len(replica.letters()) == 5
    replica.sink.close()


def test_an_update_that_is_refused_leaves_the_row_as_it_was(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "a"), insert(2, "b"))
    replica.changed(update(1, "bad"), update(2, "c"))
    assert replica.emails == [(1, "a"), (2, "c")]
    assert replica.letters() == [("update", "1")]


def test_an_update_of_the_key_to_a_refused_row_takes_the_old_one_away(replica: Letters) -> None:
    replica.accounts("check (id < 100)")
    replica.changed(insert(1, "a", "long"), insert(2, "b"))
    replica.changed(update(100, "a", UNCHANGED, was=1), update(2, "c"))
    assert replica.emails == [(2, "c")]
    (letter,) = replica.sink.dead_letters().listed()
    assert letter.row == {"id": "100", "email": "a", "note": "long"}
    replica.execute("alter table accounts drop constraint accounts_id_check")
    assert replica.replay() == []
    assert replica.rows("select id, email, note from accounts order by id") == [(2, "c", ""), (100, "a", "long")]


def test_a_trigger_that_raises_refuses_its_row(database: str, tmp_path: Path) -> None:
    replica = Letters(database, tmp_path)
    replica.accounts()
    replica.execute(
        "create function no() returns trigger language plpgsql as "
        "$$ begin if new.email = 'bad' then raise exception 'never %', new.id; end if; return new; end $$"
    )
    replica.execute("create trigger no before insert or update on accounts for each row execute function no()")
    replica.execute("alter table accounts enable always trigger no")
    replica.changed(insert(1, "a"), insert(2, "bad"), insert(3, "c"))
    assert replica.emails == [(1, "a"), (3, "c")]
    assert replica.rows("select sqlstate, reason like 'never 2%' from penstock.dead_letters") == [("P0001", True)]
    replica.sink.close()


def test_unchanged_toast_of_a_row_that_is_nowhere_is_set_aside_until_the_row_is_there(replica: Letters) -> None:
    replica.changed(insert(1, "a", "one"))
    replica.changed(update(1, "b", UNCHANGED), update(5, "x", UNCHANGED))
    assert replica.emails == [(1, "b")]
    assert replica.letters() == [("update", "5")]
    assert replica.replay() == [("update", "5")]
    replica.execute("insert into accounts values (5, 'old', 'kept')")
    assert replica.replay() == []
    assert replica.rows("select email, note from accounts where id = 5") == [("x", "kept")]


def test_a_value_that_was_not_sent_again_is_the_one_of_the_refused_version(replica: Letters) -> None:
    """The target holds an older one, and would give that."""
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "a", "old"), insert(2, "b", "old"))
    replica.changed(update(1, "bad", "new"), insert(3, "bad", "fresh"))
    replica.changed(update(1, "c", UNCHANGED), update(2, "d", UNCHANGED), update(3, "e", UNCHANGED))
    assert replica.rows("select * from accounts order by id") == [(1, "c", "new"), (2, "d", "old"), (3, "e", "fresh")]
    assert replica.letters() == []
    assert replica.letters("superseded") == [("update", "1"), ("insert", "3")]


def test_a_refused_version_passes_its_values_on_to_the_next_refused_one(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad", "long"))
    replica.changed(update(1, "bad", UNCHANGED))
    (letter,) = replica.sink.dead_letters().listed()
    assert (letter.op, letter.row) == ("update", {"id": "1", "email": "bad", "note": "long"})


def test_a_later_change_supersedes_the_letter_of_its_key(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(*(insert(n, "bad") for n in range(1, 6)))
    replica.changed(update(1, "fine"), ("delete", None, {"id": 2}), update(30, "moved", was=3), update(4, "bad", "x"))
    assert replica.emails == [(1, "fine"), (30, "moved")]
    assert replica.letters() == [("insert", "5"), ("update", "4")]
    replica.execute("alter table accounts drop constraint accounts_email_check")
    assert replica.replay() == []
    assert replica.rows("select id, email, note from accounts order by id") == [
        (1, "fine", ""), (4, "bad", "x"), (5, "bad", ""), (30, "moved", ""),
    ]  # fmt: skip


def test_a_truncate_supersedes_what_came_before_it(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    replica.changed(insert(2, "bad"), ("truncate",), insert(3, "bad"), insert(4, "d"))
    assert replica.emails == [(4, "d")]
    assert replica.letters() == [("insert", "3")]


def test_a_fresh_copy_of_the_table_supersedes_its_letters(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    Copy(replica).whole(account(1, "mended"))
    assert replica.letters() == []
    assert replica.replay() == []
    assert replica.emails == [(1, "mended")]


def test_rows_that_swap_a_unique_value_go_in_although_another_is_bad(replica: Letters) -> None:
    replica.accounts(f"unique (email), {NO_BAD}")
    replica.changed(*(insert(n, f"e{n}") for n in range(1, 9)))
    swapped = [update(n, f"e{n + 1 if n % 2 else n - 1}") for n in range(1, 9) if n != 5]
    replica.changed(*swapped[:3], update(5, "bad"), *swapped[3:])
    # 5 stays as it was, so 6 cannot have its value: of all others, each has the other's.
    assert replica.emails == [
        (1, "e2"), (2, "e1"), (3, "e4"), (4, "e3"), (5, "e5"), (6, "e6"), (7, "e8"), (8, "e7"),
    ]  # fmt: skip
    assert replica.letters() == [("update", "5"), ("update", "6")]


def test_of_two_rows_that_exclude_each_other_the_first_goes_in(replica: Letters) -> None:
    replica.accounts("unique (email)")
    replica.changed(insert(1, "same"), insert(2, "same"), insert(3, "other"))
    assert replica.emails == [(1, "same"), (3, "other")]
    assert replica.letters() == [("insert", "2")]


def test_rows_without_a_key_are_set_aside_as_well(replica: Letters) -> None:
    readings = relation("public", "readings", identity="f", sensor="text", value="integer")
    replica.execute("create table readings (sensor text, value int check (value < 10))")
    rows = [("insert", {"sensor": "s", "value": value}) for value in (1, 50, 1, 60)]
    replica.deliver([changes(readings, rows, lsn=0x10)])
    assert replica.rows("select value from readings") == [(1,), (1,)]
    assert [letter.row for letter in replica.sink.dead_letters().listed()] == [
        {"sensor": "s", "value": "50"}, {"sensor": "s", "value": "60"},
    ]  # fmt: skip
    replica.execute("alter table readings drop constraint readings_value_check")
    assert replica.replay() == []
    assert replica.rows("select value from readings order by 1") == [(1,), (1,), (50,), (60,)]


def test_names_that_need_quotes(replica: Letters) -> None:
    odd = relation('od"d', "drop table; --", {'i"d': "integer", "a b": "text", "long one": "text"}, key=('i"d',))
    replica.execute('create schema "od""d"')
    replica.execute(
        'create table "od""d"."drop table; --" ("i""d" int primary key, "a b" text check ("a b" <> \'%s\'), "long one" text)'
    )
    rows = [("insert", {'i"d': 1, "a b": "%s"}), ("insert", {'i"d': 2, "a b": "b", "long one": "x"})]
    replica.deliver([changes(odd, rows, lsn=0x10)])
    moved = [("update", {'i"d': 3, "a b": "%s", "long one": UNCHANGED}, {'i"d': 2})]
    replica.deliver([changes(odd, moved, lsn=0x1010)])
    assert replica.rows('select count(*) from "od""d"."drop table; --"') == [(0,)]
    assert [letter.row for letter in replica.sink.dead_letters().listed()] == [
        {'i"d': "1", "a b": "%s", "long one": None}, {'i"d': "3", "a b": "%s", "long one": "x"},
    ]  # fmt: skip
    replica.execute('update "od""d"."drop table; --" set "a b" = 1')
    assert len(replica.sink.dead_letters().replay().left) == 2


# a role that may not turn constraints off


def without_replication_role(
    superuser: str, directory: Path, on_error: str = "dead_letter", **settings: Any
) -> Letters:
    role = new_role(
        superuser, 'grant create on database "{database}" to {role}', "grant all on schema public to {role}"
    )
    return Letters(role, directory, on_error=on_error, **settings)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Letters]:
    found = without_replication_role(database, tmp_path)
    found.accounts(NO_BAD)
    found.execute("create table orders (id int primary key, account int references accounts)")
    yield found
    found.sink.close()


def orders(*rows: tuple[Any, ...], lsn: int = 0x10) -> list[ChangeBatch]:
    return [changes(ORDERS, list(rows), lsn=lsn)]


def order(id: int, account: int) -> tuple[Any, ...]:
    return "insert", {"id": id, "account": account}


def test_a_row_whose_parent_is_refused_is_refused_with_it_and_nothing_else(shop: Letters) -> None:
    shop.deliver(orders(order(1, 1), order(2, 2), order(3, 1)), accounts(insert(1, "bad"), insert(2, "b"), lsn=0x20))
    assert shop.emails == [(2, "b")]
    assert shop.rows("select id from orders") == [(2,)]
    assert sorted(shop.rows("select source_table, key->>'id', sqlstate from penstock.dead_letters")) == [
        ("accounts", "1", "23514"), ("orders", "1", "23503"), ("orders", "3", "23503"),
    ]  # fmt: skip


def test_replay_puts_parents_in_before_those_that_refer_to_them(shop: Letters) -> None:
    shop.deliver(orders(order(1, 1)), accounts(insert(1, "bad"), lsn=0x20))
    assert len(shop.replay()) == 2
    shop.execute("alter table accounts drop constraint accounts_email_check")
    assert shop.replay() == []
    assert shop.rows("select id, account from orders") == [(1, 1)]


def test_a_delete_that_a_foreign_row_stands_against_is_set_aside(shop: Letters) -> None:
    shop.changed(insert(1, "a"), insert(2, "b"))
    shop.execute("insert into orders values (7, 1)")
    shop.changed(GONE, ("delete", None, {"id": 2}))
    assert shop.emails == [(1, "a")]
    assert shop.letters() == [("delete", "1")]
    shop.execute("delete from orders")
    assert shop.replay() == []
    assert shop.emails == []


def test_a_constraint_that_is_looked_at_in_the_end_finds_its_row_too(shop: Letters) -> None:
    shop.execute("alter table orders alter constraint orders_account_fkey deferrable initially deferred")
    shop.deliver(accounts(insert(1, "a")), orders(order(1, 1), order(2, 9), order(3, 1), lsn=0x20))
    assert shop.rows("select id from orders order by id") == [(1,), (3,)]
    assert shop.letters() == [("insert", "2")]


# exactly once, and what is no row's fault


def test_a_commit_that_is_cut_off_leaves_no_letter_and_its_repetition_one(
    replica: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.accounts(NO_BAD)
    batch = replica.batch()
    receipts = [replica.sink.write(batch, iter(accounts(insert(1, "bad"), insert(2, "b"))))]
    with monkeypatch.context() as cut:
        cut.setattr("penstock.sinks.postgres.dead_letters.LetterBox.put", _cut_after_putting)
        with pytest.raises(SinkUnavailable):
            replica.sink.commit(batch, receipts)
    assert (replica.letters(), replica.emails) == ([], [])
    for _ in range(2):
        replica.sink.prepare()
        replica.sink.commit(batch, receipts)
        assert (replica.letters(), replica.emails) == ([("insert", "1")], [(2, "b")])


def _cut_after_putting(self: Any, connection: psycopg.Connection[Any], refused: Any, failed: Any = ()) -> None:
    if refused:
        _really_put(self, connection, refused, failed)
        connection.execute("select pg_terminate_backend(pg_backend_pid())")


_really_put = LetterBox.put


def test_a_restarted_sink_still_knows_of_its_letters(replica: Letters, database: str, tmp_path: Path) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    again = Letters(database, tmp_path)
    again._number = 1
    again.changed(update(1, "fine"))
    assert again.letters() == []
    assert again.letters("superseded") == [("insert", "1")]
    again.sink.close()


def test_what_is_no_rows_fault_never_makes_a_letter(replica: Letters, database: str, tmp_path: Path) -> None:
    replica.accounts(NO_BAD)
    replica.sink.close()
    role = new_role(database, 'grant create on database "{database}" to {role}', "grant all on schema penstock to {role}",
                    "grant all on all tables in schema penstock to {role}")  # fmt: skip
    poor = Letters(role, tmp_path, schema="existing")
    error = refusal(poor, insert(1, "bad"))
    assert "lacks rights" in error.message
    poor.sink.close()
    assert replica.letters() == []


def test_a_lock_on_the_table_is_waited_for_and_makes_no_letter(replica: Letters, database: str) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    with psycopg.connect(database) as other:
        other.execute("lock table accounts")
        replica.sink._session._of_thread.connection.execute("set lock_timeout = '100ms'")
        with pytest.raises(SinkUnavailable):
            replica.changed(insert(2, "bad"))
    assert replica.letters() == [("insert", "1")]


def test_a_missing_table_or_column_stops_the_sink(database: str, tmp_path: Path) -> None:
    replica = Letters(database, tmp_path, schema="existing")
    assert "has no table public.accounts" in refusal(replica, insert(1, "a")).message
    replica.execute("create table accounts (id int primary key, email text)")
    assert "has no column note" in refusal(replica, insert(1, "a")).message
    assert replica.letters() == []
    replica.sink.close()


def test_a_type_that_old_rows_cannot_have_stops_the_sink(replica: Letters) -> None:
    """The value that is in the way is not one of the batch."""
    replica.changed(insert(1, "words"))
    narrower = relation("public", "accounts", id="integer", email="integer", note="text", key=("id",))
    with pytest.raises(SinkRefused, match="invalid input syntax for type integer"):
        replica.deliver([changes(narrower, [("insert", {"id": 2, "email": 5})], lsn=0x1010)])
    assert replica.letters() == []


def test_a_warning_counts_the_letters_and_names_the_command(
    replica: Letters, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"), insert(2, "bad"), insert(3, "c"))
    (said,) = [record.getMessage() for record in caplog.records if "dead letters" in record.getMessage()]
    assert "refused 2 rows (2 of public.accounts)" in said
    assert "now dead letters: see `penstock dead-letters FILE list --sink replica`" in said
    replica.changed(insert(4, "bad"))
    assert "refused a row (1 of public.accounts), now a dead letter:" in caplog.records[-1].getMessage()


# replay


def test_replay_after_the_cause_is_gone_goes_in_once(replica: Letters) -> None:
    replica.accounts("unique (email)")
    replica.execute("insert into accounts values (99, 'taken', '')")
    replica.changed(insert(1, "taken"), insert(2, "b"))
    assert replica.replay() == [("insert", "1")]
    replica.execute("delete from accounts where id = 99")
    for _ in range(2):
        assert replica.replay() == []
        assert replica.emails == [(1, "taken"), (2, "b")]
    assert replica.letters("replayed") == [("insert", "1")]


def test_a_letter_that_is_refused_again_has_the_new_reason(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    replica.execute("alter table accounts drop constraint accounts_email_check, add constraint later check (id > 5)")
    (left,) = replica.sink.dead_letters().replay().left
    assert (left.constraint, left.sqlstate) == ("later", "23514")


def test_replaying_an_insert_does_not_replace_somebody_elses_row(replica: Letters) -> None:
    replica.accounts()
    replica.execute("insert into accounts values (1, 'foreign', '')")
    replica.changed(insert(1, "ours"))
    assert replica.replay() == [("insert", "1")]
    assert replica.emails == [(1, "foreign")]


def test_replay_of_one_table_leaves_the_others(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.execute("create table orders (id int primary key, account int check (account > 0))")
    replica.deliver(accounts(insert(1, "bad")), orders(order(1, 0)))
    replica.execute("alter table accounts drop constraint accounts_email_check")
    replica.execute("alter table orders drop constraint orders_account_check")
    outcome = replica.sink.dead_letters().replay([("public", "orders")])
    assert [letter.table for letter in outcome.replayed] == ["orders"]
    assert replica.rows("select source_table from penstock.dead_letters where state = 'open'") == [("accounts",)]


def test_a_letter_of_a_table_that_is_gone_stays_and_says_so(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    replica.execute("drop table accounts")
    (left,) = replica.sink.dead_letters().replay().left
    assert left.reason == "public.accounts is not in the target any more"


def test_replay_goes_into_the_table_under_its_new_name(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    renamed = relation("public", "people", id="integer", email="text", note="text", key=("id",), oid=accounts_().oid)
    replica.deliver([changes(renamed, [("insert", {"id": 2, "email": "b"})], lsn=0x1010)])
    replica.execute("alter table people drop constraint accounts_email_check")
    assert replica.replay() == []
    assert replica.rows("select id from people order by id") == [(1,), (2,)]


def test_an_import_part_is_committed_whatever_letters_there_are(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    replica.changed(insert(1, "bad"))
    part = ImportPart(9, ORDERS, "begin")
    replica.sink.commit(Batch(-1, LSN(0), LSN(0), str(replica.directory), part), [])
    assert replica.letters() == [("insert", "1")]
