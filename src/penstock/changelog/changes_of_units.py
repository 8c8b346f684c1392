"""From work units to change batches: what an executor does before a sink's ``write``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from penstock.pgoutput.columns import decode, have_old_rows

_PIECE_BYTES = 4 << 20
CHUNK_BYTES = 64 << 20  # decoded at once: bounds an executor's memory whatever the size of a transaction


def change_batches(log: ChangeLog, units: Sequence[WorkUnit], after: LSN) -> Iterator[ChangeBatch]:
    """Changes with a commit at or after ``after``, in order within each table; one batch per definition and chunk.

    A unit may want only later ones.
    """
    reader = _Reader(log)
    for (_table, bucket, buckets), members in groupby(units, key=lambda unit: (unit.table, unit.bucket, unit.buckets)):
        some = list(members)
        choose = _bucket(bucket, buckets, _linked(reader, some)) if buckets > 1 else _everything
        for batch in _decoded(reader, some, after, choose):
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


_Choose = Callable[[Relation, pa.RecordBatch], pa.RecordBatch]


def _everything(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _bucket(bucket: int, buckets: int, linked: UInt64s) -> _Choose:
    """By their keys alone; what other tasks decode is not decoded here."""

    def choose(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = decode(relation, rows, relation.key_indexes)
        return rows.filter(pa.array(in_bucket(keys, bucket, buckets, linked)))

    return choose


def _decoded(reader: _Reader, units: Sequence[WorkUnit], after: LSN, choose: _Choose) -> Iterator[ChangeBatch]:
    """Chunks end where the definition changes and at CHUNK_BYTES."""
    pending: list[pa.RecordBatch] = []
    relation: Relation | None = None
    for unit in units:
        described, batches, _ = reader.rows(unit)
        if pending and (described != relation or sum(batch.nbytes for batch in pending) >= CHUNK_BYTES):
            assert relation is not None
            yield from _decode(relation, pending, choose)
            pending = []
        relation = described
        wanted = max(after, LSN.parse(unit.after))
        pending += [rows for batch in batches if (rows := _from(batch, wanted)).num_rows]
    if pending and relation is not None:
        yield from _decode(relation, pending, choose)


def _decode(relation: Relation, pending: list[pa.RecordBatch], choose: _Choose) -> Iterator[ChangeBatch]:
    """Piece by piece, each small enough for the processor's cache: a third faster than all at once."""
    pieces, some, size = [], list[pa.RecordBatch](), 0
    for rows in pending:
        if some and size + rows.nbytes > _PIECE_BYTES:
            pieces.append(_decode_piece(relation, some, choose))
            some, size = [], 0
        some.append(rows)
        size += rows.nbytes
    pieces.append(_decode_piece(relation, some, choose))
    yield concat(pieces)


def _decode_piece(relation: Relation, some: list[pa.RecordBatch], choose: _Choose) -> ChangeBatch:
    return decode(relation, choose(relation, some[0] if len(some) == 1 else pa.concat_batches(some)))


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
            moved = (batch.filter(pa.array(have_old_rows(batch))) for batch in batches)
            found += [linked_keys(decode(relation, rows, relation.key_indexes)) for rows in moved if rows.num_rows]
    return np.unique(np.concatenate(found))
