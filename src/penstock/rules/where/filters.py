"""``where`` compiled for one table: which rows pass.

The logic is SQL's: a comparison with NULL is unknown, and a row passes where the whole is true. Beside that a *value* may
not be known: Postgres did not send it (unchanged TOAST), or not of the old row. ``possible`` then says for each row whether
it may pass and whether it may fail, given all that is known; where both are so, nobody can tell.

A filter over a batch of changes: the sinks should end with just the rows that pass.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import (
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
    Column,
    Relation,
    UInt8s,
)
from penstock.changes.net import with_values_from_batch
from penstock.rules.where.comparing import kind_of, unpadded
from penstock.rules.where.conditions import All, AnyOf, Comparison, Condition, Not
from penstock.rules.where.operands import UnfitOperand

# What is known of a value.
KNOWN, STORED_APART, NOT_SENT = 0, 1, 2

# Postgres keeps a value apart (TOAST) only if it takes more than 24 bytes with its header of at most 4, and ASCII is one byte
# per character in every encoding that a server may have. https://www.postgresql.org/docs/current/storage-toast.html
_NEVER_STORED_APART = 20

Test = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class Values:
    """A column's text, and what is known of it: None, all of it."""

    text: pa.Array
    knowledge: UInt8s | None = None


@dataclass(frozen=True)
class Possible:
    """For each row, which outcomes there may be."""

    true: Bools
    false: Bools
    null: Bools


class Node:
    def truth(self, columns: Mapping[int, Values]) -> pa.Array:
        """True, False or NULL per row; all values are known."""
        raise NotImplementedError

    def possible(self, columns: Mapping[int, Values]) -> Possible:
        raise NotImplementedError


@dataclass(frozen=True)
class Leaf(Node):
    index: int
    test: Test
    apart: bool | None  # the outcome for a value that is stored apart; None: it cannot be told

    def truth(self, columns: Mapping[int, Values]) -> pa.Array:
        return self.test(columns[self.index].text)

    def possible(self, columns: Mapping[int, Values]) -> Possible:
        values = columns[self.index]
        if values.knowledge is not None and (values.knowledge == NOT_SENT).all():
            anything = np.ones(len(values.text), np.bool_)
            return Possible(anything, anything, anything)
        truth = self.test(values.text)
        true, null = _bools(truth), _bools(pc.is_null(truth))
        false = ~true & ~null
        if values.knowledge is not None:
            unsent, apart = values.knowledge == NOT_SENT, values.knowledge == STORED_APART
            known = values.knowledge == KNOWN
            may_be_true, may_be_false = apart & (self.apart is not False), apart & (self.apart is not True)
            true, false = (true & known) | unsent | may_be_true, (false & known) | unsent | may_be_false
            null = (null & known) | unsent
        return Possible(true, false, null)


@dataclass(frozen=True)
class Conjunction(Node):
    parts: Sequence[Node]

    def truth(self, columns: Mapping[int, Values]) -> pa.Array:
        found = self.parts[0].truth(columns)
        for part in self.parts[1:]:
            found = pc.and_kleene(found, part.truth(columns))
        return found

    def possible(self, columns: Mapping[int, Values]) -> Possible:
        found = self.parts[0].possible(columns)
        for part in self.parts[1:]:
            other = part.possible(columns)
            found = Possible(
                found.true & other.true,
                found.false | other.false,
                (found.null & (other.null | other.true)) | (found.true & other.null),
            )
        return found


@dataclass(frozen=True)
class Negation(Node):
    part: Node

    def truth(self, columns: Mapping[int, Values]) -> pa.Array:
        return pc.invert(self.part.truth(columns))

    def possible(self, columns: Mapping[int, Values]) -> Possible:
        found = self.part.possible(columns)
        return Possible(found.false, found.true, found.null)


@dataclass(frozen=True)
class Filter:
    """Compiled for one relation. ``columns``: indexes of those that it looks at."""

    node: Node
    columns: tuple[int, ...]

    def passes(self, columns: Mapping[int, Values]) -> Bools:
        return _bools(self.node.truth(columns))

    def possible(self, columns: Mapping[int, Values]) -> tuple[Bools, Bools]:
        """Whether a row may pass, and whether it may fail."""
        if all(columns[index].knowledge is None for index in self.columns):
            passes = self.passes(columns)
            return passes, ~passes
        found = self.node.possible(columns)
        return found.true, found.false | found.null


def compiled_filter(condition: Condition, relation: Relation) -> Filter:
    """Raises UnfitOperand or KeyError, with the column's name, for what ``checks`` finds beforehand."""
    indexes = {column.name: index for index, column in enumerate(relation.columns)}
    return Filter(_node(condition, relation, indexes), tuple(sorted(indexes[name] for name in condition.columns)))


def _node(condition: Condition, relation: Relation, indexes: Mapping[str, int]) -> Node:
    if isinstance(condition, Not):
        return Negation(_node(condition.part, relation, indexes))
    if isinstance(condition, All):
        return Conjunction([_node(part, relation, indexes) for part in condition.parts])
    if isinstance(condition, AnyOf):  # not (not a and not b)
        return Negation(Conjunction([Negation(_node(part, relation, indexes)) for part in condition.parts]))
    assert isinstance(condition, Comparison)
    index = indexes[condition.column]
    column = relation.columns[index]
    return Leaf(index, test_of(condition, column), outcome_apart(condition, column))


def test_of(comparison: Comparison, column: Column) -> Test:
    """The comparison as a function over the column's text. Raises UnfitOperand, with a sentence for the user."""
    op, operand = comparison.op, comparison.operand
    if op == "is_null":
        return lambda text: pc.is_null(text) if operand else pc.is_valid(text)
    if op == "contains" or op == "starts_with" or op == "matches":
        return _text_test(op, operand, column)
    kind = kind_of(column)
    if op == "in":
        values = [kind.read(item, column) for item in operand]
        return lambda text: kind.one_of(text, values, column)
    if not kind.ordered and op not in ("eq", "ne"):
        raise UnfitOperand(
            f"{op} needs an order, and {column.type_name} has none here; use eq, ne, in, contains or matches"
        )
    value = kind.read(operand, column)
    return lambda text: kind.compare(text, op, value, column)


def _text_test(op: str, operand: Any, column: Column) -> Test:
    kernel = {"contains": pc.match_substring, "starts_with": pc.starts_with, "matches": pc.match_substring_regex}[op]
    if column.base == "bpchar":
        return lambda text: kernel(unpadded(text), operand)
    return lambda text: kernel(text, operand)


def outcome_apart(comparison: Comparison, column: Column) -> bool | None:
    """The comparison's outcome for any value that Postgres stores apart from its row, if there is but one."""
    op, operand = comparison.op, comparison.operand
    if op == "is_null":
        return not operand
    if column.base not in ("text", "varchar") or op not in ("eq", "ne", "in"):
        return None
    short = all(str(item).isascii() and len(str(item)) <= _NEVER_STORED_APART for item in _items(operand))
    return op == "ne" if short else None


def _items(operand: Any) -> Sequence[Any]:
    return operand if isinstance(operand, tuple) else (operand,)


def _bools(array: pa.Array) -> Bools:
    found: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found


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
