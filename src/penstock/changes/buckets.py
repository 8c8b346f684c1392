"""Dividing a table's changes by the hash of their key, the same way in every executor.

Keys that an update turned into one another must meet in one bucket, or the order between them would be lost: all of
those go to bucket 0. The same goes for keys that are equal to Postgres and written differently (1.0 and 1.00): a table
whose key may have such is not divided at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.changes.batch import DELETE, OLD_NONE, TRUNCATE, UPDATE, Bools, ChangeBatch, Column, Relation, UInt64s

# Types of which equal values have the same text. Not so: numeric (1.0, 1.00), floats (0, -0), interval (1 mon, 30 days),
# jsonb, what may hold one of them (arrays, ranges, composites), and what extensions bring (citext).
_EQUAL_IN_TEXT = frozenset(
    {
        "bool", "int2", "int4", "int8", "oid", "xid8", "text", "varchar", "name", "char", "bytea", "uuid", "enum", "date",
        "time", "timestamp", "timestamptz", "money", "bit", "varbit", "inet", "cidr", "macaddr", "macaddr8", "pg_lsn", "tid",
    }
)  # fmt: skip

_WEIGHTS = np.random.default_rng(20240229).integers(1, 1 << 63, 64, np.uint64) | np.uint64(1)


def told_apart_by_text(relation: Relation) -> bool:
    """Whether keys that are equal to Postgres always have the same text."""
    return all(_equal_in_text(relation.columns[index]) for index in relation.key_indexes)


def _equal_in_text(column: Column) -> bool:
    """``char(n)`` is written with all its spaces; without a length, spaces at its end do not count."""
    return column.base in _EQUAL_IN_TEXT or (column.base == "bpchar" and column.modifier != -1)


def hash_text(column: pa.StringArray) -> UInt64s:
    """A 64-bit hash of each value; of NULL, that of the empty string."""
    _validity, offsets, raw = column.buffers()
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(column) == 0 or places[0] == places[-1]:
        return np.zeros(len(column), np.uint64)
    lengths = np.diff(places)
    within = np.arange(places[0], places[-1]) - np.repeat(places[:-1], lengths)
    data = np.frombuffer(raw, np.uint8)[places[0] : places[-1]].astype(np.uint64) + np.uint64(1)
    products = data * _WEIGHTS[within & 63] * (within // 64 + 1).astype(np.uint64)
    totals = np.concatenate([[np.uint64(0)], np.cumsum(products, dtype=np.uint64)])
    sums = totals[places[1:] - places[0]] - totals[places[:-1] - places[0]]
    mixed = sums ^ (sums >> np.uint64(29))
    hashed: UInt64s = mixed * np.uint64(0xBF58476D1CE4E5B9) ^ (mixed >> np.uint64(32))
    return hashed


def _hash_key(columns: Sequence[pa.Array], rows: pa.Array | None = None) -> UInt64s:
    taken = [column if rows is None else column.take(rows) for column in columns]
    combined = hash_text(taken[0])
    for column in taken[1:]:
        combined = combined * np.uint64(0x9E3779B97F4A7C15) + hash_text(column)
    return combined


def linked_keys(batch: ChangeBatch) -> UInt64s:
    """Hashes of keys before and after an update that changed them."""
    moved = pa.array(np.flatnonzero((batch.op == UPDATE) & (batch.old_kind != OLD_NONE)))
    if len(moved) == 0:
        return np.empty(0, np.uint64)
    key = batch.relation.key_indexes
    before, after = _hash_key([batch.old[i] for i in key], moved), _hash_key([batch.new[i] for i in key], moved)
    changed = before != after
    return np.union1d(before[changed], after[changed])


def in_bucket(batch: ChangeBatch, bucket: int, buckets: int, linked: UInt64s) -> Bools:
    """Which changes belong to the bucket. TRUNCATE belongs to all."""
    key = batch.relation.key_indexes
    deleted = batch.op == DELETE
    hashes = _hash_key([batch.new[i] for i in key])
    if deleted.any():
        hashes = np.where(deleted, _hash_key([batch.old[i] for i in key]), hashes)
    buckets_of = hashes % np.uint64(buckets)
    buckets_of[np.isin(hashes, linked)] = 0
    mask: Bools = (buckets_of == bucket) | (batch.op == TRUNCATE)
    return mask
