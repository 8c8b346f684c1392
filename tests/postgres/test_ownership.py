"""Tables that the pipeline's role may not publish: all others come in, these are named with what to do, and nothing stops."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.control.status import status
from penstock.errors import SourceRefused
from penstock.pipeline import Pipeline
from penstock.postgres.connection import Connection, connect
from penstock.subscription import migrations
from penstock.subscription.ownership import membership_grant
from tests.cli.command import write_config


@pytest.fixture
def shop_owner(connection: Connection, guest: str) -> Iterator[str]:
    """Owns the shop's tables. The guest is a member of it and may make a subscription, as the README sets it up."""
    name = f"owner_{uuid.uuid4().hex[:8]}"
    names = {"owner": sql.Identifier(name), "guest": sql.Identifier(guest)}
    connection.execute(
        sql.SQL(
            "create role {owner}; grant {owner} to {guest}; alter role {guest} replication; "
            "grant create on database {database} to {guest}; grant all on schema public to {owner}; "
            "create table public.orders (id int primary key); alter table public.orders owner to {owner}"
        ).format(**names, database=sql.Identifier(connection.info.dbname))
    )
    yield name
    connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


@pytest.fixture(params=["stream", "copy_and_stream"])
def pipeline(
    database: str, guest: str, shop_owner: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Pipeline]:
    url = make_conninfo(database, user=guest)
    sinks = [{"name": "files", "type": "file", "path": "events"}]
    made = Pipeline.from_file(write_config(tmp_path, url, sinks, source={"url": url, "mode": request.param}))
    made.init(triggers=False)
    yield made
    made.destroy()


def published(connection: Connection) -> list[str]:
    rows = connection.execute("select distinct tablename from pg_publication_tables where schemaname = 'public'")
    return sorted(name for (name,) in rows)


def create_for(connection: Connection, owner: str, table: str) -> None:
    connection.execute(
        sql.SQL("create table {0} (id int primary key); alter table {0} owner to {1}").format(
            sql.Identifier("public", table), sql.Identifier(owner)
        )
    )


def test_a_table_that_may_not_be_published_keeps_no_other_one_out(
    pipeline: Pipeline, connection: Connection, shop_owner: str
) -> None:
    connection.execute("create table public.brand_new (id int primary key)")
    create_for(connection, shop_owner, "ok_new")
    changed = pipeline.reconcile()
    assert changed is not None
    assert changed.added == ("public.ok_new",)
    assert [table.qualified_name for table in changed.refused] == ["public.brand_new"]
    assert published(connection) == ["ok_new", "orders"]
    pipeline.init()  # and the next start does not fail either
    pipeline.begin()


def test_status_and_check_name_a_table_that_may_not_be_published(pipeline: Pipeline, connection: Connection) -> None:
    assert status(pipeline.config).healthy
    connection.execute("create table public.brand_new (id int primary key)")
    pipeline.reconcile()
    now = status(pipeline.config)
    assert not now.healthy
    (refused,) = [table for table in now.tables if table.table == "brand_new"]
    assert refused.state == "failed"
    assert refused.error is not None
    assert "may not publish public.brand_new" in refused.error
    assert "source.tables.exclude" in refused.error
    assert [table.table for table in pipeline.tables() if table.state == "failed"] == ["brand_new"]
    (finding,) = [finding for finding in pipeline.check() if finding.name == "ownership"]
    assert finding.ok is False
    assert "public.brand_new" in finding.message
    connection.execute("drop table public.brand_new")
    assert status(pipeline.config).healthy


def test_the_statement_that_is_named_lets_the_table_in_and_makes_nobody_a_superuser(
    pipeline: Pipeline, connection: Connection, guest: str, shop_owner: str
) -> None:
    connection.execute("create table public.brand_new (id int primary key)")
    changed = pipeline.reconcile()
    assert changed is not None
    (refused,) = changed.refused
    assert refused.statement == f'ALTER TABLE "public"."brand_new" OWNER TO "{shop_owner}";'
    connection.execute(refused.statement.encode())
    pipeline.reconcile()
    assert published(connection) == ["brand_new", "orders"]
    assert connection.execute("select pg_has_role(%s, 'postgres', 'member')", [guest]).fetchone() == (False,)


def test_membership_is_suggested_in_roles_that_are_no_superusers(
    connection: Connection, database: str, guest: str, shop_owner: str
) -> None:
    other, indirect = f"other_{uuid.uuid4().hex[:8]}", f"indirect_{uuid.uuid4().hex[:8]}"
    names = {"other": sql.Identifier(other), "indirect": sql.Identifier(indirect)}
    connection.execute(
        sql.SQL("create role {other}; create role {indirect}; grant postgres to {indirect}").format(**names)
    )
    try:
        with connect(make_conninfo(database, user=guest)) as session:
            assert membership_grant(session, other) == f'GRANT "{other}" TO "{guest}";'
            for superuser in ("postgres", indirect, "pg_database_owner"):
                assert membership_grant(session, superuser) is None
    finally:
        connection.execute(sql.SQL("drop role {other}; drop role {indirect}").format(**names))


def test_a_published_table_that_was_given_away_stays_as_it_is_and_is_reported(
    pipeline: Pipeline, connection: Connection
) -> None:
    """It lost its key, so it belongs into the publication of inserts, and the role may no longer put it there."""
    connection.execute("alter table public.orders owner to postgres")
    assert status(pipeline.config).healthy  # nothing is to be edited
    connection.execute("alter table public.orders drop constraint orders_pkey")
    changed = pipeline.reconcile()
    assert changed is not None
    assert [table.qualified_name for table in changed.refused] == ["public.orders"]
    assert published(connection) == ["orders"]
    assert not status(pipeline.config).healthy


def test_what_stays_as_it_is_is_warned_of_once(
    pipeline: Pipeline, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.control.administration")
    connection.execute("create table public.brand_new (id int primary key)")
    for _ in range(3):
        pipeline.keep_tables_in_step()
    assert [record.getMessage().count("may not publish public.brand_new") for record in caplog.records] == [1]
    connection.execute("create table public.newer (id int primary key)")
    pipeline.keep_tables_in_step()
    assert "may not publish public.newer" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2


def test_a_table_that_is_added_by_name_must_be_one_that_may_be_published(
    pipeline: Pipeline, connection: Connection
) -> None:
    connection.execute("create table public.brand_new (id int primary key)")
    with pytest.raises(SourceRefused, match=r"may not publish public\.brand_new") as refused:
        pipeline.add_tables(["brand_new"])
    assert refused.value.advice is not None
    assert "GRANT" not in refused.value.advice


def test_the_schema_of_a_superuser_is_shared_without_making_the_role_one(
    connection: Connection, database: str, guest: str
) -> None:
    migrations.migrate(connection)
    with connect(make_conninfo(database, user=guest)) as session:
        with pytest.raises(SourceRefused, match="permission denied for schema penstock") as refused:
            migrations.installed(session)
        assert refused.value.advice is not None
        assert 'GRANT "postgres"' not in refused.value.advice
        connection.execute(refused.value.advice.partition("run: ")[2].encode())
        assert migrations.installed(session)
        migrations.register(session, "shop")
