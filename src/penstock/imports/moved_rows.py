"""Rows that no chunk may have seen whole: they moved between two chunks, by an update that did not bring all of them.

A row that an update puts on another page, or gives another key, may be missed by every chunk. The update is replayed, so
the row comes; except for a TOASTed value that the update did not touch, which Postgres does not send. Such rows are read
again by their keys. Of these, one whose key changed while they were read is looked for once more, until there is none.
They get fewer each time, however much is written: a row that no update touched before has been seen whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changelog.log import ChangeLog
from penstock.changelog.units import PlanRunner, WorkUnit, change_batches, plan
from penstock.changes.batch import OLD_FULL, OLD_NONE, UPDATE, Bools, ChangeBatch, Relation
from penstock.changes.net import codes
from penstock.changes.toast import has_fixed_width
from penstock.lsn import LSN, ZERO
from penstock.postgres.reading.chunks import Chunk

Keys: TypeAlias = list[pa.Array]  # distinct; one array of text per column of the key

KeyChanges: TypeAlias = tuple[Keys, Keys]  # before and after, row by row

KEYS_PER_CHUNK = 5000

_TIDY_EVERY = 100_000  # keys that are gathered before those that are there twice go


def may_lack_values(relation: Relation) -> bool:
    """Whether an update of the table may come without a value that it has. Key columns always come."""
    if relation.identity == "f":
        return False
    return any(not has_fixed_width(column) and column.name not in relation.key for column in relation.columns)


def moved_keys(
    runner: PlanRunner, log: ChangeLog, oid: int, start: LSN, end: LSN, asked: Keys | None
) -> Sequence[Keys]:
    """The keys of rows to read again, by the table's changes in the log after ``start`` and up to ``end``.

    ``asked``: the keys of rows that were just read again; then only those that have another key since.
    """

    def admit(relation: Relation) -> LSN | None:
        return start if relation.oid == oid else None

    last = log.contents().end or ZERO
    tasks = plan(log, start, min(end, last), runner.parallelism, admit) if last > start else []
    if not tasks:
        return []
    results = runner.run(_LookThrough(log.directory.uri, start, end, only_key_changes=asked is not None), tasks)
    keys = [result for result in results if result is not None]
    if asked is None:
        return keys
    moved = moved_on(asked, keys)
    return [] if moved is None else [moved]


@dataclass(frozen=True)
class _LookThrough:
    """Runs in the executors."""

    log_uri: str
    start: LSN
    end: LSN
    only_key_changes: bool

    def __call__(self, units: Sequence[WorkUnit]) -> Any:
        changes = change_batches(ChangeLog(self.log_uri), units, self.start, self.end)
        return key_changes(changes) if self.only_key_changes else keys_to_read_again(changes)


def keys_to_read_again(changes: Iterator[ChangeBatch]) -> Keys | None:
    """The keys, after the update, of rows that came without a value; None if there are none."""
    found: list[Keys] = []
    count = 0
    for batch in changes:
        rows = pa.array(np.flatnonzero(_lacks_a_value(batch)))
        if len(rows) == 0:
            continue
        found.append([batch.new[index].take(rows) for index in batch.relation.key_indexes])
        count += len(rows)
        if count >= _TIDY_EVERY:
            found = [distinct(found)]
            count = 0
    return distinct(found) if found else None


def key_changes(changes: Iterator[ChangeBatch]) -> KeyChanges | None:
    """The keys before and after of updates that changed them and came without a value; None if there are none."""
    found: list[KeyChanges] = []
    for batch in changes:
        rows = pa.array(np.flatnonzero(_lacks_a_value(batch) & _changes_key(batch)))
        if len(rows):
            indexes = batch.relation.key_indexes
            found.append(([batch.old[i].take(rows) for i in indexes], [batch.new[i].take(rows) for i in indexes]))
    if not found:
        return None
    before, after = zip(*found, strict=True)
    return [pa.concat_arrays(some) for some in zip(*before, strict=True)], [
        pa.concat_arrays(some) for some in zip(*after, strict=True)
    ]


def moved_on(asked: Keys, found: Sequence[KeyChanges]) -> Keys | None:
    """Where rows with the keys that were asked for may be by now: the keys that changes lead to from there, step by step.

    In whatever order they were found: one key too many does no harm. Few, since they are of the time of one look.
    """
    before, after = (
        ([pa.concat_arrays(some) for some in zip(*side, strict=True)] for side in zip(*found, strict=True))
        if found
        else ([], [])
    )
    if not before:
        return None
    olds, news = (list(zip(*(column.to_pylist() for column in side), strict=True)) for side in (before, after))
    reached = set(zip(*(column.to_pylist() for column in asked), strict=True))
    grown = True
    while grown:
        more = {new for old, new in zip(olds, news, strict=True) if old in reached}
        grown = not more <= reached
        reached |= more
    rows = pa.array([row for row, old in enumerate(olds) if old in reached], pa.int64())
    return distinct([[column.take(rows) for column in after]]) if len(rows) else None


def distinct(found: Sequence[Keys]) -> Keys:
    """All of these keys, each once, in the order in which they came."""
    columns = [pa.concat_arrays(pieces) for pieces in zip(*found, strict=True)]
    _, first = np.unique(codes(columns), return_index=True)
    rows = pa.array(np.sort(first))
    return [column.take(rows) for column in columns]


def row_chunks(
    found: Sequence[Keys], first_number: int, after: LSN, keys_per_chunk: int = KEYS_PER_CHUNK
) -> list[Chunk]:
    """Chunks that read the rows with these keys, numbered from ``first_number`` on. ``after``: see ``Chunk``."""
    if not found:
        return []
    keys = list(zip(*(column.to_pylist() for column in distinct(found)), strict=True))
    starts = range(0, len(keys), keys_per_chunk)
    return [
        Chunk(number, "rows", keys=tuple(keys[start : start + keys_per_chunk]), after=after)
        for number, start in enumerate(starts, first_number)
    ]


def _lacks_a_value(batch: ChangeBatch) -> Bools:
    lacking: Bools = np.zeros(len(batch), np.bool_)
    for mask in batch.unchanged.values():
        lacking |= mask
    lacking &= (batch.op == UPDATE) & (batch.old_kind != OLD_FULL)
    return lacking


def _changes_key(batch: ChangeBatch) -> Bools:
    differs: Bools = np.zeros(len(batch), np.bool_)
    for index in batch.relation.key_indexes:
        unequal = pc.fill_null(pc.not_equal(batch.old[index], batch.new[index]), True)
        differs |= unequal.to_numpy(zero_copy_only=False)
    differs &= batch.old_kind != OLD_NONE
    return differs
