"""Code in rules that fails on some rows: with ``on_error: dead_letter`` everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.errors import RuleError
from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports

RULES = """
rules:
  - tables: [public.readings]
    sql: "select *, cast(value as int) as number from changes"
    rename: {table: numbers, columns: {id: reading}}
"""
BAD = "s3cr3t-value"


@pytest.fixture
def stopped(database: str, target_database: str, tmp_path: Path) -> PipelineWithImports:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "create table readings (id int primary key, value text); insert into readings values (1, '10')"
        )
    settings = ", on_error: dead_letter, dead_letters: {max: 3}"
    return PipelineWithImports(database, tmp_path, target=target_database, target_settings=settings, sinks=RULES)


@contextmanager
def running(pipeline: PipelineWithImports, spark: SparkSession) -> Iterator[None]:
    """Delivers to the replica alone: the other sinks keep no dead letters."""
    with pipeline.running(spark, ["replica"]):
        wait_until(lambda: pipeline.states()["public.readings", "replica"] == "streaming", what="the import")
        yield


@pytest.fixture
def pipeline(stopped: PipelineWithImports, spark: SparkSession) -> Iterator[PipelineWithImports]:
    with running(stopped, spark):
        yield stopped


def numbers(pipeline: PipelineWithImports) -> list[tuple[int, int]]:
    assert pipeline.target is not None
    with psycopg.connect(pipeline.target) as connection:
        return connection.execute("select reading, number from numbers order by 1").fetchall()


def letters(pipeline: PipelineWithImports) -> list[tuple[str, dict[str, str | None]]]:
    return [(letter.op, dict(letter.key)) for letter in pipeline.pipeline.dead_letters(["replica"])]


def test_rows_that_the_code_fails_on_become_dead_letters_and_the_others_arrive(pipeline: PipelineWithImports) -> None:
    pipeline.execute(f"insert into readings values (2, '20'), (3, '{BAD}'), (4, '40'), (5, '{BAD}')")
    pipeline.execute(f"update readings set value = '{BAD}' where id = 1")
    pipeline.await_arrival_in(["replica"])
    assert numbers(pipeline) == [(2, 20), (4, 40)]
    assert letters(pipeline) == [
        ("insert", {"reading": "3"}),
        ("insert", {"reading": "5"}),
        ("update", {"reading": "1"}),
    ]
    told = pipeline.pipeline.dead_letters(["replica"])[0]
    assert (told.qualified_name, told.row) == ("public.numbers", None)
    assert told.reason == "rules[0].sql: it fails on a row of public.readings: CAST_INVALID_INPUT"

    done = pipeline.pipeline.replay_dead_letters(["replica"])
    assert (len(done.replayed), len(done.left)) == (0, 3)
    assert numbers(pipeline) == [(2, 20), (4, 40)]

    pipeline.execute("update readings set value = '30' where id = 3; update readings set value = '11' where id = 1")
    pipeline.execute("delete from readings where id = 5")
    pipeline.await_arrival_in(["replica"])
    assert numbers(pipeline) == [(1, 11), (2, 20), (3, 30), (4, 40)]
    assert letters(pipeline) == []


def test_a_row_that_a_later_change_of_the_batch_left_behind_is_no_dead_letter(pipeline: PipelineWithImports) -> None:
    with psycopg.connect(pipeline.url) as connection:
        connection.execute(f"update readings set value = '{BAD}' where id = 1")
        connection.execute(f"insert into readings values (2, '{BAD}'), (3, '{BAD}'), (4, '40')")
        connection.execute("update readings set value = '12', id = 7 where id = 1")
        connection.execute("update readings set value = '21' where id = 2")
        connection.execute("delete from readings where id = 3")
    pipeline.await_arrival_in(["replica"])
    assert numbers(pipeline) == [(2, 21), (4, 40), (7, 12)]
    assert letters(pipeline) == []


def _overwhelm(pipeline: PipelineWithImports, spark: SparkSession) -> None:
    def failed() -> bool:
        state = pipeline.state.sink("replica")
        return state is not None and state.state == "failed"

    with running(pipeline, spark):
        pipeline.execute(f"insert into readings select n, '{BAD}' from generate_series(2, 9) n")
        wait_until(failed, what="the sink to stop")


def test_more_of_them_than_the_sink_takes_stop_it(stopped: PipelineWithImports, spark: SparkSession) -> None:
    with pytest.raises(RuleError, match=r"CAST_INVALID_INPUT\. And on more than 3 rows of the batch\.") as stop:
        _overwhelm(stopped, spark)
    assert BAD not in str(stop.value)
    assert "dead_letters.max" in str(stop.value.advice)
