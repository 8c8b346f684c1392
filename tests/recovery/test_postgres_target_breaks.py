"""What can happen to a Postgres target: it restarts, ends our session, is locked, takes rights away; and the answer to a
commit is lost. What each error means by itself is in ``tests/sinks/test_postgres_errors.py``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.changes.batch import ChangeBatch
from penstock.errors import PenstockError, SinkRefused, SinkUnavailable
from penstock.lsn import LSN, ZERO
from penstock.sinks.contract import Batch, ImportPart
from penstock.testing.change_batches import changes, relation
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.cut_connection import BreakingWay, Where
from tests.recovery.pipeline_under_test import PipelineUnderTest
from tests.sinks.test_postgres_sink import ACCOUNTS, Copy, Replica, account
from tests.target_roles import as_superuser, new_role, role_of

OURS = "application_name = 'penstock replica' and datname = current_database()"
WAITING = f"select pid from pg_stat_activity where {OURS} and wait_event_type = 'Lock'"


def asked(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def end_sessions(url: str, which: str = OURS) -> int:
    """Of the sink; how many there were."""
    return len(asked(url, f"select pg_terminate_backend(pid) from pg_stat_activity where {which}"))


@contextmanager
def locked(url: str, table: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        connection.execute(f"lock table {table} in access exclusive mode".encode())
        yield connection
        connection.rollback()


class Watched(PipelineUnderTest):
    """While it captures and delivers."""

    def arrived(self, *sinks: str) -> bool:
        end = self.log.contents().end or ZERO
        return all(self.sink_lsn(name) >= end for name in sinks or ("lake", "events", "replica"))

    def await_arrival(self, *sinks: str) -> None:
        now = self.committed_now()
        wait_until(lambda: self.position() >= now, what="the log to have it")
        wait_until(lambda: self.arrived(*sinks), what=f"{sinks or 'all sinks'} to have it")

    def await_retrying(self, *words: str) -> None:
        def says_so() -> bool:
            known = self.state.sink("replica")
            return known is not None and known.state == "retrying" and all(word in str(known.error) for word in words)

        wait_until(says_so, what=f"the sink to try again and say {words}")


def test_a_target_that_restarts_ends_sessions_or_is_locked_gets_everything_once_and_other_sinks_go_on(
    database: str, server_directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    with EmbeddedPostgres(server_directory) as server:
        target = server.create_database("target")
        pipeline = Watched(database, tmp_path, target=target, target_settings=", lock_timeout: 300ms")
        pipeline.begin()
        with pipeline.capturing(), pipeline.delivering(spark):
            pipeline.insert(1, 10)
            pipeline.await_arrival()

            server.restart()
            pipeline.insert(11, 20)
            pipeline.await_arrival()

            server.kill()
            pipeline.insert(21, 30)
            pipeline.await_arrival("lake", "events")
            pipeline.await_retrying()
            server.start()
            pipeline.await_arrival()

            assert end_sessions(target) > 0
            pipeline.insert(31, 40)
            pipeline.await_arrival()

            with locked(target, "items"):
                pipeline.execute("update items set value = 'changed' where id < 25")
                wait_until(lambda: asked(target, WAITING), what="our transaction to wait")
                assert end_sessions(target) > 0
                pipeline.await_arrival("lake", "events")
                pipeline.await_retrying("lock timeout")
            pipeline.await_arrival()

        assert pipeline.wrong() == []


def test_a_right_that_is_taken_away_stops_the_sink_alone_until_it_is_given_back(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    as_superuser(target_database, "create table items (id int primary key, value text)")
    role = new_role(target_database, 'grant create on database "{database}" to {role}', "grant all on items to {role}")
    pipeline = PipelineUnderTest(database, tmp_path, target=role)
    pipeline.begin()
    pipeline.insert(1, 10)
    pipeline.capture_all()
    pipeline.deliver(spark)
    as_superuser(target_database, f"revoke delete on items from {role_of(role)}")
    pipeline.execute("delete from items where id = 3")
    pipeline.capture_all()

    with pytest.raises(SinkRefused) as refused:
        pipeline.deliver(spark)

    assert refused.value.advice is not None
    grant = f'GRANT DELETE ON TABLE "public"."items" TO "{role_of(role)}"'
    assert grant in refused.value.advice
    end = pipeline.log.contents().end or ZERO
    assert min(pipeline.sink_lsn(name) for name in ("lake", "events")) >= end
    as_superuser(target_database, grant)
    pipeline.deliver(spark)
    assert pipeline.wrong() == []


EVENTS = relation("public", "happenings", n="integer", key=())


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_done_exactly_once(database: str, tmp_path: Path, where: Where) -> None:
    """Of a table without a key, where doing it twice would show."""
    with BreakingWay(database) as way:
        replica = Replica(way.url, tmp_path)
        replica.deliver([changes(EVENTS, [("insert", {"n": 1})], lsn=0x10)])
        batch = replica.batch()
        receipts = [replica.sink.write(batch, iter([changes(EVENTS, [("insert", {"n": 2})], lsn=0x1010)]))]
        way.break_at_commit(where)
        with pytest.raises(SinkUnavailable):
            replica.sink.commit(batch, receipts)
        assert way.broken

        wait_until(lambda: not asked(database, "select 1 from pg_stat_activity where xact_start is not null "
                                     "and application_name = 'penstock replica'"), what="the server to notice")  # fmt: skip
        assert replica.sink.prepare() == (batch.end if where == "after" else batch.start)
        replica.sink.commit(batch, receipts)
        replica.sink.close()
        assert asked(database, "select n from happenings order by n") == [(1,), (2,)]
        assert asked(database, "select lsn::text from penstock.progress") == [(str(batch.end),)]


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Replica]:
    found = Replica(database, tmp_path)
    yield found
    found.sink.close()


def rows(*ids: int) -> ChangeBatch:
    return changes(ACCOUNTS, [("read", account(id, f"e{id}")) for id in ids])


def test_a_session_that_ends_while_an_import_copies_leaves_nothing_and_the_part_comes_again(replica: Replica) -> None:
    copy = Copy(replica)
    copy.part("begin")
    copy.part("rows", rows(1), number=1)
    part = ImportPart(1, ACCOUNTS, "rows", number=2)
    batch = Batch(-1, LSN(0), LSN(0), str(replica.directory), part)

    def interrupted() -> Iterator[ChangeBatch]:
        yield rows(2)
        copying = f"{OURS} and query ilike 'copy %' and state = 'active'"
        assert wait_until(lambda: end_sessions(replica.url, copying), what="the session that copies") == 1
        while True:  # as much as the connection takes before it notices
            yield rows(*range(3, 3000))

    with pytest.raises(SinkUnavailable):
        replica.sink.write(batch, interrupted())
    assert replica.rows("select id from accounts__import_1") == [(1,)]
    assert replica.rows("select number from penstock.import_parts order by 1") == [(1,)]

    copy.part("rows", rows(2), number=2)
    copy.part("rows", rows(2), number=2)  # and once more: its record says that it is there
    copy.part("changes", upto=LSN(0x100))
    copy.part("end", upto=LSN(0x100))
    assert replica.rows("select id from accounts order by id") == [(1,), (2,)]


def test_a_session_that_ends_while_a_table_is_swapped_leaves_the_old_one_and_the_end_comes_again(
    replica: Replica,
) -> None:
    Copy(replica).whole(account(1, "old"))
    copy = Copy(replica, job=2)
    copy.part("begin")
    copy.part("rows", rows(1, 2), number=1)
    copy.part("changes", upto=LSN(0x200))
    problems: list[PenstockError] = []

    def end() -> None:
        with pytest.raises(SinkUnavailable) as problem:
            copy.part("end", upto=LSN(0x200))
        problems.append(problem.value)

    with psycopg.connect(replica.url) as reader:
        reader.execute("select from accounts")  # somebody reads the old one, so that it cannot go yet
        ending = threading.Thread(target=end)
        ending.start()
        wait_until(lambda: replica.rows(WAITING), what="the swap to wait")
        assert end_sessions(replica.url, f"{OURS} and wait_event_type = 'Lock'") == 1
        ending.join(30)
        assert reader.execute("select email from accounts").fetchall() == [("old",)]
    assert problems

    copy.part("end", upto=LSN(0x200))
    assert replica.rows("select id, email from accounts order by id") == [(1, "e1"), (2, "e2")]
    assert replica.rows("select job from penstock.imports") == [(2,)]
    assert replica.rows("select 1 from pg_class where relname like '%import\\_2'") == []
