"""What runs in the executors of an import: a chunk of a table ▶ change batches ▶ ``sink.write`` ▶ a receipt. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock import failpoints
from penstock.changes import ChangeBatch
from penstock.errors import PenstockError
from penstock.imports.handover import ChunkReceipt, Handover
from penstock.imports.layout import TableLayout
from penstock.imports.plan import Chunk
from penstock.imports.read_chunk import ChunkReader
from penstock.lsn import LSN, ZERO
from penstock.priority import in_a_thread, step_back
from penstock.rules.passage import NO_RULES, Passage
from penstock.sinks.contract import Batch, ImportPart, Sink
from penstock.spark.writer import outcome
from penstock.storage import Directory


@dataclass(frozen=True)
class ChunkToCopy:
    job: int
    layout: TableLayout
    chunk: Chunk
    from_lsn: LSN


@dataclass(frozen=True)
class CopiedChunk:
    """What the queue in the source is told. ``error``: nothing was staged."""

    job: int
    number: int
    rows: int = 0
    bytes: int = 0
    error: PenstockError | None = None


@dataclass(frozen=True)
class ChunkTask:
    """Copies chunks, one after the other. The receipt of each is durable before the next one is read.

    The stream's tasks on the same machine go first.
    """

    sink: Sink[Any]
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
        part = ImportPart(job, wanted.layout.relation, "rows", chunk.number, replaces=chunk.after is not None)
        reader = ChunkReader(self.url, wanted.layout, chunk, wanted.from_lsn, self.publications)
        counted = _Counted(reader.batches())
        done = outcome(self.sink, Batch(-1, ZERO, ZERO, staging, part), iter(counted), self.rules)
        if isinstance(done, PenstockError):
            return CopiedChunk(job, chunk.number, error=done)
        receipt = ChunkReceipt(chunk.number, counted.rows, counted.bytes, done, staging, chunk.after, reader.snapshot)
        handover.write_receipt(job, receipt)
        failpoints.reach(failpoints.CHUNK_STAGED)
        return CopiedChunk(job, chunk.number, counted.rows, counted.bytes)


class _Counted:
    def __init__(self, batches: Iterator[ChangeBatch]) -> None:
        self._batches, self.rows, self.bytes = batches, 0, 0

    def __iter__(self) -> Iterator[ChangeBatch]:
        for batch in self._batches:
            self.rows += len(batch)
            self.bytes += batch.nbytes
            yield batch
