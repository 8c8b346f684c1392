"""Rows of an import that a table of somebody's own making refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import Merged
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.sinks.test_dead_letters import NO_BAD, Letters, without_replication_role
from tests.sinks.test_postgres_sink import ACCOUNTS, Copy, account, accounts


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Letters]:
    found = Letters(database, tmp_path, schema="existing")
    yield found
    found.sink.close()


def test_bad_rows_become_letters_all_others_go_in_and_replay_brings_the_rest(replica: Letters) -> None:
    replica.accounts(f"constraint no_bad {NO_BAD}")
    Copy(replica).whole(account(1, "a"), account(2, "bad"), account(3, "c"))
    assert replica.emails == [(1, "a"), (3, "c")]
    letter = "select op, key, row, lsn::text, source_table, constraint_name, sqlstate from penstock.dead_letters"
    row = {"id": "2", "email": "bad", "note": account(2, "bad")["note"]}
    assert replica.rows(letter) == [("insert", {"id": "2"}, row, "0/100", "accounts", "no_bad", "23514")]
    replica.execute("alter table accounts drop constraint no_bad")
    assert replica.replay() == []
    assert replica.emails == [(1, "a"), (2, "bad"), (3, "c")]


@pytest.mark.parametrize("bad", [{1}, {4_000}, {1, 2, 3, 2_000, 3_999, 4_000}, set(range(1, 4_001, 37))], ids=len)
def test_of_many_rows_just_the_bad_ones_are_set_aside(replica: Letters, bad: set[int]) -> None:
    replica.accounts(NO_BAD)
    Copy(replica).whole(*(account(n, "bad" if n in bad else f"e{n}") for n in range(1, 4_001)))
    assert {id for id, _ in replica.emails} == set(range(1, 4_001)) - bad
    assert {int(id) for _, id in replica.letters()} == bad


def test_where_every_row_is_bad_there_is_a_letter_of_each(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    Copy(replica).whole(*(account(n, "bad") for n in range(300)))
    assert replica.emails == []
    assert len(replica.letters()) == 300


def test_on_error_stop_names_table_key_and_constraint_and_leaves_everything_as_it_was(
    database: str, tmp_path: Path
) -> None:
    strict = Letters(database, tmp_path, on_error="stop", schema="existing")
    strict.accounts(f"constraint no_bad {NO_BAD}")
    with pytest.raises(SinkRefused) as refused:
        Copy(strict).whole(*(account(n, "bad" if n == 77 else "a") for n in range(200)))
    assert "insert of public.accounts where id = 77, committed at 0/100" in refused.value.message
    assert "constraint no_bad" in refused.value.message
    assert strict.emails == []
    assert strict.rows("select count(*) from penstock.imports") == [(0,)]
    strict.execute("alter table accounts drop constraint no_bad")
    Copy(strict).part("end", upto=LSN(0x100))
    assert len(strict.emails) == 200
    strict.sink.close()


def test_more_than_allowed_stop_the_sink(database: str, tmp_path: Path) -> None:
    replica = Letters(database, tmp_path, schema="existing", dead_letters={"max": 3})
    replica.accounts(NO_BAD)
    with pytest.raises(SinkRefused, match=r"more than 3 rows"):
        Copy(replica).whole(*(account(n, "bad") for n in range(10)))
    assert replica.letters() == []
    replica.sink.close()


def test_an_end_that_comes_again_leaves_no_second_letter(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    copy = Copy(replica)
    copy.whole(account(1, "bad"))
    copy.part("end", upto=LSN(0x100))
    assert replica.letters() == [("insert", "1")]


def test_another_copy_supersedes_the_letters_of_the_one_before(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    Copy(replica).whole(account(1, "bad"), account(2, "bad"))
    Copy(replica, job=2).whole(account(1, "good"), account(2, "bad"))
    assert replica.letters("superseded") == [("insert", "1"), ("insert", "2")]
    assert replica.letters() == [("insert", "2")]
    assert replica.emails == [(1, "good")]


def test_changes_that_come_later_supersede_the_letter_and_find_the_values_they_keep_in_it(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    Copy(replica).whole({"id": 1, "email": "bad", "note": "long"}, account(2, "bad"))
    later = [("update", {"id": 1, "email": "good", "note": UNCHANGED}), ("delete", None, {"id": 2})]
    replica.deliver([changes(ACCOUNTS, later, lsn=0x1000)])
    assert replica.rows("select id, email, note from accounts") == [(1, "good", "long")]
    assert replica.letters() == []


def test_a_table_that_the_sink_made_and_something_hangs_on_may_refuse_rows_too(database: str, tmp_path: Path) -> None:
    replica = Letters(database, tmp_path)
    Copy(replica).whole(account(1, "a"))
    replica.execute("create view seen as select * from accounts; alter table accounts add check (email <> 'bad')")
    Copy(replica, job=2).whole(account(1, "b"), account(2, "bad"))
    assert replica.emails == [(1, "b")]
    assert replica.letters() == [("insert", "2")]
    replica.sink.close()


def test_a_value_that_does_not_fit_and_one_that_is_taken_are_letters(replica: Letters) -> None:
    replica.accounts("unique (email)", email="varchar(3)")
    Copy(replica).whole(account(1, "a"), account(2, "too long"), account(3, "a"))
    assert replica.emails == [(1, "a")]
    states = "select key->>'id', sqlstate from penstock.dead_letters order by key->>'id'"
    assert replica.rows(states) == [("2", "22001"), ("3", "23505")]


def test_odd_names_and_values_come_back_from_a_letter_as_they_were(replica: Letters) -> None:
    name = 'drop"table; --'
    types = {"id": "text", "a %s \\": "float8", "at": "timestamptz", "raw": "bytea", "long": "text", "none": "text"}
    odd = relation("public", name, types, key=("id",))
    columns = ", ".join(f'"{column.name}" {column.type_name}' for column in odd.columns)
    replica.execute(f'create table "drop""table; --" ({columns}, primary key (id), constraint c check (id = \'\'))')
    rows: list[Any] = [
        {"id": id, "a %s \\": value, "at": at, "raw": "\\x00ff", "long": long, "none": None}
        for id, value, at, long in (
            ("", "NaN", "infinity", ""), ("\\N", "-Infinity", "4713-01-01 00:00:00+00 BC", "tab\tline\n'\"\\"),
            ("\t", "1e-300", "294276-12-31 23:59:59.999999+00", "x" * 300_000),
        )
    ]  # fmt: skip
    Copy(replica, table=odd).whole(*rows)
    query = 'select id, "a %s \\"::text, at::text, raw::text, long, none from "drop""table; --" order by id'
    assert [row[0] for row in replica.rows(query)] == [""]
    assert {key for _, key in replica.letters()} == {"\\N", "\t"}
    replica.execute('alter table "drop""table; --" drop constraint c')
    assert replica.replay() == []
    found = {row[0]: row[1:] for row in replica.rows(query)}
    assert found == {row["id"]: tuple(row.values())[1:] for row in rows}


def test_a_letter_has_the_key_as_the_stream_writes_it(replica: Letters) -> None:
    """Cast to text, a character(n) would lose its blanks, and no change would find the letter again."""
    padded = relation("public", "accounts", id="bpchar", email="text", note="text", key=("id",))
    replica.execute(f"create table accounts (id char(5) primary key, email text, note text, {NO_BAD})")
    Copy(replica, table=padded).whole({"id": "ab   ", "email": "bad", "note": ""})
    replica.deliver([changes(padded, [("update", {"id": "ab   ", "email": "good", "note": ""})], lsn=0x1000)])
    assert replica.rows("select id, email from accounts") == [("ab   ", "good")]
    assert replica.letters() == []


@pytest.mark.parametrize("column", ["a % b", "a %s b"])
def test_a_value_that_a_change_keeps_is_found_under_any_name(replica: Letters, column: str) -> None:
    table = relation("public", "accounts", {"id": "integer", "email": "text", column: "text"}, key=("id",))
    replica.execute(f'create table accounts (id int primary key, email text, "{column}" text, {NO_BAD})')
    replica.deliver([changes(table, [("insert", {"id": 1, "email": "a", column: "long"})], lsn=0x10)])
    replica.deliver([changes(table, [("update", {"id": 1, "email": "bad", column: UNCHANGED})], lsn=0x1000)])
    assert replica.letters() == [("update", "1")]
    replica.execute("alter table accounts drop constraint accounts_email_check")
    assert replica.replay() == []
    assert replica.rows("select * from accounts") == [(1, "bad", "long")]


def test_columns_in_another_order_extra_and_generated_ones_are_the_tables_own(replica: Letters) -> None:
    replica.execute(
        "create table accounts (loud text generated always as (upper(email)) stored, note text, extra int default 7, "
        "email text check (email <> 'bad'), id int primary key)"
    )
    Copy(replica).whole(account(1, "a"), account(2, "bad"))
    assert replica.rows("select id, loud, extra from accounts") == [(1, "A", 7)]
    assert replica.letters() == [("insert", "2")]


def test_a_row_that_refers_to_one_of_an_import_yet_to_come_is_no_letter(database: str, tmp_path: Path) -> None:
    replica = without_replication_role(database, tmp_path, schema="existing")
    replica.execute("create table people (email text primary key)")
    replica.accounts("constraint whose foreign key (email) references people")
    with pytest.raises(SinkRefused, match="whose"):
        Copy(replica).whole(account(1, "a"))
    assert replica.letters() == []
    replica.execute("insert into people values ('a')")
    Copy(replica).part("end", upto=LSN(0x100))
    assert replica.emails == [(1, "a")]
    replica.sink.close()


def test_a_merged_table_that_is_copied_again_supersedes_its_own_letters_alone(replica: Letters) -> None:
    replica.accounts(NO_BAD)
    for job, note, ids in ((1, "a", (1, 2)), (2, "b", (3,)), (3, "a", (1,))):
        copy, merged = Copy(replica, job), Merged(100 + ord(note), ("note", note))
        copy.part("begin", merged=merged)
        copy.part("rows", changes(ACCOUNTS, [("read", account(n, "bad", note)) for n in ids]), number=1, merged=merged)
        copy.part("changes", upto=LSN(0x100 * job), merged=merged)
        copy.part("end", upto=LSN(0x100 * job), merged=merged, again=job == 3)
    assert replica.letters() == [("insert", "3"), ("insert", "1")]
    assert replica.letters("superseded") == [("insert", "1"), ("insert", "2")]


def test_rows_that_a_merged_table_has_already_are_letters_of_the_second_one(replica: Letters) -> None:
    replica.accounts()
    replica.deliver(accounts(("insert", account(1, "first")), lsn=0x10))
    copy = Copy(replica)
    copy.part("begin")
    rows: list[Any] = [("read", account(1, "second")), ("read", account(2, "second"))]
    copy.part("rows", changes(ACCOUNTS, rows), number=1)
    copy.part("changes", upto=LSN(0x100))
    copy.part("end", upto=LSN(0x100), merged=Merged(ACCOUNTS.oid, None))
    assert replica.emails == [(1, "first"), (2, "second")]
    assert replica.letters() == [("insert", "1")]
