"""Work units: how a range of the log is divided among executors.

A unit is what one segment holds of one table, or of one bucket of its keys. All units of the same (table, bucket) go to
the same task, in the order of the log, so that each key's changes are applied in order without a shuffle. A hot table
whose changes are inserts only has no order to keep and is divided by segments; any other hot table by the hash of its key,
unless it has no key. A table that was truncated or whose definition changed stays whole: that concerns all keys at once.

From work units to change batches: what an executor does before a sink's ``write``.

Whether a table was truncated, by what the change log holds of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import RelationRows, SegmentFile, SegmentName, between, has_truncate
from penstock.changes.batch import ChangeBatch, Relation, UInt64s, concat
from penstock.changes.buckets import in_bucket, linked_keys, told_apart_by_text
from penstock.errors import LogCorrupt
from penstock.lsn import LSN, ZERO
from penstock.pgoutput.columns import decode, have_old_rows

HOT_BYTES = 16 << 20  # of one table in one batch: below this, dividing costs more than it gains
BUCKET_BYTES = 64 << 20  # the same where all tasks must look at all keys: two of them do 1.7 times the work of one
SMALL_BYTES = 1 << 20  # a whole batch below this is one task


@dataclass(frozen=True)
class WorkUnit:
    segment: str
    table: str
    oid: int  # which of the segment's relations
    bucket: int
    buckets: int  # 1: the whole table
    rows: int
    bytes: int
    after: str = "0/0"  # of these rows, only those of transactions that end after it
    section: int = 0  # counts the schema changes before it: changes of one relation may differ in their types' values


@dataclass(frozen=True)
class _Found:
    segment: SegmentName
    rows: RelationRows
    after: LSN
    section: int

    def unit(self, bucket: int = 0, buckets: int = 1) -> WorkUnit:
        return WorkUnit(
            str(self.segment), self.rows.relation.qualified_name, self.rows.relation.oid, bucket, buckets,
            self.rows.rows, self.rows.bytes // buckets, str(self.after), self.section,
        )  # fmt: skip


def everything(relation: Relation) -> LSN | None:
    """Admits all tables from the beginning; of Penstock's own, the schema log alone."""
    return None if relation.is_own and not relation.is_schema_log else ZERO


def only(table: str) -> Callable[[Relation], LSN | None]:
    """Admits the one table of this qualified name."""
    return lambda relation: ZERO if relation.qualified_name == table else None


def plan(
    log: ChangeLog, start: LSN, end: LSN, parallelism: int, admit: Callable[[Relation], LSN | None] = everything
) -> list[list[WorkUnit]]:
    """The units of every transaction after ``start`` up to ``end``, as at most ``parallelism`` tasks.

    ``admit`` says for each table from where on its changes are wanted; None: not at all.
    """
    found: list[_Found] = []
    section = 0
    for stretch in log.after(start, end):
        for name in stretch.segments:
            section += name.schema_change
            for rows in log.relations(name):
                after = admit(rows.relation)
                if after is not None and after < stretch.end:
                    found.append(_Found(name, rows, after, section))
    tasks = 1 if sum(unit.rows.bytes for unit in found) < SMALL_BYTES else parallelism
    groups = [group for units in _by_table(found) for group in _divide(units, tasks)]
    return _pack(groups, tasks)


def _by_table(found: list[_Found]) -> list[list[_Found]]:
    """In order. A table stays together under whatever names it had, and with others that had one of them."""
    first: dict[int | str, int | str] = {}  # of tables that belong together, the one that all lead to

    def lead(table: int | str) -> int | str:
        while first.setdefault(table, table) != table:
            table = first[table]
        return table

    for relation in {unit.rows.relation for unit in found}:
        first[lead(relation.qualified_name)] = lead(relation.oid)
    tables: dict[int | str, list[_Found]] = defaultdict(list)
    for unit in found:
        tables[lead(unit.rows.relation.oid)].append(unit)
    return list(tables.values())


def _divide(units: list[_Found], parts: int) -> list[list[WorkUnit]]:
    size = sum(found.rows.bytes for found in units)
    if parts == 1 or size < HOT_BYTES or _concern_all_keys(units):
        return [[found.unit() for found in units]]
    if all(found.rows.inserts == found.rows.rows for found in units):
        return [[found.unit() for found in some] for some in _runs(units, -(-len(units) // parts))]
    if size < BUCKET_BYTES or not all(_may_be_divided(found.rows.relation) for found in units):
        return [[found.unit() for found in units]]
    return [[found.unit(bucket, parts) for found in units] for bucket in range(parts)]


def _may_be_divided(relation: Relation) -> bool:
    return bool(relation.key) and told_apart_by_text(relation)


def _concern_all_keys(units: list[_Found]) -> bool:
    """A transaction that truncates or alters the table: the target changes once, between what came before and after."""
    return any(found.rows.truncates for found in units) or len({found.rows.relation for found in units}) > 1


def _runs(units: list[_Found], size: int) -> list[list[_Found]]:
    return [list(islice(units, at, at + size)) for at in range(0, len(units), size)]


def _pack(groups: list[list[WorkUnit]], tasks: int) -> list[list[WorkUnit]]:
    """Largest group first, each to the task with the least to do. Groups stay whole and in order."""
    packed: list[list[list[WorkUnit]]] = [[] for _ in range(min(tasks, len(groups)))]
    load = [0] * len(packed)
    for group in sorted(groups, key=lambda group: -sum(unit.bytes for unit in group)):
        least = load.index(min(load))
        packed[least].append(group)
        load[least] += sum(unit.bytes for unit in group)
    return [[unit for group in task for unit in group] for task in packed]


_PIECE_BYTES = 4 << 20
_MOST_OPEN = 500  # segments
CHUNK_BYTES = 64 << 20  # decoded at once: bounds an executor's memory whatever the size of a transaction


_Result = TypeVar("_Result")


class PlanRunner(Protocol):
    """Runs a function on every task of a plan, and returns its results in the order of the tasks: ``spark/imports.py``."""

    @property
    def parallelism(self) -> int: ...

    def run(
        self, function: Callable[[Sequence[WorkUnit]], _Result], tasks: Sequence[Sequence[WorkUnit]]
    ) -> list[_Result]: ...


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


def truncated_since(log: ChangeLog, oid: int, start: LSN) -> bool:
    """Whether the log has a TRUNCATE of the table in a transaction that ended after ``start``."""
    contents = log.contents()
    stretches = log.after(start) if contents.end is not None and contents.end > start else []
    return any(
        _truncates_after(log, name, entry, start)
        for stretch in stretches
        for name in stretch.segments
        for entry in log.relations(name)
        if entry.truncates and entry.relation.oid == oid
    )


def _truncates_after(log: ChangeLog, name: SegmentName, entry: RelationRows, start: LSN) -> bool:
    if name.start >= start:
        return True
    segment = log.open(name)
    return any(has_truncate(between(rows, start)) for rows in segment.rows(segment.entry(entry.relation.oid)))
