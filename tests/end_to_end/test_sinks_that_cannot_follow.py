"""A sink that is not to follow a schema change, or cannot: it stops with the table, the change and the remedy, alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.errors import SinkRefused
from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text, amount int);
INSERT INTO orders SELECT n, 'note ' || n, n FROM generate_series(1, 20) n;
"""
ALTERED = "ALTER TABLE orders ALTER COLUMN amount TYPE text; INSERT INTO orders VALUES (100, 'after', 'many')"


class Watched:
    """A pipeline into DuckDB, events and a replica, of which the replica is to stop."""

    def __init__(self, pipeline: PipelineWithImports, target: str) -> None:
        self.pipeline, self.target = pipeline, target

    def stops(self, spark: SparkSession, statement: str, before: Callable[[], None] = lambda: None) -> str:
        """The replica's error, when the others have all that was committed."""
        with pytest.raises(SinkRefused) as stopped:
            self._run(spark, statement, before)
        return f"{stopped.value.message} {stopped.value.advice}"

    def _run(self, spark: SparkSession, statement: str, before: Callable[[], None]) -> None:
        with self.pipeline.running(spark):
            self.pipeline.await_streaming()
            before()
            self.pipeline.execute(statement)
            wait_until(lambda: self.state("replica") == "failed", timeout=240, what="the replica to stop")
            self.pipeline.execute("INSERT INTO orders VALUES (101, 'later', '1')")
            self.pipeline.await_arrival_in(["lake", "events"], 240)

    def state(self, sink: str) -> str | None:
        known = self.pipeline.state.sink(sink)
        return known.state if known is not None else None

    def lake(self) -> list[tuple[object, ...]]:
        with duckdb.connect(str(self.pipeline.directory / "lake.duckdb"), read_only=True) as connection:
            return connection.execute("SELECT id, note, amount FROM public.orders ORDER BY id").fetchall()

    def told(self) -> set[int]:
        files = (self.pipeline.directory / "events").glob("*.jsonl")
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return {event["key"]["id"] for event in events if event["op"] in ("read", "insert")}

    def on_target(self, statement: str) -> None:
        with psycopg.connect(self.target) as connection:
            connection.execute(statement.encode())

    def replica(self) -> list[tuple[object, ...]]:
        with psycopg.connect(self.target) as connection:
            return connection.execute("SELECT id, note, amount FROM orders ORDER BY id").fetchall()

    def source(self) -> list[tuple[object, ...]]:
        return self.pipeline.execute("SELECT id, note, amount FROM orders ORDER BY id")


def test_a_sink_that_is_to_stop_at_schema_changes_stops_and_goes_on_when_told_to(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    settings = ", schema_changes: stop"
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database, target_settings=settings)
    pipeline.execute(TABLES)
    watched = Watched(pipeline, target_database)
    said = watched.stops(spark, ALTERED)
    assert "Sink replica: public.orders was altered in the source at" in said
    assert "(type of amount: integer to text)" in said
    assert "start with schema_changes: ignore (or apply)" in said
    assert len(watched.replica()) == 20
    assert watched.lake() == watched.source()
    assert watched.told() == {*range(1, 21), 100, 101}
    again = PipelineWithImports(database, tmp_path / "p", target=target_database)
    with again.running(spark):
        again.await_arrival(240)
    assert watched.replica() == watched.source()


def test_a_target_that_cannot_follow_stops_and_goes_on_when_the_obstacle_is_gone(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database)
    pipeline.execute(TABLES)
    watched = Watched(pipeline, target_database)
    said = watched.stops(
        spark, ALTERED, before=lambda: watched.on_target("CREATE VIEW sums AS SELECT sum(amount) FROM orders")
    )
    assert (
        "Sink replica: public.orders of the target cannot follow the source (type of amount: integer to text)" in said
    )
    assert "cannot alter type of a column used by a view or rule. rule _RETURN on view public.sums" in said
    assert "Take away what is in its way, then start again; or make the change there yourself" in said
    assert len(watched.replica()) == 20
    assert watched.lake() == watched.source()
    assert watched.told() == {*range(1, 21), 100, 101}
    watched.on_target("DROP VIEW sums")
    with pipeline.running(spark):
        pipeline.await_arrival(240)
    assert watched.replica() == watched.source()
