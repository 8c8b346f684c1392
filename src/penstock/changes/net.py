"""``net()``: what a batch of changes comes to, one final row per key.

Everything is a vector over the batch. Keys become integer codes; the *events* of a batch (a change of a key's row; an
update that changes the key is two, the old key's end and the new key's change) are sorted by key and order, and the last
event of each key decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import (
    DELETE,
    INSERT,
    MESSAGE,
    OLD_FULL,
    OLD_NONE,
    READ,
    TRUNCATE,
    UPDATE,
    Bools,
    ChangeBatch,
    Int64s,
    Relation,
    UInt32s,
    UInt64s,
)

Position = tuple[int, int]


@dataclass(frozen=True)
class Positions:
    """Where each of some rows was written last."""

    commit_lsn: UInt64s
    sequence: UInt32s

    @classmethod
    def of(cls, batch: ChangeBatch, rows: Int64s) -> Positions:
        return cls(batch.commit_lsn[rows], batch.sequence[rows])


@dataclass(frozen=True)
class NetChanges:
    """In this order: empty the table if ``truncated_at``; note the kept values; delete; insert.

    ``upserts`` are all columns as text. Where ``unchanged[column]`` is set, the value is the one that the target's row
    with key ``kept_from`` has before this batch. ``deletes`` are the key columns of rows that the target may hold, also of
    those that ``upserts`` brings again; for a target that would rather update those, ``replaces`` marks the upserts
    whose key is among the deletes, and ``gone`` the deletes that no upsert brings again. A table without a key has
    ``removed`` instead: all columns of rows that go, each once for every row to remove. Positions are (commit LSN,
    sequence), for callers that have several of these of a table; ``…_at`` has one for each row, for those who must name it.

    With ``may_exist``, ``deletes`` has every key that the batch speaks of. So it can be applied to a target that has seen
    some of these changes already, or rows as they were later: once all changes up to then are applied, the target is as
    if it had seen each just once. A row whose kept values are not there yet is left out, and a later change removes it; or
    somebody reads it again, since it moved while the table was read (see ``sinks/contract.py``).
    """

    relation: Relation
    truncated_at: Position | None
    last_at: Position
    upserts: Sequence[pa.Array]
    deletes: Sequence[pa.Array]
    unchanged: dict[int, Bools] = field(default_factory=dict)
    kept_from: Sequence[pa.Array] = ()
    removed: Sequence[pa.Array] = ()
    replaces: Bools | None = None  # None: none of them
    gone: Bools | None = None  # None: all of them
    upserts_at: Positions | None = None
    deletes_at: Positions | None = None
    removed_at: Positions | None = None
    restarts_identity: bool = False  # a TRUNCATE that lies in the batch does
    bare_rows: int = 0  # of a table without columns, whose rows are but their number: so many come; negative: go

    @property
    def upsert_count(self) -> int:
        return len(self.upserts[0]) if self.upserts else 0


def net(batch: ChangeBatch, *, may_exist: bool = False) -> NetChanges:
    """What the batch comes to. ``may_exist``: see above; for the changes and repeated rows of an import."""
    changes = _net(batch, may_exist)
    if batch.restarts_identity is None or not batch.restarts_identity.any():
        return changes
    return replace(changes, restarts_identity=True)


def _net(batch: ChangeBatch, may_exist: bool) -> NetChanges:
    truncates = np.flatnonzero(batch.op == TRUNCATE)
    truncated_at = _position(batch, truncates[-1]) if len(truncates) else None
    last_at = _position(batch, -1)
    if truncated_at is not None:
        batch = batch.take(np.arange(truncates[-1] + 1, len(batch)))
    if not batch.relation.columns:
        return NetChanges(batch.relation, truncated_at, last_at, [], [], bare_rows=_count_bare_rows(batch))
    if _only_brings_rows(batch, may_exist):
        deletes = [batch.new[index] for index in batch.relation.key_indexes] if may_exist else _no_keys(batch)
        at = Positions(batch.commit_lsn, batch.sequence)
        if not may_exist or not batch.relation.key:
            return NetChanges(batch.relation, truncated_at, last_at, batch.new, deletes, upserts_at=at)
        everything = np.ones(len(batch), np.bool_)
        return NetChanges(
            batch.relation, truncated_at, last_at, batch.new, deletes, replaces=everything, gone=~everything,
            upserts_at=at, deletes_at=at,
        )  # fmt: skip
    batch = fill_from_old_rows(batch)
    if not batch.relation.key:
        return _net_without_key(batch, truncated_at, last_at)
    return _net_by_key(batch, truncated_at, last_at, may_exist)


def _count_bare_rows(batch: ChangeBatch) -> int:
    """An update changes nothing of a row without columns; a delete is sent with REPLICA IDENTITY FULL, and of any row."""
    return int(np.isin(batch.op, (INSERT, READ)).sum()) - int((batch.op == DELETE).sum())


def _only_brings_rows(batch: ChangeBatch, may_exist: bool) -> bool:
    """Each key once, so there is nothing to reduce. Rows of an import that replace others may have read a key twice.

    An update that brings a row into a publication's row filter is sent as an insert, without values that it did not touch.
    """
    if batch.unchanged:
        return False
    inserts = batch.op == INSERT
    return bool(inserts.all() if may_exist else (inserts | (batch.op == READ)).all())


def _position(batch: ChangeBatch, row: int) -> Position:
    return int(batch.commit_lsn[row]), int(batch.sequence[row])


def _no_keys(batch: ChangeBatch) -> list[pa.Array]:
    return [pa.array([], pa.string())] * len(batch.relation.key)


def fill_from_old_rows(batch: ChangeBatch) -> ChangeBatch:
    """REPLICA IDENTITY FULL sends the whole old row: an unchanged value is in there."""
    full = batch.old_kind == OLD_FULL
    if not batch.unchanged or not full.any():
        return batch
    new, unchanged = list(batch.new), {}
    for index, mask in batch.unchanged.items():
        new[index] = pc.if_else(pa.array(mask & full), batch.old[index], batch.new[index])
        if (mask & ~full).any():
            unchanged[index] = mask & ~full
    return ChangeBatch(
        batch.relation, batch.op, batch.commit_lsn, batch.sequence, batch.xid, batch.commit_time, new, batch.old,
        batch.old_kind, unchanged,
    )  # fmt: skip


def with_values_from_batch(batch: ChangeBatch) -> ChangeBatch:
    """The batch with values that were not sent again filled in where an earlier change of the same row has them.

    For those who leave changes out: what a change keeps may be what one that is left out had set.
    """
    wanted = {index: mask & (batch.old_kind != OLD_FULL) for index, mask in batch.unchanged.items()}
    if not batch.relation.key or not any(mask.any() for mask in wanted.values()):
        return batch
    events = _Events(batch)
    new, unchanged = list(batch.new), {}
    for index, mask in batch.unchanged.items():
        missing = mask[events.row]
        without = np.flatnonzero(wanted[index][events.row] & ~events.is_delete)
        source = _sources(events, without, missing)
        rows = np.arange(len(batch))
        rows[events.row[without[source >= 0]]] = events.row[source[source >= 0]]
        new[index] = batch.new[index].take(pa.array(rows))
        still = mask & (rows == np.arange(len(batch)))
        if still.any():
            unchanged[index] = still
    return replace(batch, new=new, unchanged=unchanged)


def _sources(events: _Events, wanting: Int64s, missing: Bools) -> Int64s:
    """For each of these events the latest one of its row, before it, that has the value; -1 if none."""
    source = _latest_with_value(events, ~missing & ~events.is_delete)[wanting]
    moved_in = _latest_with_value(events, events.from_other_key)[wanting]
    ended = _latest_with_value(events, events.is_delete)[wanting]
    source[(source < moved_in) | (source < ended)] = -1  # that value was of another row, which had the key before
    for place in np.flatnonzero((source < 0) & (moved_in >= 0) & (moved_in > ended)):
        source[place], _ = _trace(events, int(wanting[place]), missing)
    return source


class _Events:
    """Events sorted by (key, order). Event vectors are aligned; ``group`` numbers the keys."""

    def __init__(self, batch: ChangeBatch) -> None:
        rows = np.arange(len(batch))
        deleted = batch.op == DELETE
        moved = np.flatnonzero(_changes_key(batch))
        self.batch = batch
        keys = [_row_keys(batch, index, deleted) for index in batch.relation.key_indexes]
        old_keys = [batch.old[index].take(pa.array(moved)) for index in batch.relation.key_indexes]
        self.keys = [pa.concat_arrays([key, old]) for key, old in zip(keys, old_keys, strict=True)]
        code = codes(self.keys)
        order = np.concatenate([2 * rows + 1, 2 * moved])
        self.sorted = np.lexsort((order, code))
        self.row = np.concatenate([rows, moved])[self.sorted]
        ends_row = np.concatenate([deleted, np.ones(len(moved), np.bool_)])
        self.is_delete = ends_row[self.sorted]
        from_other_key = np.zeros(len(batch), np.bool_)
        from_other_key[moved] = True
        self.from_other_key = np.concatenate([from_other_key, np.zeros(len(moved), np.bool_)])[self.sorted]
        group_code = code[self.sorted]
        starts = np.flatnonzero(np.append(True, group_code[1:] != group_code[:-1]))
        self.first, self.last = starts, np.append(starts[1:], len(group_code)) - 1
        self.group = np.cumsum(np.append(True, group_code[1:] != group_code[:-1])) - 1

    def keys_at(self, events: Int64s) -> list[pa.Array]:
        return [key.take(pa.array(self.sorted[events])) for key in self.keys]


def _row_keys(batch: ChangeBatch, index: int, deleted: Bools) -> pa.Array:
    return pc.if_else(pa.array(deleted), batch.old[index], batch.new[index])


def _changes_key(batch: ChangeBatch) -> Bools:
    candidates: Bools = (batch.op == UPDATE) & (batch.old_kind != OLD_NONE)
    if not candidates.any():
        return candidates
    differs = np.zeros(len(batch), np.bool_)
    for index in batch.relation.key_indexes:
        unequal = pc.fill_null(pc.not_equal(batch.old[index], batch.new[index]), True)
        differs |= unequal.to_numpy(zero_copy_only=False)
    changed: Bools = candidates & differs
    return changed


def codes(columns: Sequence[pa.Array]) -> Int64s:
    """One integer per row, equal just where all columns are equal (NULL equals NULL)."""
    combined = np.zeros(len(columns[0]), np.int64)
    distinct = 1
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary) + 1
        if distinct * size >= 1 << 62:
            _, combined = np.unique(combined, return_inverse=True)
            distinct = len(combined) + 1
        combined = combined * size + encoded.indices.to_numpy()
        distinct *= size
    return combined


def _net_by_key(batch: ChangeBatch, truncated_at: Position | None, last_at: Position, may_exist: bool) -> NetChanges:
    events = _Events(batch)
    first_row_is_new = np.isin(batch.op[events.row[events.first]], (INSERT, READ)) & ~events.is_delete[events.first]
    in_target = may_exist | ~(first_row_is_new | events.from_other_key[events.first])
    ends = events.is_delete[events.last]
    survivors = events.last[~ends]
    rows = pa.array(events.row[survivors])
    upserts = [column.take(rows) for column in batch.new]
    deletes = events.keys_at(events.first[in_target]) if truncated_at is None else _no_keys(batch)
    unchanged, kept_from = _fill_unchanged(events, survivors, upserts)
    known = truncated_at is None
    return NetChanges(
        batch.relation, truncated_at, last_at, upserts, deletes, unchanged, kept_from,
        replaces=in_target[~ends] if known else None, gone=ends[in_target] if known else None,
        upserts_at=Positions.of(batch, events.row[survivors]),
        deletes_at=Positions.of(batch, events.row[events.last[in_target]]) if known else None,
    )  # fmt: skip


def _fill_unchanged(
    events: _Events, survivors: Int64s, upserts: list[pa.Array]
) -> tuple[dict[int, Bools], Sequence[pa.Array]]:
    """Takes each unchanged value from the latest event that has it; what no event has, the target has."""
    batch, unchanged = events.batch, {}
    kept_event = survivors.copy()
    for index, mask in batch.unchanged.items():
        missing = mask[events.row]
        wanted = np.flatnonzero(missing[survivors])
        if len(wanted) == 0:
            continue
        source = _latest_with_value(events, ~missing & ~events.is_delete)[survivors[wanted]]
        moved_in = _latest_with_value(events, events.from_other_key)[survivors[wanted]]
        source[source < moved_in] = -1  # that value was of another row, which had the key before
        for place in np.flatnonzero((source < 0) & (moved_in >= 0)):
            source[place], origin = _trace(events, int(survivors[wanted[place]]), missing)
            if source[place] < 0:
                kept_event[wanted[place]] = origin
        taken = np.arange(len(survivors))
        taken[wanted] = np.where(source >= 0, len(survivors) + np.arange(len(wanted)), wanted)
        candidates = batch.new[index].take(pa.array(events.row[np.maximum(source, 0)]))
        upserts[index] = pa.concat_arrays([upserts[index], candidates]).take(pa.array(taken))
        still = np.zeros(len(survivors), np.bool_)
        still[wanted[source < 0]] = True
        if still.any():
            unchanged[index] = still
    return unchanged, events.keys_at(kept_event) if unchanged else ()


def _latest_with_value(events: _Events, has_value: Bools) -> Int64s:
    """For each event the latest one of its key, up to itself, that has the value; -1 if none."""
    place = np.where(has_value, np.arange(len(has_value)), -1)
    latest = np.maximum.accumulate(place)
    return np.where(latest >= events.first[events.group], latest, -1)


def _trace(events: _Events, at: int, missing: Bools) -> tuple[int, int]:
    """Follows one row back through its changes of key. (event with the value or -1, event whose key the target knows)."""
    while True:
        first = int(events.first[events.group[at]])
        while at >= first:
            if not missing[at] and not events.is_delete[at]:
                return at, at
            if events.from_other_key[at]:
                break
            at -= 1
        if at < first:
            return -1, first
        end_of_old = np.flatnonzero((events.row == events.row[at]) & events.is_delete)[0]
        at = int(end_of_old) - 1
        if at < 0 or events.group[at] != events.group[end_of_old]:
            return -1, int(end_of_old)


def _net_without_key(batch: ChangeBatch, truncated_at: Position | None, last_at: Position) -> NetChanges:
    """A table without a key is a bag of equal rows: what counts is how many of each come and go."""
    adds = np.flatnonzero(np.isin(batch.op, (INSERT, UPDATE, READ, MESSAGE)))
    removes = np.flatnonzero(np.isin(batch.op, (UPDATE, DELETE)) & (batch.old_kind == OLD_FULL))
    both = [
        pa.concat_arrays([new.take(pa.array(adds)), old.take(pa.array(removes))])
        for new, old in zip(batch.new, batch.old, strict=True)
    ]
    _, first, group = np.unique(codes(both), return_index=True, return_inverse=True)
    sign = np.concatenate([np.ones(len(adds), np.int64), -np.ones(len(removes), np.int64)])
    count = np.bincount(group, weights=sign, minlength=len(first)).astype(np.int64)
    added, removed = np.repeat(first, np.maximum(count, 0)), np.repeat(first, np.maximum(-count, 0))
    gone = [] if truncated_at else [column.take(pa.array(removed)) for column in both]
    kept = [column.take(pa.array(added)) for column in both]
    rows = np.concatenate([adds, removes])
    return NetChanges(
        batch.relation, truncated_at, last_at, kept, [], removed=gone,
        upserts_at=Positions.of(batch, rows[added]), removed_at=Positions.of(batch, rows[removed]),
    )  # fmt: skip
