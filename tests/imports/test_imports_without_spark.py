"""An import from the queue to the sink, with the real copier and the real delivery of imports, in this process alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from penstock.changelog.units import WorkUnit
from penstock.delivery.chunk_task import ChunkTask
from penstock.delivery.import_delivery import ImportDelivery
from penstock.delivery.table_record import TableRecord
from penstock.errors import SinkRefused
from penstock.imports.copier import Copier, ReadChunks
from penstock.imports.copying import CopierTask
from penstock.imports.handover import ChunkToCopy, CopiedChunk
from penstock.imports.moved_rows import moved_keys
from penstock.lsn import LSN, ZERO
from penstock.rules.passage import NO_RULES
from penstock.sinks.contract import Batch, ImportPart, Sink
from penstock.state.lifecycle import TableState
from penstock.state.pipeline_state import PipelineState
from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.comparison import differences, duckdb_rows, source_rows
from tests.recovery.workload import Table

ITEMS = Table("public", "items", ("id", "body"), ("id",))
Result = TypeVar("Result")


class PlansHere:
    """A ``PlanRunner``: task after task, in the thread that asks."""

    parallelism = 2

    def run(
        self, function: Callable[[Sequence[WorkUnit]], Result], tasks: Sequence[Sequence[WorkUnit]]
    ) -> list[Result]:
        return [function(task) for task in tasks]


class StreamAtTheEnd:
    """A ``StreamDelivery`` whose sink always holds all of the log, so that a table may join at any moment."""

    def __init__(self, sink: Sink[Any, Any], state: PipelineState) -> None:
        self._sink, self._state = sink, state
        self.lock, self.rules = threading.Lock(), NO_RULES
        self.tables = TableRecord(state, sink.settings.name)
        self.join: Callable[[Sequence[int], LSN], None] = lambda jobs, at: None
        self.seen: list[TableState] = []
        sink.prepare()
        self.tables.load(sink.imported())

    @property
    def position(self) -> LSN:
        return self._state.log.contents().end or ZERO

    def commit_beside(self, part: ImportPart, staging: str, receipts: Sequence[Any]) -> None:
        self.commit_part(part, staging, receipts)

    def commit_part(self, part: ImportPart, staging: str, receipts: Sequence[Any]) -> None:
        self._sink.commit(Batch(-1, ZERO, ZERO, staging, part), receipts)
        self.tables.note(part)
        self.seen.append(self.tables.state(part.relation.oid, part.job))


class ImportsHere:
    """A pipeline with a table whose rows make several chunks, and one sink."""

    def __init__(self, url: str, directory: Path) -> None:
        self.pipeline = PipelineWithImports(url, directory, copy="workers: 1, chunk_bytes: 1")
        self.pipeline.execute("create table items (id int primary key, body text)")
        self.pipeline.execute("insert into items select n, repeat('x', 400) from generate_series(1, 100) n")
        self.pipeline.pipeline.init()
        self.pipeline.pipeline.reconcile()
        (self.sink,) = self.pipeline.pipeline.sinks(["lake"])
        self.state = self.pipeline.state
        self.stream = StreamAtTheEnd(self.sink, self.state)
        self.imports = ImportDelivery(PlansHere(), self.sink, self.state, self.stream, _no_code)

    def read_chunks(
        self, sink: str, chunks: Sequence[ChunkToCopy], publications: tuple[str, ...]
    ) -> Sequence[CopiedChunk]:
        return ChunkTask(self.sink, self.pipeline.url, self.state.root.uri, publications)(chunks)

    @contextmanager
    def copying(self, read_chunks: ReadChunks) -> Iterator[None]:
        """Capture and the copier, in threads."""
        stop, look = threading.Event(), partial(moved_keys, PlansHere(), self.state.log)
        config = self.pipeline.pipeline.config
        capture = threading.Thread(target=self.pipeline.pipeline.capture, args=[stop])
        capture.start()
        try:
            with Copier(config, ["lake"], self.state, CopierTask(), read_chunks, look).copying():
                yield
        finally:
            stop.set()
            capture.join(30)
        assert not capture.is_alive()

    def queued(self) -> tuple[object, ...]:
        """State and error of the import into the sink."""
        (row,) = self.pipeline.execute(
            "select state, error from penstock.import_jobs where sink = 'lake' and state <> 'expired'"
        )
        return row

    def streams(self) -> bool:
        """One step of the delivery; whether both sides say that the import is complete."""
        self.imports.step()
        return self.queued() == ("streaming", None)

    def wrong(self) -> list[str]:
        lake = duckdb_rows(self.pipeline.directory / "lake.duckdb", [ITEMS])
        with psycopg.connect(self.pipeline.url) as connection:
            return differences("DuckDB", ITEMS, source_rows(connection, ITEMS), lake[ITEMS])


def _no_code(*_: object) -> Any:
    raise AssertionError("no rule has code that runs in Spark")


@pytest.fixture
def here(database: str, tmp_path: Path) -> Iterator[ImportsHere]:
    imports = ImportsHere(database, tmp_path / "p")
    with closing(imports.sink):
        yield imports


def test_a_table_that_is_written_to_while_it_is_copied_arrives_whole(here: ImportsHere) -> None:
    def writing_between(
        sink: str, chunks: Sequence[ChunkToCopy], publications: tuple[str, ...]
    ) -> Sequence[CopiedChunk]:
        copied = here.read_chunks(sink, chunks, publications)
        number = chunks[0].chunk.number
        here.pipeline.execute("update items set body = %s where id %% 10 = %s", f"after chunk {number}", number)
        here.pipeline.execute("delete from items where id = %s", 50 + number)
        here.pipeline.execute("insert into items values (%s, 'new')", 1000 + number)
        return copied

    with here.copying(writing_between):
        wait_until(here.streams, timeout=60, what="the table to stream")
    assert here.wrong() == []
    copying, catching_up = here.stream.seen.count(TableState.COPYING), here.stream.seen.count(TableState.CATCHING_UP)
    assert copying > 2, "a beginning and several chunks"
    assert catching_up >= 1
    assert here.stream.seen == sorted(here.stream.seen, key=list(TableState).index)
    assert here.stream.seen[-1] is TableState.STREAMING


def test_an_import_whose_chunk_the_sink_refuses_fails_with_the_reason(here: ImportsHere) -> None:
    def refusing(sink: str, chunks: Sequence[ChunkToCopy], _: tuple[str, ...]) -> Sequence[CopiedChunk]:
        return [CopiedChunk(chunk.job, chunk.chunk.number, error=SinkRefused("It is full.")) for chunk in chunks]

    with here.copying(refusing):
        wait_until(lambda: here.queued()[0] == "failed", timeout=60, what="the import to fail")
    assert "It is full." in str(here.queued()[1])
    here.imports.step()
    assert here.stream.seen in ([], [TableState.COPYING]), "no rows"
