"""From work units to change batches: what an executor does before a sink's ``write``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.buckets import in_bucket, linked_keys
from penstock.changelog.plan import WorkUnit
from penstock.changelog.segment import SegmentFile, SegmentName, between
from penstock.changes import ChangeBatch, Relation, UInt64s, concat
from penstock.errors import LogCorrupt
from penstock.lsn import LSN
from penstock.pgoutput.columns import decode, have_old_rows

_PIECE_BYTES = 4 << 20
_MOST_OPEN = 500  # segments
CHUNK_BYTES = 64 << 20  # decoded at once: bounds an executor's memory whatever the size of a transaction


class OpensSegments(Protocol):
    """The change log, or segments of it that are open already."""

    def open(self, name: SegmentName) -> SegmentFile: ...


def change_batches(
    log: OpensSegments, units: Sequence[WorkUnit], after: LSN, upto: LSN | None = None
) -> Iterator[ChangeBatch]:
    """Changes of transactions that end after ``after`` and not after ``upto``, in order within each table; one batch per
    definition, section and chunk.

    A unit may want only later ones.
    """
    reader = _Reader(log, after, upto)
    for (_table, bucket, buckets), members in groupby(units, key=lambda unit: (unit.table, unit.bucket, unit.buckets)):
        some = list(members)
        choose = _bucket(bucket, buckets, _linked(reader, some)) if buckets > 1 else _everything
        for batch in _decoded(reader, some, choose):
            if len(batch):
                yield batch


class _Reader:
    """Keeps the last segments of a task open: a task reads many tables of the same few segments."""

    def __init__(self, log: OpensSegments, after: LSN, upto: LSN | None) -> None:
        self._log, self._after, self._upto = log, after, upto
        self._open: dict[str, SegmentFile] = {}

    def rows(self, unit: WorkUnit) -> tuple[Relation, list[pa.RecordBatch], bool]:
        """The relation, those of its rows that are in the range and that the unit wants, and whether all are inserts."""
        segment = self._open.get(unit.segment) or self._opened(unit.segment)
        entry = segment.entry(unit.oid)
        after = max(self._after, LSN.parse(unit.after))
        rows = [between(batch, after, self._upto) for batch in segment.rows(entry)]
        return entry.relation, [batch for batch in rows if batch.num_rows], entry.inserts == entry.rows

    def _opened(self, segment: str) -> SegmentFile:
        name = SegmentName.parse(segment)
        if name is None:
            raise LogCorrupt(f"{segment} is not the name of a segment.")
        while len(self._open) >= _MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._open[segment] = self._log.open(name)
        return self._open[segment]


_Choose = Callable[[Relation, pa.RecordBatch], pa.RecordBatch]


def _everything(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _bucket(bucket: int, buckets: int, linked: UInt64s) -> _Choose:
    """By their keys alone; what other tasks decode is not decoded here."""

    def choose(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = decode(relation, rows, relation.key_indexes)
        return rows.filter(pa.array(in_bucket(keys, bucket, buckets, linked)))

    return choose


def _decoded(reader: _Reader, units: Sequence[WorkUnit], choose: _Choose) -> Iterator[ChangeBatch]:
    """Chunks end where the definition changes, where a command of the schema log comes, and at CHUNK_BYTES."""
    pending, size = list[pa.RecordBatch](), 0
    relation: Relation | None = None
    section = 0
    for unit in units:
        described, batches, _ = reader.rows(unit)
        if pending and ((described, unit.section) != (relation, section) or size >= CHUNK_BYTES):
            assert relation is not None
            yield from _decode(relation, pending, choose, section)
            pending, size = [], 0
        relation, section = described, unit.section
        pending += batches
        size += sum(batch.nbytes for batch in batches)
    if pending and relation is not None:
        yield from _decode(relation, pending, choose, section)


def _decode(relation: Relation, pending: list[pa.RecordBatch], choose: _Choose, section: int) -> Iterator[ChangeBatch]:
    """Piece by piece, each small enough for the processor's cache: a third faster than all at once."""
    pieces, some, size = [], list[pa.RecordBatch](), 0
    for rows in pending:
        if some and size + rows.nbytes > _PIECE_BYTES:
            pieces.append(_decode_piece(relation, some, choose))
            some, size = [], 0
        some.append(rows)
        size += rows.nbytes
    pieces.append(_decode_piece(relation, some, choose))
    yield replace(concat(pieces), section=section)


def _decode_piece(relation: Relation, some: list[pa.RecordBatch], choose: _Choose) -> ChangeBatch:
    return decode(relation, choose(relation, some[0] if len(some) == 1 else pa.concat_batches(some)))


def _linked(reader: _Reader, units: Sequence[WorkUnit]) -> UInt64s:
    found = [np.empty(0, np.uint64)]
    for unit in units:
        relation, batches, inserts_only = reader.rows(unit)
        if not inserts_only:
            moved = (batch.filter(pa.array(have_old_rows(batch))) for batch in batches)
            found += [linked_keys(decode(relation, rows, relation.key_indexes)) for rows in moved if rows.num_rows]
    return np.unique(np.concatenate(found))
