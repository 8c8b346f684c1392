"""Sinks of a pipeline with rules: they should hold what the rules make of the source's rows, and nothing else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from penstock.changelog.admission import Ready, write_ready
from penstock.errors import PenstockError
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.sinks.row_hashes import HashedSource
from penstock.sinks.verifying import Key, Row
from penstock.testing.embedded_postgres import EmbeddedPostgres
from penstock.verify.judging import Standing
from tests.cli.command import Here, write_config
from tests.verify.ruled_shop import RuledShop

USERS = """
create table public.users (id int primary key, email text, status text, amount numeric(10,2), seen timestamptz, token uuid);
insert into public.users select n, 'person' || n || '@example.com', case when n % 2 = 0 then 'active' else 'gone' end, n,
    '2026-01-01', gen_random_uuid() from generate_series(1, 1000) n;
insert into public.users values (2000, null, 'active', null, null, null);
create table public.notes (id int primary key, body text);
insert into public.notes values (1, 'hello')
"""
PEOPLE = {
    "tables": ["public.users"],
    "where": {"column": "status", "eq": "active"},
    "columns": {
        "email": {"transform": "mask", "kind": "email"},
        "amount": {"transform": "literal", "value": "5"},
        "token": {"transform": "uuid", "generator": "random"},
        "seen": {"exclude": True},
    },
    "rename": {"schema": "clean", "table": "people", "columns": {"email": "contact", "id": "number"}},
}
KEYED = """
create table public.members (email text primary key, grade int);
insert into public.members select 'person' || n || '@example.com', n % 7 from generate_series(1, 500) n
"""
HASHED = {"tables": ["public.members"], "columns": {"email": {"transform": "hash", "salt": "pepper", "length": 16}}}
TENANTS = """
create schema tenant_a; create schema tenant_b;
create table tenant_a.orders (id int primary key, amount int);
create table tenant_b.orders (amount int, id int primary key);
insert into tenant_a.orders values (1, 10), (2, 20), (3, 30);
insert into tenant_b.orders (id, amount) values (1, 100), (2, 200)
"""
MERGED = {
    "tables": ["tenant_*.orders"],
    "rename": {"schema": "everything", "origin": {"column": "tenant", "value": "it's {1}"}},
}

SOURCE = {"tables": {"include": ["*.*"]}}


@pytest.fixture
def shop(database: str, postgres18: EmbeddedPostgres, tmp_path: Path) -> Iterator[RuledShop]:
    name = f"replica_{uuid.uuid4().hex[:12]}"
    replica = postgres18.create_database(name)
    sinks = [
        {"name": "lake", "type": "duckdb", "path": "lake.duckdb"},
        {"name": "replica", "type": "postgres", "url": replica},
    ]
    source = {**SOURCE, "url": database}
    pipeline = Pipeline.from_file(write_config(tmp_path, database, sinks, source=source))
    with connect(database) as connection, connect(replica) as target:
        yield RuledShop(pipeline, connection, target, tmp_path)
        Pipeline.from_file(tmp_path / "penstock.yaml").destroy()
    postgres18.drop_database(name)


def on_its_way(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Does one more of these each time that the comparison waits for the sink."""
    left = list(steps)
    monkeypatch.setattr(Standing, "catch_up", lambda self: left.pop(0)() if left else None)


def test_sinks_that_hold_what_the_rules_make_are_equal(shop: RuledShop) -> None:
    shop.begin(USERS, PEOPLE)
    lake, replica = [report for report in shop.verified() if report.table == "users"]
    for report in (lake, replica):
        assert (report.state, report.rows, report.target) == ("equal", 501, "clean.people")
    assert shop.verify() == [("public.notes", "equal", []), ("public.users", "equal", [])]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("insert into clean.people (number, status) values (7, 'gone')", "number=7: only in the sink"),
        ("insert into clean.people (number, status) values (7, 'active')", "number=7: only in the sink"),
        ("delete from clean.people where number = 8", "number=8: missing in the sink"),
        ("update clean.people set contact = 'person8@example.com' where number = 8", "number=8: differs in contact"),
        ("update clean.people set contact = 'p******@example.com' where number = 2000", "number=2000: differs in contact"),
        ("update clean.people set amount = 8 where number = 8", "number=8: differs in amount"),
        ("update clean.people set status = 'gone' where number = 8", "number=8: differs in status"),
    ],
)  # fmt: skip
def test_each_kind_of_difference_is_found_under_the_targets_names(
    shop: RuledShop, statement: str, expected: str
) -> None:
    shop.begin(USERS, PEOPLE)
    shop.sinks(statement)
    assert shop.verify("users") == [("public.users", "differs", [expected])]
    assert shop.verify("notes") == [("public.notes", "equal", [])]


def test_columns_that_are_drawn_by_chance_are_left_out_and_named(shop: RuledShop) -> None:
    shop.begin(USERS, PEOPLE)
    shop.sinks("update clean.people set token = '00000000-0000-0000-0000-000000000000'")
    for report in shop.verified("users"):
        assert report.state == "equal"
        assert report.notes == ["column token was not compared: its transform gives another value each time"]
        assert report.to_json()["columns_left_out"] == {"token": "its transform gives another value each time"}


def test_a_transform_for_some_operations_leaves_its_column_out_and_such_a_filter_the_table(shop: RuledShop) -> None:
    mask = {"body": {"transform": "mask"}}
    shop.begin(
        USERS,
        {"tables": ["public.notes"], "operations": ["insert"], "columns": mask},
        {"tables": ["public.users"], "operations": ["insert", "delete"], "where": {"column": "status", "eq": "active"}},
    )
    notes, users = shop.verified()[:2]
    assert (notes.state, list(notes.columns_left_out)) == ("equal", ["body"])
    assert (users.state, users.because) == (
        "left_out",
        "the filter of rules[1] is not for inserts and updates alike, so that a row's past decides",
    )


def test_a_table_that_code_makes_is_left_out_and_others_are_compared(shop: RuledShop) -> None:
    rule = {"tables": ["public.users"], "python": "tests.rules.coded:unchanged", "rename": {"table": "people"}}
    shop.begin(USERS, rule)
    shop.configure(rules=[{"tables": ["public.users"], "sql": "select * from changes", "rename": {"table": "people"}}])
    notes, users = shop.verified()[:2]
    assert notes.state == "equal"
    assert (users.state, users.because) == ("left_out", "sql of rules[0] makes its rows, which verify does not run")


def test_a_filter_on_a_column_drawn_by_chance_leaves_the_table_out(shop: RuledShop) -> None:
    shop.begin(
        USERS,
        {"tables": ["public.users"], "columns": {"token": {"transform": "uuid", "generator": "random"}}},
        {"tables": ["public.users"], "rename": {"columns": {"token": "drawn"}}},
        {"tables": ["public.users"], "where": {"column": "drawn", "is_null": False}},
    )
    report = shop.verified("users")[0]
    assert (report.state, report.because) == (
        "left_out",
        "the filter of rules[2] looks at column drawn, of which its transform gives another value each time",
    )


def test_a_transformed_key_is_shown_as_the_rules_make_it(shop: RuledShop) -> None:
    shop.begin(KEYED, HASHED)
    assert shop.verify() == [("public.members", "equal", [])]
    row = shop.replica.execute("select email from public.members order by email limit 1").fetchone()
    assert row is not None
    shop.sinks(f"update public.members set grade = 100 where email = '{row[0]}'")
    assert shop.verify() == [("public.members", "differs", [f"email={row[0]}: differs in grade"])]


def test_no_raw_value_of_a_transformed_column_is_shown_whatever_the_sink_holds(
    shop: RuledShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.begin(KEYED + ";create table public.bag (email text, n int); insert into public.bag values ('me@example.com', 1)",
        HASHED, {"tables": ["public.bag"], "columns": {"email": {"transform": "mask"}}})  # fmt: skip
    shop.sinks(
        "insert into public.members values ('person7@example.com', 0)",
        "insert into public.bag values ('me@example.com', 1)",
    )
    assert shop.verify() == [
        ("public.bag", "differs", ["email=(hidden), n=1: only in the sink"]),
        ("public.members", "differs", ["email=(hidden): only in the sink"]),
    ]
    shown = json.dumps([report.to_json() for report in shop.verified()]) + caplog.text
    assert "@example.com" not in shown


def test_a_value_that_the_target_cannot_have_is_an_error_without_raw_values(shop: RuledShop) -> None:
    shop.begin(USERS, PEOPLE)
    shop.replica.execute("alter table clean.people alter column amount type uuid using gen_random_uuid()")
    with pytest.raises(PenstockError) as failed:
        shop.verified("users")
    assert "clean.people" in str(failed.value)
    assert "@example.com" not in str(failed.value)


def test_rows_that_change_across_the_filter_meanwhile_are_no_difference(
    shop: RuledShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.begin(USERS, PEOPLE)
    shop.sinks("update clean.people set contact = 'planted' where number = 10")
    shop.source.execute("update public.users set status = 'gone' where id = 2")
    shop.source.execute("update public.users set status = 'active' where id = 3")
    shop.source.execute("delete from public.users where id = 4")

    def delivered() -> None:
        shop.sinks(
            "delete from clean.people where number in (2, 4)",
            "insert into clean.people (number, contact, status, amount) values (3, 'p******@example.com', 'active', 5)",
        )

    on_its_way(monkeypatch, delivered)
    assert shop.verify("users") == [("public.users", "differs", ["number=10: differs in contact"])]


def test_rows_under_transformed_keys_that_change_meanwhile_are_no_difference(
    shop: RuledShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.begin(KEYED, HASHED)
    shop.source.execute("update public.members set grade = 50 where email = 'person1@example.com'")
    shop.source.execute("delete from public.members where email = 'person2@example.com'")
    before = shop.replica.execute("select email from public.members").fetchall()

    def delivered() -> None:
        shop.sinks("delete from public.members")
        shop.fill()

    on_its_way(monkeypatch, delivered)
    assert shop.verify() == [("public.members", "equal", [])]
    now = shop.replica.execute("select email from public.members").fetchall()
    assert len(before) - len(now) == 1


def test_tables_merged_with_an_origin_are_each_compared_with_their_own_rows(shop: RuledShop) -> None:
    shop.begin(TENANTS, MERGED)
    assert shop.verify() == [("tenant_a.orders", "equal", []), ("tenant_b.orders", "equal", [])]
    shop.sinks(
        "delete from everything.orders where tenant = 'it''s a' and id = 2",
        "insert into everything.orders (tenant, id, amount) values ('it''s b', 3, 5), ('another', 4, 4)",
    )
    assert shop.verify() == [
        ("tenant_a.orders", "differs", ["tenant=it's a, id=2: missing in the sink"]),
        ("tenant_b.orders", "differs", ["tenant=it's b, id=3: only in the sink"]),
    ]
    assert {report.target for report in shop.verified()} == {"everything.orders"}


APART = f"{TENANTS}; update tenant_b.orders set id = id + 10"
UNITED = {"tables": ["tenant_*.orders"], "rename": {"schema": "everything"}, "allow_uniqueness_loss": True}


def test_tables_merged_without_an_origin_are_compared_together(shop: RuledShop) -> None:
    shop.begin(APART, UNITED)
    for tables in ((), ("tenant_b.orders",)):
        assert shop.verify(*tables) == [("tenant_a.orders", "equal", [])]
        assert {report.together_with for report in shop.verified(*tables)} == {("tenant_b.orders",)}
        assert {report.rows for report in shop.verified(*tables)} == {5}
    shop.sinks("delete from everything.orders where id = 11", "update everything.orders set amount = 0 where id = 2")
    expected = ["id=11: missing in the sink", "id=2: differs in amount"]
    assert shop.verify() == [("tenant_a.orders", "differs", expected)]


def test_keys_that_the_rules_give_to_several_rows_are_counted_and_not_judged(
    shop: RuledShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.begin(APART, UNITED)
    shop.source.execute("insert into tenant_b.orders (id, amount) values (1, 100), (2, 200)")
    shop.sinks("delete from everything.orders where id = 2", "update everything.orders set amount = 31 where id = 3")
    on_its_way(monkeypatch)
    assert shop.verify() == [("tenant_a.orders", "differs", ["id=3: differs in amount"])]
    for report in shop.verified():
        assert report.shared_keys == 2
        assert report.notes[-1] == "2 keys were not compared: the rules give each of them to several rows"


def test_tables_of_different_columns_that_meet_are_left_out(shop: RuledShop) -> None:
    shop.begin(USERS, {"tables": ["public.notes"], "columns": {"body": {"transform": "mask"}}})
    shop.configure(rules=[{"tables": ["public.notes"], "rename": {"table": "users"}}])
    report = shop.verified("users")[0]
    assert (report.state, report.because) == (
        "left_out",
        "public.notes and public.users both go to public.users, and have different columns",
    )


def test_a_table_without_a_key_is_a_bag_of_what_the_rules_make(shop: RuledShop) -> None:
    shop.begin(
        "create table public.bag (word text, n int); insert into public.bag values ('ab', 1), ('cd', 1), ('ef', 2), ('gh', 3)",
        {"tables": ["public.bag"], "where": {"column": "n", "lt": 3}, "columns": {"word": {"transform": "mask"}}},
    )
    assert shop.verify() == [("public.bag", "equal", [])]
    shop.sinks("delete from public.bag where n = 2", "insert into public.bag values ('**', 1)")
    ((_, state, found),) = shop.verify()
    assert (state, sorted(found)) == (
        "differs",
        ["word=(hidden), n=1: only in the sink", "word=**, n=2: missing in the sink"],
    )


def test_a_table_of_which_no_row_gets_through_need_not_be_in_the_sink(shop: RuledShop) -> None:
    shop.begin(USERS, {"tables": ["public.users"], "where": {"column": "status", "eq": "nobody"}})
    assert [(report.state, report.because) for report in shop.verified("users")] == [
        ("equal", "neither side has rows")
    ] * 2


def test_a_table_of_which_rows_get_through_has_to_be_in_the_sink(shop: RuledShop) -> None:
    shop.begin(USERS, PEOPLE)
    shop.sinks("drop table clean.people")
    assert [(report.state, report.because) for report in shop.verified("users")] == [
        ("differs", "the sink has no such table")
    ] * 2


def test_of_many_rows_that_get_one_key_no_more_than_two_are_looked_at(
    shop: RuledShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = {"email": {"transform": "mask", "kind": "password"}}
    shop.begin(
        "create table public.members (email text primary key, grade int); insert into public.members values ('me', 1)",
        {"tables": ["public.members"], "columns": mask, "allow_uniqueness_loss": True},
    )
    shop.source.execute("insert into public.members select n, 1 from generate_series(1, 500) n")
    on_its_way(monkeypatch)
    counts: list[int] = []
    looked_up = HashedSource.with_keys

    def counted(self: HashedSource, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        found = looked_up(self, keys)
        counts.append(len(found))
        return found

    monkeypatch.setattr(HashedSource, "with_keys", counted)
    assert shop.verify() == [("public.members", "equal", [])]
    assert set(counts) == {2}


def test_the_command_names_both_tables_and_what_it_did_not_compare(shop: RuledShop, penstock: Here) -> None:
    shop.begin(USERS, PEOPLE)
    shop.sinks("update clean.people set contact = 'person8@example.com' where number = 8")
    outcome = penstock("verify", shop.file, "--sink", "lake")
    assert (outcome.code, outcome.err) == (1, "")
    assert [line.strip() for line in outcome.out.splitlines()] == [
        "equal    lake  public.notes  1 rows",
        "differs  lake  public.users as clean.people  501 rows",
        "column token was not compared: its transform gives another value each time",
        "number=8: differs in contact",
    ]
    (users,) = penstock.json("verify", shop.file, "--sink", "replica", "--table", "users", "--json")
    assert (users["schema"], users["table"], users["target"]) == ("public", "users", "clean.people")
    assert users["differences"] == [{"key": {"number": "8"}, "kind": "differs", "columns": ["contact"], "rows": 1}]


def test_tables_that_are_compared_together_are_left_out_until_all_are_imported(shop: RuledShop) -> None:
    shop.begin(APART, UNITED)
    shop.configure(source={**SOURCE, "url": shop.source.info.dsn, "mode": "copy_and_stream"})
    row = shop.source.execute("select 'tenant_a.orders'::regclass::oid").fetchone()
    assert row is not None
    write_ready(shop.pipeline.state.parts, "lake", 1, {row[0]: Ready(1, LSN(1))}, {})
    report = shop.verified()[0]
    assert (report.sink, report.state, report.together_with) == ("lake", "left_out", ("tenant_b.orders",))
    assert (report.because or "").startswith("the import of tenant_b.orders is not complete")
