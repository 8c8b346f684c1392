"""What executors do for an import: a chunk of a table ▶ change batches ▶ ``sink.write`` ▶ a receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock import failpoints
from penstock.changes.batch import ChangeBatch, Relation
from penstock.delivery.frame_parts import FramedReceipt, Inputs, StagedRows
from penstock.delivery.writer import outcome
from penstock.errors import PenstockError
from penstock.imports.handover import ChunkReceipt, ChunkToCopy, CopiedChunk, Handover, KeptRows
from penstock.lsn import ZERO
from penstock.postgres.reading.read_chunk import ChunkReader
from penstock.process import in_a_thread, step_back
from penstock.rules.passage import NO_RULES, Passage
from penstock.sinks.contract import Batch, ImportPart, Sink
from penstock.storage import Directory

WriteFramed = Callable[[Sequence[tuple[Relation, Inputs]], Batch], FramedReceipt]


@dataclass(frozen=True)
class ChunkTask:
    """Copies chunks, one after the other. The receipt of each is durable before the next one is read.

    The stream's tasks on the same machine go first.
    """

    sink: Sink[Any, Any]
    url: str
    state_uri: str
    publications: tuple[str, ...]
    rules: Passage = NO_RULES

    def __call__(self, chunks: Sequence[ChunkToCopy]) -> list[CopiedChunk]:
        return [in_a_thread(self._copy, chunk) for chunk in chunks]

    def _copy(self, wanted: ChunkToCopy) -> CopiedChunk:
        step_back()
        job, chunk = wanted.job, wanted.chunk
        handover = Handover(Directory(self.state_uri), self.sink.settings.name)
        if handover.is_staged(job, chunk.number):  # whoever read it died before it could say so
            return CopiedChunk(job, chunk.number, *handover.figures(job, chunk.number))
        staging = handover.new_staging(job, chunk.number)
        reader = ChunkReader(self.url, wanted.layout, chunk, wanted.from_lsn, self.publications)
        counted = _Counted(reader.batches())
        if self.rules.runs_in_frame(wanted.layout.relation):
            return self._read(wanted, staging, reader, counted)
        done = outcome(self.sink, chunk_batch(wanted, staging), iter(counted), self.rules)
        if isinstance(done, PenstockError):
            return CopiedChunk(job, chunk.number, error=done)
        receipt = ChunkReceipt(chunk.number, counted.rows, counted.bytes, done, staging, chunk.after, reader.snapshot)
        try:
            handover.write_receipt(job, receipt)
        except PenstockError as error:  # such as a full disk; raised, it would be a failed task in Spark's words
            return CopiedChunk(job, chunk.number, error=error)
        failpoints.reach(failpoints.CHUNK_STAGED)
        return CopiedChunk(job, chunk.number, counted.rows, counted.bytes)

    def _read(self, wanted: ChunkToCopy, staging: str, reader: ChunkReader, counted: _Counted) -> CopiedChunk:
        """For code that runs in Spark: the rows are kept for it."""
        try:
            StagedRows(staging).store(self.rules, iter(counted))
        except PenstockError as error:
            return CopiedChunk(wanted.job, wanted.chunk.number, error=error)
        number, rows, size, snapshot = wanted.chunk.number, counted.rows, counted.bytes, reader.snapshot
        return CopiedChunk(wanted.job, number, rows, size, kept=KeptRows(staging, snapshot))


def chunk_batch(wanted: ChunkToCopy, staging: str) -> Batch:
    replaces = wanted.chunk.after is not None
    part = ImportPart(wanted.job, wanted.layout.relation, "rows", wanted.chunk.number, replaces=replaces)
    return Batch(-1, ZERO, ZERO, staging, part)


def finished(handover: Handover, write: WriteFramed, wanted: ChunkToCopy, read: CopiedChunk) -> CopiedChunk:
    """On the driver: what code in Spark makes of rows that were kept for it ▶ ``sink.write`` ▶ the chunk's receipt."""
    assert read.kept is not None
    chunk, staging = wanted.chunk, read.kept.staging
    try:
        done = write([(wanted.layout.relation, StagedRows(staging))], chunk_batch(wanted, staging))
    except PenstockError as error:
        Directory(staging).delete_all()
        return CopiedChunk(read.job, read.number, error=error)
    receipt = ChunkReceipt(chunk.number, read.rows, read.bytes, done.outcome, staging, chunk.after, read.kept.snapshot)
    handover.write_receipt(read.job, receipt)
    failpoints.reach(failpoints.CHUNK_STAGED)
    return CopiedChunk(read.job, read.number, read.rows, read.bytes)


class _Counted:
    def __init__(self, batches: Iterator[ChangeBatch]) -> None:
        self._batches, self.rows, self.bytes = batches, 0, 0

    def __iter__(self) -> Iterator[ChangeBatch]:
        for batch in self._batches:
            self.rows += len(batch)
            self.bytes += batch.nbytes
            yield batch
