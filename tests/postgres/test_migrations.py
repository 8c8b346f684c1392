from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import pytest
from psycopg.conninfo import make_conninfo

from penstock.errors import SourceRefused
from penstock.postgres.connection import Connection, connect
from penstock.subscription import migrations
from penstock.testing.embedded_postgres import EmbeddedPostgres

EVERY = sorted(int(file.name[:4]) for file in files("penstock.subscription").joinpath("migrations").iterdir())
both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def job(connection: Connection, pipeline: str) -> None:
    connection.execute(
        "insert into penstock.import_jobs (pipeline, sink, table_oid, schema_name, table_name) "
        "values (%s, 'lake', 1, 'public', 't')",
        [pipeline],
    )


def has_schema(connection: Connection) -> bool:
    return connection.execute("select from pg_namespace where nspname = 'penstock'").fetchone() is not None


def advice_of(error: SourceRefused) -> str:
    assert error.advice is not None
    said, _, grant = error.advice.partition("As an administrator run: ")
    assert said == ""
    return grant


@both_versions
def test_the_schema_is_made_once(connection: Connection) -> None:
    assert not migrations.installed(connection)
    assert migrations.migrate(connection) == EVERY
    assert migrations.installed(connection)
    assert migrations.migrate(connection) == []
    assert connection.execute("select array_agg(version) from penstock.migrations").fetchone() == (EVERY,)


def test_two_that_make_it_at_once_make_it_once(database: str) -> None:
    sessions = [connect(database) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(migrations.migrate, sessions))
    for session in sessions:
        session.close()
    assert sorted(made) == [[], [], [], EVERY]


def test_a_migration_that_fails_leaves_nothing_behind(connection: Connection) -> None:
    connection.execute("create schema penstock; create table penstock.table_choices (mine int)")
    with pytest.raises(SourceRefused, match='"table_choices" already exists'):
        migrations.migrate(connection)
    assert not migrations.installed(connection)
    rows = connection.execute("select relname from pg_class where relnamespace = 'penstock'::regnamespace").fetchall()
    assert rows == [("table_choices",)]


def test_a_role_that_may_not_create_the_schema_is_told_the_grant_that_it_needs(
    connection: Connection, database: str, guest: str
) -> None:
    with connect(make_conninfo(database, user=guest)) as session:
        with pytest.raises(SourceRefused, match="permission denied for database") as refused:
            migrations.migrate(session)
        connection.execute(advice_of(refused.value))
        assert migrations.migrate(session) == EVERY
        assert migrations.remove(session, "shop") == ["schema penstock"]


def test_a_role_that_did_not_make_the_schema_is_told_the_grant_that_it_needs(
    connection: Connection, database: str, guest: str
) -> None:
    migrations.migrate(connection)
    connection.execute("create role penstock_maker; alter schema penstock owner to penstock_maker")
    connection.execute("do $$ declare t text; begin for t in select tablename from pg_tables where schemaname = "
                       "'penstock' loop execute format('alter table penstock.%I owner to penstock_maker', t); "
                       "end loop; end $$; alter sequence penstock.import_claims owner to penstock_maker")  # fmt: skip
    try:
        with connect(make_conninfo(database, user=guest)) as session:
            for attempt in (migrations.migrate, migrations.installed):
                with pytest.raises(SourceRefused, match="permission denied for schema penstock") as refused:
                    attempt(session)
            connection.execute(advice_of(refused.value))
            assert migrations.installed(session)
            job(session, "shop")
    finally:
        connection.execute("drop owned by penstock_maker cascade; drop role penstock_maker")


def test_a_schema_made_for_the_role_is_used(connection: Connection, database: str, guest: str) -> None:
    connection.execute(f'create schema penstock authorization "{guest}"')
    with connect(make_conninfo(database, user=guest)) as session:
        assert migrations.migrate(session) == EVERY


def test_a_server_that_takes_no_writes_is_said_to_be_one(connection: Connection) -> None:
    connection.execute("set default_transaction_read_only = on")
    with pytest.raises(SourceRefused, match="read-only transaction") as refused:
        migrations.migrate(connection)
    assert refused.value.advice is not None
    assert "URL of a primary" in refused.value.advice


def test_the_schema_of_a_newer_penstock_is_not_touched(connection: Connection) -> None:
    migrations.migrate(connection)
    connection.execute("insert into penstock.migrations values (999)")
    for attempt in (migrations.installed, migrations.migrate):
        with pytest.raises(SourceRefused, match="of a newer Penstock: its version is 999"):
            attempt(connection)


@both_versions
def test_the_last_pipeline_takes_the_schema_with_it(connection: Connection) -> None:
    migrations.migrate(connection)
    job(connection, "shop")
    job(connection, "other")
    connection.execute("insert into penstock.table_choices values ('shop', 'public', 't', 'add')")
    assert migrations.remove(connection, "shop") == ["import jobs of shop", "table choices of shop"]
    assert connection.execute("select pipeline from penstock.import_jobs").fetchall() == [("other",)]
    assert migrations.remove(connection, "shop") == []
    assert migrations.remove(connection, "other") == ["import jobs of other", "schema penstock"]
    assert not has_schema(connection)
    assert migrations.remove(connection, "other") == []
    assert migrations.migrate(connection) == EVERY


def test_a_choice_of_another_pipeline_keeps_the_tables(connection: Connection) -> None:
    migrations.migrate(connection)
    connection.execute("insert into penstock.table_choices values ('other', 'public', 't', 'add')")
    assert migrations.remove(connection, "shop") == []
    assert migrations.installed(connection)


def test_what_somebody_else_has_in_the_schema_stays(connection: Connection) -> None:
    migrations.migrate(connection)
    connection.execute("create table penstock.mine (a int)")
    assert migrations.remove(connection, "shop") == ["Penstock's tables in schema penstock"]
    rows = connection.execute("select relname from pg_class where relnamespace = 'penstock'::regnamespace").fetchall()
    assert rows == [("mine",)]


def test_databases_of_one_server_have_a_schema_each(connection: Connection, postgres18: EmbeddedPostgres) -> None:
    migrations.migrate(connection)
    with connect(postgres18.create_database("second")) as second:
        assert migrations.migrate(second) == EVERY
        assert migrations.remove(second, "shop") == ["schema penstock"]
    postgres18.drop_database("second")
    assert migrations.installed(connection)
