"""What imports need of Spark: chunks of tables, look-throughs of the log and rounds of changes as Spark jobs.

The steps of an import are in ``imports/`` (the copier's half) and ``delivery/import_delivery.py`` (the delivery's half),
and know nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.changelog.units import WorkUnit
from penstock.changes.batch import Relation
from penstock.config.model import Config
from penstock.delivery.chunk_task import ChunkTask, finished
from penstock.delivery.import_delivery import ImportDelivery
from penstock.errors import PenstockError, SparkLost
from penstock.imports.copier import Copier, Unfinished
from penstock.imports.copying import CopierTask
from penstock.imports.handover import ChunkToCopy, CopiedChunk, Handover
from penstock.imports.moved_rows import Keys, moved_keys
from penstock.lsn import LSN
from penstock.rules.passage import Passage
from penstock.sinks.contract import Batch, Sink
from penstock.spark.delivery import SinkDelivery
from penstock.spark.frames import Frames
from penstock.state.pipeline_state import PipelineState

_Result = TypeVar("_Result")


class SparkPlans:
    """A ``PlanRunner``: one Spark task for each task of a plan."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def parallelism(self) -> int:
        return self._spark.sparkContext.defaultParallelism

    def run(
        self, function: Callable[[Sequence[WorkUnit]], _Result], tasks: Sequence[Sequence[WorkUnit]]
    ) -> list[_Result]:
        with _translated("an import", PySparkException):
            return self._spark.sparkContext.parallelize(tasks, len(tasks)).map(function).collect()


class ChunkJobs:
    """Reads chunks of tables: each call is one Spark task."""

    def __init__(
        self, spark: SparkSession, config: Config, sinks: Sequence[Sink[Any, Any]], state: PipelineState
    ) -> None:
        self._spark, self._state, self._rules = spark, state, Passage(config.rules)
        self._url = config.source.url.get_secret_value()
        self._sinks = {sink.settings.name: sink for sink in sinks}
        self._frames = {name: Frames(spark, sink, self._rules) for name, sink in self._sinks.items()}

    def __call__(
        self, sink: str, chunks: Sequence[ChunkToCopy], publications: tuple[str, ...]
    ) -> Sequence[CopiedChunk]:
        errors = {chunk.layout.relation.oid: self._frame_error(chunk.layout.relation) for chunk in chunks}
        refused = [
            CopiedChunk(chunk.job, chunk.chunk.number, error=error)
            for chunk in chunks
            if (error := errors[chunk.layout.relation.oid]) is not None
        ]
        accepted = [chunk for chunk in chunks if errors[chunk.layout.relation.oid] is None]
        task = ChunkTask(self._sinks[sink], self._url, self._state.root.uri, publications, self._rules)
        with _translated("a chunk", PySparkException, Py4JError, ConnectionError):
            copied: list[CopiedChunk] = self._spark.sparkContext.parallelize([accepted], 1).flatMap(task).collect()
            return refused + self._finished(sink, accepted, copied)

    def _finished(self, sink: str, chunks: Sequence[ChunkToCopy], copied: Sequence[CopiedChunk]) -> list[CopiedChunk]:
        handover, write = Handover(self._state.root, sink), self._frames[sink].write
        by_number = {(chunk.job, chunk.chunk.number): chunk for chunk in chunks}
        return [
            finished(handover, write, by_number[read.job, read.number], read) if read.kept else read for read in copied
        ]

    def _frame_error(self, relation: Relation) -> PenstockError | None:
        """Why the code of its rules does not fit the table. If it does, the rules that go to the executors have the columns
        that it makes, which Spark alone can tell."""
        try:
            if self._rules.runs_in_frame(relation):
                self._rules.frame(relation)
        except PenstockError as error:
            return error
        return None


@contextmanager
def copied(
    spark: SparkSession, config: Config, sinks: Sequence[Sink[Any, Any]], state: PipelineState, task: CopierTask | None
) -> Iterator[Unfinished]:
    """Copies meanwhile; yields whether there is something left to do. Raises in the end if an import was refused."""
    if task is None:
        yield lambda given_up: False
        return
    read_chunks, names = ChunkJobs(spark, config, sinks, state), [sink.settings.name for sink in sinks]
    copier = Copier(config, names, state, task, read_chunks, partial(_moved_keys, SparkPlans(spark), state))
    with copier.copying() as unfinished:
        yield unfinished


def _moved_keys(
    plans: SparkPlans, state: PipelineState, oid: int, start: LSN, end: LSN, asked: Keys | None
) -> Sequence[Keys]:
    with _translated("looking for rows that moved", Py4JError):
        return moved_keys(plans, state.log, oid, start, end, asked)


def import_delivery(
    spark: SparkSession, sink: Sink[Any, Any], state: PipelineState, delivery: SinkDelivery
) -> ImportDelivery:
    def write_framed(relation: Relation, units: Sequence[WorkUnit], batch: Batch, snapshot: str | None) -> Any:
        with _translated("an import", PySparkException):
            changes = delivery.frames.logged(relation, units, state.log_uri, batch, snapshot)
            return delivery.frames.write([(relation, changes)], batch).outcome

    return ImportDelivery(SparkPlans(spark), sink, state, delivery, write_framed)


@contextmanager
def _translated(what: str, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise SparkLost(f"Spark gave up {what}: {first_line}") from error
