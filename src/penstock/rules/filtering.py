"""A filter over a batch of changes: the sinks should end with just the rows that pass.

So of an UPDATE it counts whether the row passed *before* and passes *now*:

==================  ======================================================
before ▶ now        what goes on
==================  ======================================================
passed ▶ passes     the UPDATE
passed ▶ fails      a DELETE of the old row, or of its key
failed ▶ passes     an INSERT; the UPDATE if inserts are not filtered
failed ▶ fails      nothing
not known ▶ passes  the UPDATE
not known ▶ fails   a DELETE by key
==================  ======================================================

*Before* is known with REPLICA IDENTITY FULL, and where the filter looks at the identity's columns alone. Otherwise the last
two lines hold, and they are right whether or not a sink has the row. A DELETE of a row that is not there does nothing. An
UPDATE of a row that is not there brings it: ``net()`` takes an UPDATE as "this key has this row now", which sinks that keep
rows write as update-or-insert (an INSERT it would take as "this key is new", and break on a row that is there). To those who
read events, an update without `before` says the same. What cannot be brought so is a row that comes in with a value that
Postgres did not send (unchanged TOAST): a sink that has no such row refuses it, loudly; REPLICA IDENTITY FULL helps.

Between two changes of a row that pass there may be one that does not, and a later one may keep a value which that one had. So
values that were not sent are first filled from earlier changes of the batch, passing or not (``net.with_values_from_batch``).

The filter's own column may be such a value. Then the old row says what it is (FULL), or an earlier change of the batch, or
what is known of every such value (it is long, and not NULL). Where all that does not decide, Undecided is raised: to guess
would lose a row, or show one that is to be hidden.

A DELETE whose old row is known to have failed is dropped, any other goes on. So does TRUNCATE.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import (
    DELETE,
    INSERT,
    OLD_FULL,
    OLD_KEY,
    OLD_NONE,
    READ,
    TRUNCATE,
    UPDATE,
    Bools,
    ChangeBatch,
)
from penstock.net import with_values_from_batch
from penstock.rules.filters import KNOWN, NOT_SENT, STORED_APART, Filter, Values

_NULL = pa.scalar(None, pa.string())


class Undecided(Exception):
    """The filter hangs on a column whose value these rows do not have."""

    def __init__(self, rows: Bools, column: str) -> None:
        super().__init__(column)
        self.rows, self.column = rows, column


def filtered(filter: Filter, batch: ChangeBatch, operations: Bools) -> ChangeBatch:
    """``operations``: by op, whether it is filtered at all."""
    return _Filtering(filter, with_values_from_batch(batch), operations).outcome()


class _Filtering:
    """One filter over one batch."""

    def __init__(self, filter: Filter, batch: ChangeBatch, operations: Bools) -> None:
        self.filter, self.batch, self.operations = filter, batch, operations
        self.looked_at: Bools = operations[batch.op]

    def outcome(self) -> ChangeBatch:
        batch = self.batch
        passes = self._now()
        updates, deletes = batch.op == UPDATE, batch.op == DELETE
        with_new_row = ~(deletes | (batch.op == TRUNCATE))
        if not ((updates | deletes) & self.looked_at).any():
            return _taken(batch, ~self.looked_at | ~with_new_row | passes)
        may_have_passed = self._may_have_passed(updates, passes)
        gone = self.looked_at & updates & ~passes & may_have_passed
        come = self.looked_at & updates & passes & ~may_have_passed & self.operations[INSERT]
        stays = ~self.looked_at | np.where(deletes, may_have_passed, passes | gone) | (batch.op == TRUNCATE)
        if come.any():
            batch = _as_inserts(batch, come)
        if gone.any():
            batch = as_deletes(batch, gone)
        return _taken(batch, stays)

    def _now(self) -> Bools:
        """Whether new rows pass."""
        batch, columns = self.batch, {}
        full = batch.old_kind == OLD_FULL
        for index in self.filter.columns:
            text, mask = batch.new[index], batch.unchanged.get(index)
            knowledge = None
            if mask is not None:
                text = pc.if_else(pa.array(mask & full), batch.old[index], text)
                knowledge = np.where(mask & ~full, STORED_APART, KNOWN).astype(np.uint8)
            columns[index] = Values(text, knowledge)
        may_pass, may_fail = self.filter.possible(columns)
        undecided = may_pass & may_fail & self.looked_at & np.isin(batch.op, (INSERT, UPDATE, READ))
        if undecided.any():
            first = int(np.flatnonzero(undecided)[0])
            unseen = next(
                index for index in self.filter.columns if index in batch.unchanged and batch.unchanged[index][first]
            )
            raise Undecided(undecided, batch.relation.columns[unseen].name)
        return may_pass

    def _may_have_passed(self, updates: Bools, passes: Bools) -> Bools:
        """Whether old rows passed, as far as can be told."""
        batch = self.batch
        full, key, none = (batch.old_kind == kind for kind in (OLD_FULL, OLD_KEY, OLD_NONE))
        columns = {}
        for index in self.filter.columns:
            in_identity = batch.relation.columns[index].in_identity
            same = none & updates & in_identity  # Postgres sends the identity's old values only where they changed
            sent = full | (key & in_identity)
            text = pc.if_else(pa.array(same), batch.new[index], batch.old[index]) if same.any() else batch.old[index]
            knowledge = np.where(sent | same, KNOWN, NOT_SENT).astype(np.uint8)
            mask = batch.unchanged.get(index)
            if mask is not None:
                knowledge[mask & ~sent] = STORED_APART  # what it was, it still is
            columns[index] = Values(text, knowledge if knowledge.any() else None)
        may_have_passed, _ = self.filter.possible(columns)
        return may_have_passed


def _taken(batch: ChangeBatch, rows: Bools) -> ChangeBatch:
    return batch if rows.all() else batch.take(np.flatnonzero(rows))


def _as_inserts(batch: ChangeBatch, rows: Bools) -> ChangeBatch:
    """These updates as inserts: with what the old row had of values that were not sent again, and without an old row."""
    full = rows & (batch.old_kind == OLD_FULL)
    new, unchanged = list(batch.new), {}
    for index, mask in batch.unchanged.items():
        new[index] = pc.if_else(pa.array(mask & full), batch.old[index], batch.new[index])
        if (mask & ~full).any():
            unchanged[index] = mask & ~full
    old = [null_elsewhere(~rows, values) for values in batch.old]
    return replace(
        batch, op=np.where(rows, INSERT, batch.op).astype(np.uint8), new=new, old=old, unchanged=unchanged,
        old_kind=np.where(rows, OLD_NONE, batch.old_kind).astype(np.uint8),
    )  # fmt: skip


def as_deletes(batch: ChangeBatch, rows: Bools) -> ChangeBatch:
    """These updates as deletes, by the old key where it was sent; where it was not, it has not changed."""
    by_new_key = rows & (batch.old_kind == OLD_NONE)
    key = set(batch.relation.key_indexes)
    old = [
        pc.if_else(pa.array(by_new_key), new, old) if column.in_identity or index in key else old
        for index, (column, new, old) in enumerate(zip(batch.relation.columns, batch.new, batch.old, strict=True))
    ]
    unchanged = {index: mask & ~rows for index, mask in batch.unchanged.items() if (mask & ~rows).any()}
    new = [null_elsewhere(~rows, values) for values in batch.new]
    return replace(
        batch, op=np.where(rows, DELETE, batch.op).astype(np.uint8), new=new, old=old,
        old_kind=np.where(by_new_key, OLD_KEY, batch.old_kind).astype(np.uint8), unchanged=unchanged,
    )  # fmt: skip


def null_elsewhere(rows: Bools, values: pa.Array) -> pa.Array:
    """The values in these rows."""
    return values if rows.all() else pc.if_else(pa.array(rows), values, _NULL)
