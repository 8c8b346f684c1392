"""Whatever is broken on our side: a user's command works, and what is missing from the log is said where it can be."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.postgres.connection import Connection
from penstock.schema.log import triggers as schema_log
from tests.postgres.logged_session import LoggedSession, logged_session

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


@pytest.fixture
def session(database: str) -> Iterator[LoggedSession]:
    with logged_session(database) as made:
        made.run("create table t (a int)", "create table u (a int)")
        yield made


def has_column(connection: Connection, name: str) -> bool:
    query = "select from pg_attribute where attrelid = 'public.t'::regclass and attname = %s"
    return connection.execute(query, [name]).fetchone() is not None


RAISING = """
create function public.raise_it() returns trigger language plpgsql as $$ begin raise exception 'not today'; end $$;
create trigger raising before insert on penstock.schema_log for each row execute function public.raise_it()
"""
BREAKS = {
    "the log is gone": "drop table penstock.schema_log",
    "the definitions are gone": "drop table penstock.table_definitions",
    "a column of the log is gone": "alter table penstock.schema_log drop column objects",
    "the log refuses rows": RAISING,
    "the log takes no more rows": "alter table penstock.schema_log add check (tag = 'never') not valid",
    "the ids have run out": "alter table penstock.schema_log alter id set maxvalue 10 restart 10; "
    "insert into penstock.schema_log (tag) values ('last')",
    "the rights are gone": "alter function penstock.record_command owner to pg_read_all_stats; "
    "alter function penstock.record_failure owner to pg_read_all_stats",
    "a function is gone": "drop function penstock.record_command",
    "a function fails": "create or replace function penstock.describe_tables(wanted oid[]) returns table (oid oid, "
    "definition jsonb, rest text, parent oid, indexes oid[]) language plpgsql as 'begin perform 1/0; end'",
    "a definition is nonsense": "update penstock.table_definitions set definition = '[]'",
    "the note of drops fails": "drop function penstock.note_drops",
    "all of them are gone": "drop table penstock.schema_log, penstock.table_definitions, penstock.type_definitions",
}


@both_versions
@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_log_never_fails_a_command(session: LoggedSession, broken: str) -> None:
    session.ours.execute(f"set penstock.skip_schema_log = on; {BREAKS[broken]}".encode())
    session.run(
        "alter table t add b int", "create table v (a int); create index on v (a); drop table u",
        "begin; alter table t rename b to c; savepoint s; drop table v; commit", "create type mood as enum ('a')",
        "alter type mood add value 'b'", "create temporary table w (a int)",
    )  # fmt: skip
    assert has_column(session.ours, "c")


def test_a_command_that_could_not_be_logged_leaves_a_row_that_says_so_and_one_warning(session: LoggedSession) -> None:
    session.ours.execute(f"set penstock.skip_schema_log = on; {BREAKS['a function fails']}".encode())
    (row,) = session.rows_of("alter table t add b int")
    assert (row.tag, row.statement, row.tables) == ("ALTER TABLE", "alter table t add b int", ())
    assert row.error is not None
    assert "division by zero" in row.error
    assert session.warnings == ["Penstock could not log this command (ALTER TABLE): division by zero"]


def test_drops_that_could_not_be_noted_are_found_all_the_same(session: LoggedSession) -> None:
    session.ours.execute(f"set penstock.skip_schema_log = on; {BREAKS['the note of drops fails']}".encode())
    assert session.kinds_of("drop table u") == ["DropTable"]
    assert len(session.warnings) == 1


def test_what_could_not_be_logged_is_told_by_the_next_command(session: LoggedSession) -> None:
    session.ours.execute(b"set penstock.skip_schema_log = on; alter table penstock.table_definitions rename to hidden")
    session.run("alter table t add b int")
    session.ours.execute(b"alter table penstock.hidden rename to table_definitions")
    session.new_rows()
    assert session.kinds_of("alter table t add c int") == ["AddColumn", "AddColumn"]


def test_nonsense_in_the_settings_of_a_session_is_no_failure(session: LoggedSession) -> None:
    session.run("set penstock.dropped = 'no json'; set penstock.rewritten = '[1'")
    (row,) = session.rows_of("alter table t add b int")
    assert row.error is not None
    assert "json" in row.error
    assert len(session.warnings) == 1


def test_a_log_that_somebody_has_locked_does_not_hold_up_a_command(session: LoggedSession, database: str) -> None:
    session.run("set statement_timeout = '20s'")
    with psycopg.connect(database) as other:
        other.execute("lock table penstock.schema_log in access exclusive mode")
        session.run("alter table t add b int")
    assert session.warnings == [
        "Penstock could not log this command (ALTER TABLE): canceling statement due to lock timeout"
    ]
    assert has_column(session.ours, "b")


def test_definitions_that_somebody_has_locked_do_not_hold_up_a_command(session: LoggedSession, database: str) -> None:
    session.run("set statement_timeout = '20s'")
    with psycopg.connect(database) as other:
        other.execute("lock table penstock.table_definitions in access exclusive mode")
        (row,) = session.rows_of("alter table t add b int")
    assert row.error == "canceling statement due to lock timeout"


@both_versions
def test_a_role_without_any_right_to_the_log_is_logged(session: LoggedSession, database: str, guest: str) -> None:
    session.run(sql.SQL("grant create on schema public to {}").format(sql.Identifier(guest)).as_string())
    with psycopg.connect(make_conninfo(database, user=guest), autocommit=True) as theirs:
        their_session = LoggedSession(theirs, session.ours)
        rows = their_session.rows_of("create table mine (id serial primary key)", "drop table mine")
        assert their_session.warnings == []
        for forbidden in (
            "select * from penstock.schema_log", "insert into penstock.schema_log (tag) values ('x')",
            "select penstock.record_command('x', 'y')", "delete from penstock.table_definitions",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute(forbidden.encode())
    assert [(row.tag, row.role, row.error) for row in rows] == [
        ("CREATE TABLE", guest, None), ("DROP TABLE", guest, None),
    ]  # fmt: skip


def test_names_in_somebodys_search_path_are_not_mistaken_for_postgres_own(
    session: LoggedSession, database: str, guest: str
) -> None:
    """A role could otherwise have its own function run as the owner of the log."""
    session.run(sql.SQL("create schema evil authorization {}").format(sql.Identifier(guest)).as_string())
    with psycopg.connect(make_conninfo(database, user=guest), autocommit=True) as theirs:
        for function in ("current_setting(text)", "current_setting(text, bool)", "current_query()", "lower(text)"):
            theirs.execute(
                f"create function evil.{function} returns text language plpgsql as "
                "$$ begin raise exception 'I ran as %', current_user; end $$".encode()
            )
        theirs.execute("set search_path = evil, pg_catalog")
        their_session = LoggedSession(theirs, session.ours)
        (row,) = their_session.rows_of("create table mine (a int)")
    assert (row.error, row.search_path, their_session.warnings) == (None, "evil, pg_catalog", [])


@both_versions
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_commands_under_strict_isolation_work(session: LoggedSession, database: str, level: str) -> None:
    with psycopg.connect(database) as strict:
        strict.execute(f"set transaction isolation level {level}".encode())
        strict.execute("select 1 from t")
        session.run("alter table u add b int")
        strict.execute("alter table u add c int")
    assert {one.name for one in _columns(session)} >= {"a", "c"}


def _columns(session: LoggedSession) -> list[psycopg.Column]:
    return list(session.ours.execute("select * from public.u").description or ())


def test_a_log_that_was_repaired_tells_what_it_missed(session: LoggedSession) -> None:
    session.ours.execute("alter event trigger penstock_ddl disable")
    session.run("alter table t add b int")
    assert not schema_log.installed(session.ours)
    session.new_rows()
    assert schema_log.install(session.ours)
    (row,) = session.new_rows()
    assert (row.tag, [table.after.table for table in row.tables if table.after]) == ("BASELINE", ["t"])
    session.assert_up_to_date()
