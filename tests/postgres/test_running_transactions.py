from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.postgres.connection import Connection, connect
from penstock.postgres.transactions import running_transactions, still_running
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres

pytestmark = pytest.mark.process

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


@pytest.fixture
def writer(connection: Connection, database: str) -> Iterator[Connection]:
    """A session in a transaction that has not written yet; ``public.t`` is there."""
    connection.execute("create table public.t (a int)")
    with connect(database, autocommit=False) as session:
        yield session
        session.rollback()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """With prepared transactions, and a standby that never comes for those who ask for one."""
    settings = {
        "max_prepared_transactions": "5", "synchronous_standby_names": "nobody", "synchronous_commit": "local",
    }  # fmt: skip
    with EmbeddedPostgres(settings=settings) as server:
        server.execute("create table t (a int)")
        yield server


def xid_of(session: Connection) -> int:
    row = session.execute("select pg_current_xact_id()::xid::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


@both_versions
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_runs_from_its_first_write_to_its_end(
    connection: Connection, writer: Connection, end: str
) -> None:
    writer.execute("select * from public.t")
    assert running_transactions(connection) == ()
    writer.execute("insert into public.t values (1)")
    running = running_transactions(connection)
    assert running == (xid_of(writer),)
    (words,) = still_running(connection, running)
    pid = writer.info.backend_pid
    assert re.fullmatch(rf"pid {pid} of postgres since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d", words)
    writer.execute(end)
    assert still_running(connection, running) == []
    assert running_transactions(connection) == ()


def test_our_own_transaction_is_not_waited_for(connection: Connection, writer: Connection) -> None:
    writer.execute("insert into public.t values (1)")
    with connection.transaction():
        own = xid_of(connection)
        assert running_transactions(connection) == (xid_of(writer),)
        assert own not in running_transactions(connection)


def test_a_transaction_with_savepoints_is_named_once(connection: Connection, writer: Connection) -> None:
    for _ in range(3):
        writer.execute("savepoint a; insert into public.t values (1)")
    running = running_transactions(connection)
    assert xid_of(writer) in running
    assert len(still_running(connection, running)) == 1
    writer.commit()
    assert still_running(connection, running) == []


def test_transactions_of_other_databases_are_not_waited_for(
    connection: Connection, writer: Connection, postgres18: EmbeddedPostgres
) -> None:
    writer.execute("insert into public.t values (1)")
    with postgres18.connect() as elsewhere:
        assert xid_of(writer) not in running_transactions(elsewhere)
        assert xid_of(writer) in running_transactions(connection)


def test_those_that_began_later_are_not_waited_for(connection: Connection, writer: Connection) -> None:
    running = running_transactions(connection)
    writer.execute("insert into public.t values (1)")
    assert still_running(connection, running) == []


def test_a_role_without_rights_sees_the_same(
    connection: Connection, writer: Connection, database: str, guest: str
) -> None:
    writer.execute("insert into public.t values (1)")
    with connect(make_conninfo(database, user=guest)) as session:
        running = running_transactions(session)
        assert running == running_transactions(connection) == (xid_of(writer),)
        assert still_running(session, running) == [f"pid {writer.info.backend_pid} of postgres"]


def test_a_prepared_transaction_runs_until_it_is_committed(server: EmbeddedPostgres) -> None:
    with connect(server.url) as connection, connect(server.url) as writer:
        writer.execute("begin; insert into public.t values (1); savepoint a; insert into public.t values (2)")
        before = running_transactions(connection)
        top = xid_of(writer)
        writer.execute("prepare transaction 'a \"transfer\"'")
        try:
            running = running_transactions(connection)
            assert running == (top,)
            (words,) = still_running(connection, running)
            assert re.fullmatch(r'prepared transaction "a "transfer"" of postgres since [\d :-]{19}', words)
            assert still_running(connection, before) != []
        finally:
            writer.execute("commit prepared 'a \"transfer\"'")
        assert still_running(connection, before) == []
        assert running_transactions(connection) == ()


def test_a_prepared_transaction_of_another_database_is_not_waited_for(server: EmbeddedPostgres) -> None:
    with connect(server.create_database("other")) as connection, connect(server.url) as writer:
        writer.execute("begin; insert into public.t values (1); savepoint a; insert into public.t values (2)")
        writer.execute("prepare transaction 'elsewhere'")
        try:
            assert running_transactions(connection) == ()
        finally:
            writer.execute("rollback prepared 'elsewhere'")


def test_a_commit_that_is_written_but_not_yet_seen_is_waited_for(server: EmbeddedPostgres) -> None:
    """Its commit record lies before the end of the WAL, and still nobody sees its rows."""

    def commit_and_wait_for_nobody(session: psycopg.Connection) -> None:
        session.execute("set synchronous_commit = on; insert into public.t values (42)")

    with connect(server.url) as connection, connect(server.url) as writer, ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit_and_wait_for_nobody, writer)
        waiting = "select wait_event = 'SyncRep' from pg_stat_activity where pid = %s"
        pid = writer.info.backend_pid
        wait_until(lambda: connection.execute(waiting, [pid]).fetchone() == (True,), what="the commit to wait")
        running = running_transactions(connection)
        assert len(running) == 1
        assert still_running(connection, running) != []
        assert connection.execute("select from public.t where a = 42").fetchone() is None
        connection.execute("select pg_cancel_backend(%s)", [pid])
        committing.result()
        assert still_running(connection, running) == []
        assert connection.execute("select from public.t where a = 42").fetchone() is not None
