"""Transactions that are open when a table is added: what they wrote before, and what they write later, is all there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.testing.conditions import wait_until
from tests.imports.living_pipeline import LivingPipeline

pytestmark = pytest.mark.spark


class Transaction:
    """A session of somebody's, with a transaction that stays open."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self.pid = connection.info.backend_pid

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement.encode())

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


@contextmanager
def transactions(url: str, count: int) -> Iterator[list[Transaction]]:
    with ExitStack() as sessions:
        yield [Transaction(sessions.enter_context(psycopg.connect(url))) for _ in range(count)]


def waits_for(pipeline: LivingPipeline, *expected: Transaction) -> bool:
    """Whether `tables list` says that the import waits for these transactions and for no others."""
    found = [pipeline.status("public.late", sink) for sink in ("lake", "events")]
    return {status.state for status in found} == {"pending"} and all(_names(s.waiting_for, expected) for s in found)


def _names(words: str | None, expected: Sequence[Transaction]) -> bool:
    """The first three by name, and how many more."""
    named = {int(pid) for pid in re.findall(r"pid (\d+) of", words or "")}
    more = re.search(r"and (\d+) more", words or "")
    return named <= {transaction.pid for transaction in expected} and len(named) + int(more[1] if more else 0) == len(
        expected
    )


@pytest.mark.parametrize("database", [18, 16], indirect=True)
def test_not_a_row_of_a_transaction_that_was_open_when_its_table_was_added_is_missing(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = LivingPipeline(database, tmp_path / "p", source='tables: {include: ["in_*"]}')
    pipeline.execute("create table in_other (id int primary key); create table late (id int primary key, v text)")
    pipeline.execute("insert into late select n, 'old' from generate_series(1, 400) n")
    with pipeline.running(spark), transactions(database, 6) as (before, after, saved, reading, undone, later):
        pipeline.await_streaming()
        before.run("insert into late values (1001, 'before')", "update late set v = 'before' where id = 1")
        before.run("delete from late where id = 2", "update late set id = 1002 where id = 3")
        after.run("insert into in_other values (-1)")
        saved.run("savepoint a", "insert into late values (2001, 'undone')", "rollback to a")
        saved.run("savepoint b", "insert into late values (2002, 'saved')", "release b")
        reading.run("set transaction isolation level repeatable read", "select count(*) from late")
        undone.run("delete from late where id = 10")

        pipeline.pipeline.add_tables(["late"])
        wait_until(
            lambda: waits_for(pipeline, before, after, saved, undone), what="the import to say whom it waits for"
        )
        before.run("update late set v = 'twice' where id = 1001", "delete from late where id = 4")
        after.run("insert into late values (1101, 'after')", "update late set v = 'after' where id = 5")
        saved.run(
            "savepoint c", "delete from late where id = 6", "insert into late values (2003, 'c')", "rollback to c"
        )
        saved.run("savepoint d", "delete from late where id = 7", "release d", "insert into late values (2004, 'd')")
        reading.run("update late set v = 'read first' where id = 8", "insert into late values (1201, 'read first')")
        later.run("insert into late values (1301, 'later')")
        pipeline.execute("insert into late values (1401, 'short')")
        undone.run("insert into late values (1501, 'undone')")

        before.commit()
        reading.commit()
        undone.rollback()
        pipeline.execute("insert into in_other select generate_series(1, 10)")
        pipeline.await_arrival()
        assert pipeline.wrong(pipeline.tables("in_other")) == [], "the others stream on"
        wait_until(lambda: waits_for(pipeline, after, saved), what="the import to wait for the rest")
        after.commit()
        saved.commit()
        # One that began after the table was published, but before the place from which its changes are replayed.
        wait_until(lambda: waits_for(pipeline, later), what="the import to wait for the one that came later")
        later.run("update late set v = 'later' where id = 9", "delete from late where id = 11")
        later.commit()
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong(pipeline.tables("late", "in_other")) == []
        kept = pipeline.execute(
            "select count(*) from late where id in (1001, 1002, 1101, 1201, 1301, 1401, 2002, 2004)"
        )
        assert kept == [(8,)]
