"""A row that moves to where its chunk has been read already, by updates that do not bring it whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import pytest
from pyspark.sql import SparkSession

from penstock.changelog.log import ChangeLog
from penstock.delivery.chunk_task import ChunkTask
from penstock.imports import jobs
from penstock.imports.copying import Copying, TableCopy
from penstock.imports.handover import ChunkToCopy
from penstock.imports.moved_rows import moved_keys
from penstock.postgres.connection import Connection, connect
from penstock.spark.imports import SparkPlans
from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.workload import Table

ITEMS = Table("public", "items", ("id", "pad", "body"), ("id",))

# Two pages, the first with room for the rows of the second.
_SCHEMA = """
create table items (id int primary key, pad text, body text);
alter table items alter body set storage external, set (autovacuum_enabled = off);
insert into items select n, repeat('p', 400), repeat(md5(n::text), 80) from generate_series(1, 34) n;
delete from items where id between 10 and 15;
"""


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> PipelineWithImports:
    pipeline = PipelineWithImports(database, tmp_path / "p", copy="workers: 1, chunk_bytes: 1")
    pipeline.execute(_SCHEMA)
    pipeline.execute("vacuum items")
    pipeline.pipeline.init()
    pipeline.pipeline.reconcile()
    return pipeline


class Copy:
    """A copier whose every step is the test's: all imports in step, chunk by chunk."""

    def __init__(self, pipeline: PipelineWithImports, spark: SparkSession, connection: Connection) -> None:
        self._pipeline, self._connection = pipeline, connection
        config, state = pipeline.pipeline.config, pipeline.state
        self._sinks = {sink.settings.name: sink for sink in pipeline.pipeline.sinks()}
        self._copier = jobs.register_copier(connection)
        log = ChangeLog(state.log_uri)
        copying = Copying(config, state, (config.name,), lambda *wanted: moved_keys(SparkPlans(spark), log, *wanted))
        claimed = jobs.claim_jobs(connection, config.name, self._copier, list(self._sinks))
        self._copies = [TableCopy(job, copying) for job in claimed]

    def advance_until_chunks_are_due(self) -> None:
        self._advance("select count(*) from penstock.import_chunks where job_id = %s and state = 'todo'")

    def advance_until_handed_over(self) -> None:
        self._advance("select count(*) from penstock.import_jobs where id = %s and state = 'catching_up'")

    def _advance(self, query: LiteralString) -> None:
        for copy in self._copies:
            wait_until(lambda: self._advanced(copy, query), what=f"the import of {copy.name}")  # noqa: B023  at once

    def _advanced(self, copy: TableCopy, query: LiteralString) -> bool:
        copy.advance(self._connection)
        return self._connection.execute(query, [copy.job.id]).fetchone() != (0,)

    def read_chunk(self, number: int) -> None:
        """This one, which is the next, for every sink."""
        state = self._pipeline.state
        for name, sink in self._sinks.items():
            ((job, chunk),) = jobs.claim_chunks(self._connection, "imports", self._copier, 1, sinks=[name])
            assert chunk.number == number
            assert job.layout is not None
            assert job.from_lsn is not None
            task = ChunkTask(sink, self._pipeline.url, state.root.uri, ("imports",))
            (done,) = task([ChunkToCopy(job.id, job.layout, chunk, job.from_lsn)])
            assert done.error is None
            jobs.chunks_staged(self._connection, job.id, {number: (done.rows, done.bytes)})


@contextmanager
def capturing(pipeline: PipelineWithImports) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=pipeline.pipeline.capture, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def test_a_row_that_took_the_key_of_another_and_moved_on_arrives_whole(
    pipeline: PipelineWithImports, spark: SparkSession
) -> None:
    with connect(pipeline.url) as connection, capturing(pipeline):
        copy = Copy(pipeline, spark, connection)
        copy.advance_until_chunks_are_due()
        assert pipeline.execute("select count(*) from penstock.import_chunks") == [(4,)], "two pages for two sinks"
        copy.read_chunk(1)
        pipeline.execute("delete from items where id = 5")
        pipeline.execute("update items set id = 5, pad = repeat('q', 400) where id = 30")
        assert pipeline.execute("select ctid::text like '(0,%%' from items where id = 5") == [(True,)], "it moved back"
        copy.read_chunk(2)
        copy.advance_until_chunks_are_due()
        copy.read_chunk(3)
        copy.advance_until_handed_over()
        pipeline.execute("update items set id = 77 where id = 5")

    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong([ITEMS]) == []
