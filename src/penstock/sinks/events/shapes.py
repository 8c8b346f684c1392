"""Changes sorted by what their events look like, so that within a shape only values differ between lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.changes import DELETE, MESSAGE, TRUNCATE, ChangeBatch

MAX_ROWS = 32_768  # of one pass: large enough that the cost per call vanishes, small enough to stay in the caches
MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class Shape:
    """Changes of one operation that carry the same parts."""

    op: int
    old_kind: int
    partial: bool  # TOAST values are missing in some columns
    changes: ChangeBatch

    @property
    def has_new_row(self) -> bool:
        return self.op not in (DELETE, TRUNCATE, MESSAGE)


def slices(changes: ChangeBatch) -> Iterator[ChangeBatch]:
    """The changes in order, in pieces of bounded size."""
    bytes_per_row = max(1, changes.nbytes // max(1, len(changes)))
    step = max(1, min(MAX_ROWS, MAX_BYTES // bytes_per_row))
    for start in range(0, len(changes), step):
        yield _slice(changes, start, start + step) if step < len(changes) else changes


def lines_by_shape(changes: ChangeBatch, encode: Callable[[Shape], pa.Array]) -> pa.Array:
    """One line for each change, in the order of the changes."""
    partial = np.zeros(len(changes), bool)
    for mask in changes.unchanged.values():
        partial |= mask
    code = changes.op.astype(np.uint32) << 9 | changes.old_kind.astype(np.uint32) << 1 | partial
    codes = np.unique(code)
    if len(codes) == 1:
        return encode(_shape(int(codes[0]), changes))
    rows = [np.flatnonzero(code == each) for each in codes]
    lines = [encode(_shape(int(each), changes.take(some))) for each, some in zip(codes, rows, strict=True)]
    back = np.empty(len(changes), np.int64)
    back[np.concatenate(rows)] = np.arange(len(changes))
    return pa.concat_arrays(lines).take(pa.array(back))


def _shape(code: int, changes: ChangeBatch) -> Shape:
    return Shape(code >> 9, code >> 1 & 0xFF, bool(code & 1), changes)


def _slice(changes: ChangeBatch, start: int, stop: int) -> ChangeBatch:
    length = stop - start
    return replace(
        changes,
        op=changes.op[start:stop], commit_lsn=changes.commit_lsn[start:stop], sequence=changes.sequence[start:stop],
        xid=changes.xid[start:stop], commit_time=changes.commit_time[start:stop],
        new=[a.slice(start, length) for a in changes.new], old=[a.slice(start, length) for a in changes.old],
        old_kind=changes.old_kind[start:stop],
        unchanged={column: mask[start:stop] for column, mask in changes.unchanged.items() if mask[start:stop].any()},
        restarts_identity=changes.restarts_identity[start:stop] if changes.restarts_identity is not None else None,
    )  # fmt: skip
