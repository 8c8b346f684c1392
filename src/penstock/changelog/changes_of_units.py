"""From work units to change batches: what an executor does before a sink's ``write``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from penstock.buckets import in_bucket, linked_keys
from penstock.changelog.log import ChangeLog
from penstock.changelog.plan import WorkUnit
from penstock.changelog.segment import SegmentFile, SegmentName
from penstock.changes import ChangeBatch, Relation, UInt64s, concat
from penstock.errors import LogCorrupt
from penstock.lsn import LSN
from penstock.pgoutput.columns import decode

_PIECE_BYTES = 4 << 20
CHUNK_BYTES = 64 << 20  # decoded at once: bounds an executor's memory whatever the size of a transaction


def change_batches(log: ChangeLog, units: Sequence[WorkUnit], after: LSN) -> Iterator[ChangeBatch]:
    """Changes with a commit at or after ``after``, in order within each table; one batch per definition and chunk.

    A unit may want only later ones.
    """
    reader = _Reader(log)
    for (_table, bucket, buckets), members in groupby(units, key=lambda unit: (unit.table, unit.bucket, unit.buckets)):
        some = list(members)
        linked = _linked(reader, some) if buckets > 1 else np.empty(0, np.uint64)
        for batch in _decoded(reader, some, after):
            if buckets > 1:
                batch = batch.take(np.flatnonzero(in_bucket(batch, bucket, buckets, linked)))
            if len(batch):
                yield batch


class _Reader:
    """Keeps the segments of a task open: a task reads many tables of the same few segments."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._open: dict[str, SegmentFile] = {}

    def rows(self, unit: WorkUnit) -> tuple[Relation, list[pa.RecordBatch], bool]:
        name = SegmentName.parse(unit.segment)
        if name is None:
            raise LogCorrupt(f"{unit.segment} is not the name of a segment.")
        segment = self._open.get(unit.segment) or self._log.open(name)
        self._open[unit.segment] = segment
        entry = segment.relations[unit.entry]
        return entry.relation, segment.rows(entry), entry.inserts == entry.rows


def _decoded(reader: _Reader, units: Sequence[WorkUnit], after: LSN) -> Iterator[ChangeBatch]:
    """Chunks end where the definition changes and at CHUNK_BYTES."""
    pending: list[pa.RecordBatch] = []
    relation: Relation | None = None
    for unit in units:
        described, batches, _ = reader.rows(unit)
        if pending and (described != relation or sum(batch.nbytes for batch in pending) >= CHUNK_BYTES):
            assert relation is not None
            yield from _decode(relation, pending)
            pending = []
        relation = described
        wanted = max(after, LSN.parse(unit.after))
        pending += [rows for batch in batches if (rows := _from(batch, wanted)).num_rows]
    if pending and relation is not None:
        yield from _decode(relation, pending)


def _decode(relation: Relation, pending: list[pa.RecordBatch]) -> Iterator[ChangeBatch]:
    """Piece by piece, each small enough for the processor's cache: a third faster than all at once."""
    pieces, some, size = [], list[pa.RecordBatch](), 0
    for rows in pending:
        if some and size + rows.nbytes > _PIECE_BYTES:
            pieces.append(_decode_piece(relation, some))
            some, size = [], 0
        some.append(rows)
        size += rows.nbytes
    pieces.append(_decode_piece(relation, some))
    yield concat(pieces)


def _decode_piece(relation: Relation, some: list[pa.RecordBatch]) -> ChangeBatch:
    return decode(relation, some[0] if len(some) == 1 else pa.concat_batches(some))


def _from(rows: pa.RecordBatch, after: LSN) -> pa.RecordBatch:
    """Without what the sink has already; the log's first segment may begin before the batch does."""
    commits = rows.column("commit_lsn").to_numpy()
    if len(commits) == 0 or commits[0] >= after:
        return rows
    return rows.slice(int(np.searchsorted(commits, int(after))))


def _linked(reader: _Reader, units: Sequence[WorkUnit]) -> UInt64s:
    found = [np.empty(0, np.uint64)]
    for unit in units:
        relation, batches, inserts_only = reader.rows(unit)
        if not inserts_only:
            found += [linked_keys(decode(relation, batch)) for batch in batches]
    return np.unique(np.concatenate(found))
