"""The triggers come, stay and go: who may install them, what they begin with, what is left in the end."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.errors import SourceRefused
from penstock.findings import Finding
from penstock.postgres.connection import Connection, connect
from penstock.schema.log import history
from penstock.schema.log import triggers as schema_log
from penstock.settings.tables import TableSelection
from penstock.subscription import migrations
from penstock.subscription.preflight.server import check_source
from penstock.testing.embedded_postgres import EmbeddedPostgres

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def finding(url: str) -> Finding:
    (found,) = [
        one for one in check_source(url, "shop", TableSelection(include=("public.*",))) if one.name == "schema log"
    ]
    return found


@both_versions
def test_it_is_installed_once_with_all_tables_as_they_are(connection: Connection) -> None:
    connection.execute("create table public.t (a int); create type public.mood as enum ('x'); create schema s")
    connection.execute("create table s.p (a int) partition by list (a); create table s.p1 partition of s.p default")
    migrations.migrate(connection)
    assert not schema_log.installed(connection)
    assert schema_log.install(connection)
    assert schema_log.installed(connection)
    assert not schema_log.install(connection)
    assert {str(one.name) for one in history.known_definitions(connection).values()} == {"public.t", "s.p", "s.p1"}
    assert connection.execute("select count(*) from penstock.type_definitions").fetchone() == (1,)
    assert list(history.rows(connection)) == []  # nothing has changed


def test_an_installation_that_fails_leaves_nothing(connection: Connection) -> None:
    migrations.migrate(connection)
    connection.execute("alter function penstock.record_baseline() rename to hidden")
    with pytest.raises(SourceRefused, match=r"record_baseline\(\) does not exist"):
        schema_log.install(connection)
    assert connection.execute("select count(*) from pg_event_trigger").fetchone() == (0,)


def test_it_can_be_taken_out_and_put_in_again(connection: Connection) -> None:
    migrations.migrate(connection)
    schema_log.install(connection)
    assert migrations.remove(connection, "shop") == [
        "event trigger penstock_ddl", "event trigger penstock_drop", "event trigger penstock_rewrite", "schema penstock",
    ]  # fmt: skip
    connection.execute("create table public.t (a int)")
    migrations.migrate(connection)
    assert schema_log.install(connection)
    connection.execute("drop table public.t")
    assert [row.tag for row in history.rows(connection)] == ["DROP TABLE"]


def test_it_stays_as_long_as_a_pipeline_uses_it(connection: Connection) -> None:
    migrations.migrate(connection)
    schema_log.install(connection)
    for name in ("shop", "shop", "other"):
        migrations.register(connection, name)
    assert migrations.remove(connection, "shop") == []
    assert schema_log.installed(connection)
    assert "schema penstock" in migrations.remove(connection, "other")
    assert not schema_log.installed(connection)


def test_a_migration_under_the_triggers_of_the_last_one_is_not_logged(connection: Connection) -> None:
    migrations.migrate(connection)
    schema_log.install(connection)
    connection.execute(
        "create table penstock.newer (a int); create function penstock.f() returns int language sql as 'select 1'"
    )
    assert list(history.rows(connection)) == []


def test_only_those_who_can_create_event_triggers_may(connection: Connection, database: str, guest: str) -> None:
    assert schema_log.may_install(connection)
    with connect(make_conninfo(database, user=guest)) as session:
        assert not schema_log.may_install(session)
        assert session.execute("select count(*) from pg_event_trigger").fetchone() == (0,)
        assert not schema_log.installed(session)


def test_a_standby_is_not_where_triggers_are_made(standby18: EmbeddedPostgres) -> None:
    with connect(standby18.url) as session:
        assert not schema_log.may_install(session)


def test_who_may_not_remove_the_triggers_is_told_what_to_run(connection: Connection, database: str, guest: str) -> None:
    connection.execute(sql.SQL("grant create on database {} to {}").format(
        sql.Identifier(connection.info.dbname), sql.Identifier(guest)))  # fmt: skip
    with connect(make_conninfo(database, user=guest)) as session:
        migrations.migrate(session)
        schema_log.install(connection)
        with pytest.raises(SourceRefused, match="must be owner of event trigger") as refused:
            migrations.remove(session, "shop")
        assert schema_log.installed(session)
        assert refused.value.advice is not None
        connection.execute(refused.value.advice.partition("run: ")[2].encode())
        assert "schema penstock" in migrations.remove(session, "shop")


def test_triggers_on_functions_of_a_role_that_is_no_superuser_log_everybody(
    connection: Connection, database: str, guest: str
) -> None:
    connection.execute(sql.SQL("grant create on database {} to {}").format(
        sql.Identifier(connection.info.dbname), sql.Identifier(guest)))  # fmt: skip
    with connect(make_conninfo(database, user=guest)) as session:
        migrations.migrate(session)
    schema_log.install(connection)
    with psycopg.connect(database, autocommit=True) as theirs:
        theirs.execute("create schema hidden; create table hidden.t (a int default 5 check (a > 0))")
        theirs.execute("drop schema hidden cascade")
    rows = list(history.rows(connection))
    assert [(row.tag, row.error) for row in rows] == [
        ("CREATE SCHEMA", None), ("CREATE TABLE", None), ("DROP SCHEMA", None),
    ]  # fmt: skip
    connection.execute(
        "drop event trigger penstock_ddl; drop event trigger penstock_drop; drop event trigger penstock_rewrite"
    )


def test_check_says_that_the_triggers_are_there(connection: Connection, database: str) -> None:
    assert finding(database).ok is True
    migrations.migrate(connection)
    schema_log.install(connection)
    assert finding(database).message == "Event triggers log schema changes."


def test_check_warns_of_what_is_lost_without_them(connection: Connection, database: str, guest: str) -> None:
    found = finding(make_conninfo(database, user=guest))
    assert found.ok is None
    assert "may not create event triggers" in found.message
    for lost in ("renames", "defaults", "keys"):
        assert lost in found.message
    assert "come, go or change their type are still noticed" in found.message
    assert "superuser" in found.remedy
