"""Imports while everything that Postgres can do to a row is done to the tables. A seed stands for a load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.workload import TABLES, Load, Table, create_tables

MOVERS = Table("public", "movers", ("id", "pad", "body"), ("id",))
_MOVERS = """
create table movers (id int primary key, pad text, body text);
alter table movers alter body set storage external;
insert into movers select n, repeat('p', 400), repeat(md5(n::text), 80) from generate_series(1, 1500) n;
"""


def _move(random: Random) -> list[tuple[str, list[object]]]:
    """Rows that go to other pages and other keys without their long value being sent again."""
    low = random.randrange(1, 1500)
    key, other = random.randrange(1, 1700), random.randrange(1, 1700)
    return random.choice(
        [
            [("update movers set pad = repeat(%s, 400) where id between %s and %s",
              [random.choice("qrs"), low, low + random.randrange(1, 60)])],
            [("delete from movers where id = %s", [other]), ("update movers set id = %s where id = %s", [other, key])],
            [("delete from movers where id = %s", [key])],
            [("insert into movers values (%s, 'new', repeat(md5(%s::text), 90)) on conflict do nothing", [key, other])],
            [("update movers set body = repeat(md5(%s::text), 85) where id between %s and %s", [other, low, low + 5])],
        ]
    )  # fmt: skip


class Traffic:
    """Both loads, transaction by transaction, until it is stopped."""

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._seed = url, seed
        self._load = Load(url, seed)
        self._number = 0

    def run(self, keep_on: Callable[[], bool]) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while keep_on():
                self._number += 1
                self._load.run(1)
                with connection.transaction():
                    for statement, values in _move(Random(f"{self._seed}:{self._number}")):
                        connection.execute(statement.encode(), values)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(
            target=self.run, args=[lambda: not stop.wait(0.1)]
        )  # not all of the processor is for it
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)
            self._load.close()


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        create_tables(connection)
        connection.execute(_MOVERS)


ALL = (*TABLES, MOVERS)


def copied_again(pipeline: PipelineWithImports, traffic: Traffic) -> list[str]:
    """All tables are imported once more under traffic; what is wrong then."""
    with traffic.flowing():
        pipeline.pipeline.resync_tables([str(table) for table in ALL])
        pipeline.await_streaming()
    pipeline.await_arrival()
    return pipeline.wrong(ALL)


@pytest.mark.parametrize(("seed", "replica"), [(1, True), (2, False)], ids=["1, with a replica", "2"])
def test_tables_that_are_written_to_while_they_are_copied_come_out_equal(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession, seed: int, replica: bool
) -> None:
    prepare(database)
    traffic = Traffic(database, seed)
    traffic.run(iter([True] * 30 + [False]).__next__)
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database if replica else None)
    with pipeline.running(spark):
        with traffic.flowing():
            pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong(ALL) == [], f"seed {seed}"
        assert copied_again(pipeline, traffic) == [], f"seed {seed}, copied again"
