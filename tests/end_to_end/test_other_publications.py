"""Publications are exchanged, dropped and made anew under a pipeline: its replica has the rows that they publish."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.state.publications_read import in_step
from penstock.testing.conditions import wait_until
from tests.end_to_end.replicated import Replicated, execute, rows

pytestmark = pytest.mark.spark

SOURCE = (
    "create table stays (id int primary key, v text)",
    "create table leaves (id int primary key, v text)",
    "create table comes (id int primary key, v text)",
    "insert into stays select n, 'copied' from generate_series(1, 100) n",
    "insert into leaves values (1, 'copied')",
    "insert into comes select n, 'copied' from generate_series(1, 100) n",
    "create publication first for table stays, leaves",
)
WHILE_STOPPED = (
    "update stays set v = 'before' where id <= 10; insert into leaves values (2, 'before')",
    "create publication second for table stays, comes where (id > 50)",
    "update stays set v = 'between' where id between 5 and 20; update comes set v = 'between' where id > 90",
)
MADE_ANEW = (
    "delete from stays where id = 1; insert into comes values (200, 'before')",
    "drop publication second",
    "insert into stays values (300, 'while there was none'); delete from comes where id = 60",
    "create publication second for table stays, comes where (id > 70)",
    "insert into stays values (301, 'after'); insert into comes values (301, 'after')",
)


def exchanged(source: str, target: str, directory: Path, publication: str) -> Replicated:
    return Replicated(source, directory, {"replica": {"url": target}}, publication=[publication])


def settle(pipeline: Replicated) -> None:
    """As the pipeline's own look every few seconds would."""
    pipeline.await_arrival(timeout=60)

    def settled() -> bool:
        pipeline.pipeline.reconcile()
        return in_step(pipeline.state.parts, pipeline.pipeline.config.source.publications)

    wait_until(settled, timeout=60, what="the publications to be read")
    done = {"streaming", "removed"}
    wait_until(lambda: set(pipeline.states().values()) <= done, timeout=90, what="the imports")


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_rows_are_those_of_the_publications_of_now(
    spark: SparkSession, database: str, target_database: str, tmp_path: Path
) -> None:
    execute(database, *SOURCE)
    pipeline = exchanged(database, target_database, tmp_path, "first")
    with pipeline.running(spark):
        pipeline.await_streaming(timeout=90)
    execute(database, *WHILE_STOPPED)
    pipeline = exchanged(database, target_database, tmp_path, "second")
    with pipeline.running(spark):
        settle(pipeline)
        execute(
            database,
            "update stays set v = 'later' where id = 50; update leaves set v = 'later'; delete from comes where id = 99",
        )
        pipeline.await_arrival(timeout=60)
        states = {table: state for (table, _), state in pipeline.states().items()}
        assert states == {"public.stays": "streaming", "public.leaves": "removed", "public.comes": "streaming"}
        query = "select * from {} order by id"
        assert rows(target_database, query.format("stays")) == rows(database, query.format("stays"))
        assert rows(target_database, query.format("comes")) == rows(database, query.format("comes where id > 50"))
        assert rows(target_database, query.format("leaves")) == [(1, "copied"), (2, "before")]
    execute(database, *MADE_ANEW)
    with pipeline.running(spark):
        settle(pipeline)
        execute(database, "update stays set v = 'last' where id = 300; update comes set v = 'last' where id = 200")
        pipeline.await_arrival(timeout=60)
        assert rows(target_database, query.format("stays")) == rows(database, query.format("stays"))
        assert rows(target_database, query.format("comes")) == rows(database, query.format("comes where id > 70"))
