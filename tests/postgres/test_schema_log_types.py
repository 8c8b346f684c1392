"""What commands about domains, composite types and ranges leave in the schema log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.schema.applying import apply_to_type
from penstock.schema.kinds import AddAttribute, RenameDomainCheck
from penstock.schema.log.row import SchemaLogRow, changes
from tests.postgres.logged_session import LoggedSession, logged_session

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


@pytest.fixture
def session(database: str) -> Iterator[LoggedSession]:
    with logged_session(database) as made:
        yield made
        assert made.warnings == []
        made.assert_up_to_date()


def kinds_of(session: LoggedSession, *commands: str) -> list[str]:
    """Each row's changes lead from each type's before to its after."""
    found = []
    for row in session.rows_of(*commands):
        assert row.error is None
        for type_ in row.types:
            now = type_.before
            for change in changes(row):
                now = apply_to_type(now, change)
            assert now == type_.after
        found += [type(change).__name__ for change in changes(row)]
    return found


@both_versions
def test_attributes_of_composite_types_are_followed(session: LoggedSession) -> None:
    session.run("create type part as (a int, b text)", "create table t (id int, p part)")
    assert kinds_of(session, "alter type part add attribute c numeric(6,2), drop attribute a") == [
        "DropAttribute", "AddAttribute",
    ]  # fmt: skip
    assert kinds_of(session, "alter type part rename attribute b to bb") == ["RenameAttribute"]
    session.run("alter table t drop p")
    assert kinds_of(session, "alter type part alter attribute bb type varchar(3)") == ["RetypeAttribute"]
    assert kinds_of(session, "comment on type part is 'of it'") == ["SetTypeComment"]


@both_versions
def test_a_domains_restrictions_are_followed(session: LoggedSession) -> None:
    session.run("create domain small as int check (value > 0)", "create table t (n small)", "insert into t values (5)")
    assert kinds_of(session, "alter domain small add constraint top check (value < 100)") == ["AddDomainCheck"]
    assert kinds_of(session, "alter domain small add constraint even check (value % 2 = 0) not valid") == [
        "AddDomainCheck"
    ]
    session.run("update t set n = 4")
    assert kinds_of(session, "alter domain small validate constraint even") == ["ValidateDomainCheck"]
    (renamed,) = session.changes_of("alter domain small rename constraint top to below")
    assert isinstance(renamed, RenameDomainCheck)
    assert (renamed.before, renamed.after) == ("top", "below")
    assert kinds_of(session, "alter domain small drop constraint below") == ["DropDomainCheck"]
    assert kinds_of(session, "alter domain small set default 8", "alter domain small drop default") == [
        "SetDomainDefault", "SetDomainDefault",
    ]  # fmt: skip
    assert kinds_of(session, "alter domain small set not null", "alter domain small drop not null") == [
        "SetDomainNotNull", "SetDomainNotNull",
    ]  # fmt: skip


@both_versions
def test_all_types_may_get_another_name_or_schema(session: LoggedSession) -> None:
    session.run("create schema away", "create type part as (a int)", "create domain small as int")
    session.run("create type span as range (subtype = int4)", "create type whole as (p part, s small, r span)")
    session.run("create table t (w whole, p part[])")
    for name in ("part", "small", "span"):
        assert kinds_of(session, f"alter type {name} rename to {name}_2")[:2] == ["RenameType", "RewordType"]
        assert kinds_of(session, f"alter type {name}_2 set schema away")[:2] == ["MoveType", "RewordType"]
    assert kinds_of(session, "alter schema away rename to back").count("MoveType") >= 3


@both_versions
def test_a_row_names_the_tables_that_have_the_type_in_any_way(session: LoggedSession) -> None:
    session.run(
        "create type part as (a int)", "create domain checked as part", "create type whole as (p part, n int)",
        "create table direct (p part)", "create table listed (p part[])", "create table below (p checked)",
        "create table within (w whole)", "create table deep (w whole[], p part)", "create table without (n int)",
    )  # fmt: skip
    row: SchemaLogRow = session.row_of("alter type part add attribute b text")
    (change,), (type_,) = changes(row), row.types
    assert isinstance(change, AddAttribute)
    assert tables(session, type_.tables) == {"direct", "listed", "below", "within", "deep"}
    assert tables(session, type_.nested) == {"listed", "below", "within", "deep"}


@both_versions
def test_what_goes_with_a_type_that_is_dropped_is_followed(session: LoggedSession) -> None:
    session.run("create type mood as enum ('sad')", "create type part as (m mood, n int)", "create table t (p part)")
    assert kinds_of(session, "drop type mood cascade") == ["DropAttribute", "DropType"]
    session.run("create function fine(int) returns bool language sql as 'select true'")
    session.run("create domain small as int check (fine(value))")
    assert kinds_of(session, "drop function fine cascade") == ["DropDomainCheck"]
    assert kinds_of(session, "drop type part cascade") == ["DropColumn", "DropType"]


def tables(session: LoggedSession, oids: tuple[int, ...]) -> set[str]:
    query = "select relname::text from pg_class where oid = any(%s::oid[])"
    return {name for (name,) in session.ours.execute(query, [list(oids)])}
