"""``penstock rules FILE preview``: rows of a real table, before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.postgres.connection import connect
from tests.cli.command import Here, Outcome, write_config

USERS = """
create table public.users (id bigint primary key, email text, note text, age int);
insert into public.users values (1, 'ann@example.org', 'hello', 30), (2, 'bob@example.org', null, 12);
create table public."Odd.Name" (id int primary key);
create table public.elsewhere (id int primary key);
"""
RULE = {
    "tables": ["users"],
    "where": {"column": "age", "gte": 18},
    "columns": {"email": {"transform": "mask", "kind": "email"}, "note": {"exclude": True}},
    "rename": {"table": "people", "columns": {"email": "contact"}, "origin": {"column": "came_from"}},
}


@pytest.fixture
def url(database: str) -> str:
    with connect(database) as connection:
        connection.execute(USERS.encode())
    return database


def previewed(penstock: Here, directory: Path, url: str, *words: str, **more: Any) -> Outcome:
    more.setdefault("rules", [RULE])
    return penstock("rules", write_config(directory, url, **more), "preview", *words)


def lines(outcome: Outcome) -> list[list[str]]:
    """The words of each line."""
    assert outcome.code == 0, outcome.err
    return [line.split() for line in outcome.out.splitlines()]


def test_rows_stand_side_by_side_with_what_becomes_of_them(url: str, tmp_path: Path, penstock: Here) -> None:
    shown = lines(previewed(penstock, tmp_path, url, "users"))
    assert shown == [
        ["public.users", "→", "public.people"],
        ["row", "column", "before", "after"],
        ["1", "id", "1", "1"],
        ["email", "→", "contact", "ann@example.org", "a**@example.org", "changed"],
        ["note", "hello", "dropped"],
        ["age", "30", "30"],
        ["came_from", "public.users", "new"],
        ["2", "id", "2", "held", "back"],
        ["email", "bob@example.org"],
        ["note", "NULL"],
        ["age", "12"],
        ["1", "of", "2", "rows", "would", "be", "held", "back", "by", "the", "filter."],
    ]


def test_json_has_an_object_for_each_row_and_null_for_one_that_is_held_back(
    url: str, tmp_path: Path, penstock: Here
) -> None:
    outcome = previewed(penstock, tmp_path, url, "public.users", "--json")
    first, second = map(json.loads, outcome.out.splitlines())
    assert first == {
        "before": {"id": 1, "email": "ann@example.org", "note": "hello", "age": 30},
        "after": {"id": 1, "contact": "a**@example.org", "age": 30, "came_from": "public.users"},
    }
    assert second == {"before": {"id": 2, "email": "bob@example.org", "note": None, "age": 12}, "after": None}


def test_no_more_rows_are_read_than_asked_for(url: str, tmp_path: Path, penstock: Here) -> None:
    with connect(url) as connection:
        connection.execute("insert into public.users select n, 'x', 'y', 50 from generate_series(3, 40) as n")
    assert len(previewed(penstock, tmp_path, url, "users", "--json").out.splitlines()) == 10
    assert len(previewed(penstock, tmp_path, url, "users", "--json", "--rows", "3").out.splitlines()) == 3
    assert previewed(penstock, tmp_path, url, "users", "--rows", "0").code == 2


def test_what_several_rules_make_of_a_row_is_followed_to_its_end(url: str, tmp_path: Path, penstock: Here) -> None:
    second = {
        "tables": ["users"],
        "columns": {"contact": {"transform": "literal", "value": "-"}, "age": {"exclude": True}},
    }
    shown = lines(previewed(penstock, tmp_path, url, "users", "--rows", "1", rules=[RULE, second]))
    assert ["email", "→", "contact", "ann@example.org", "-", "changed"] in shown
    assert ["age", "30", "dropped"] in shown
    assert ["came_from", "public.users", "new"] in shown


def test_names_are_as_postgres_has_them_and_an_empty_table_is_said_to_be_empty(
    url: str, tmp_path: Path, penstock: Here
) -> None:
    outcome = previewed(penstock, tmp_path, url, "Odd.Name")
    assert outcome.out == "public.Odd.Name\nThe table has no rows.\n"
    assert previewed(penstock, tmp_path, url, "Odd.Name", "--json").out == ""


def test_an_unknown_table_is_told_with_the_nearest_one(url: str, tmp_path: Path, penstock: Here) -> None:
    outcome = previewed(penstock, tmp_path, url, "usrs")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.errors == ['error: The source has no table "public.usrs". Did you mean "public.users"?']


def test_a_table_that_is_not_captured_is_no_table_for_rules(url: str, tmp_path: Path, penstock: Here) -> None:
    source = {"url": url, "tables": {"include": ["users"]}}
    outcome = previewed(penstock, tmp_path, url, "elsewhere", source=source)
    assert outcome.code == 2
    assert "public.elsewhere is not captured, so no rule applies to it." in outcome.err


def test_rules_that_do_not_fit_the_table_are_told_as_validate_tells_them(
    url: str, tmp_path: Path, penstock: Here
) -> None:
    wrong = {"tables": ["users"], "columns": {"emial": {"exclude": True}, "id": {"transform": "mask"}}}
    outcome = previewed(penstock, tmp_path, url, "users", rules=[wrong])
    assert (outcome.code, outcome.out) == (2, "")
    assert 'error: rules[0].columns.emial: public.users has no column emial. Did you mean "email"?' in outcome.errors
    assert any(line.startswith("error: rules[0].columns.id: ") for line in outcome.errors)
    assert previewed(penstock, tmp_path, url, "elsewhere", rules=[wrong]).code == 0  # none of its business


def test_of_the_users_publication_only_its_columns_and_rows_are_shown(url: str, tmp_path: Path, penstock: Here) -> None:
    with connect(url) as connection:
        connection.execute("create publication mine for table public.users (id, email) where (id > 1)")
    source = {"url": url, "publication": "mine"}
    rule = {"tables": ["users"], "columns": {"email": {"transform": "null"}}}
    outcome = previewed(penstock, tmp_path, url, "users", "--json", source=source, rules=[rule])
    assert [json.loads(line) for line in outcome.out.splitlines()] == [
        {"before": {"id": 2, "email": "bob@example.org"}, "after": {"id": 2, "email": None}}
    ]


def test_values_cannot_steer_the_terminal_and_long_ones_are_cut(url: str, tmp_path: Path, penstock: Here) -> None:
    with connect(url) as connection:
        connection.execute("update public.users set note = E'a\\x1b[2Jb\\nc' || repeat('x', 5000) where id = 1")
    shown = previewed(penstock, tmp_path, url, "users", rules=[]).out
    assert "a\\x1b[2Jb\\ncxxx" in shown
    assert "\x1b" not in shown
    assert "x…" in shown


def test_a_table_that_somebody_locks_is_not_waited_for_long(url: str, tmp_path: Path, penstock: Here) -> None:
    with connect(url, autocommit=False) as other:
        other.execute("lock table public.users in access exclusive mode")
        outcome = previewed(penstock, tmp_path, url, "users")
        other.rollback()
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.errors[0].startswith("error: Reading rows of public.users failed: canceling statement due to lock")


def test_of_a_partitioned_table_the_rows_of_its_partitions_are_shown(url: str, tmp_path: Path, penstock: Here) -> None:
    with connect(url) as connection:
        connection.execute("create table public.parts (id int primary key, v text) partition by range (id)")
        connection.execute("create table public.parts_1 partition of public.parts for values from (1) to (9)")
        connection.execute("insert into public.parts values (1, 'one')")
    assert ["v", "one", "one"] in lines(previewed(penstock, tmp_path, url, "parts"))


def test_a_column_that_never_leaves_the_database_is_not_read(url: str, tmp_path: Path, penstock: Here) -> None:
    rule = {"tables": ["users"], "columns": {"note": {"exclude": "source"}}}
    outcome = previewed(penstock, tmp_path, url, "users", "--json", "--rows", "1", rules=[rule])
    assert json.loads(outcome.out)["before"] == {"id": 1, "email": "ann@example.org", "age": 30}
