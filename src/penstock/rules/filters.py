"""``where`` compiled for one table: which rows pass.

The logic is SQL's: a comparison with NULL is unknown, and a row passes where the whole is true. Beside that a *value* may
not be known: Postgres did not send it (unchanged TOAST), or not of the old row. ``possible`` then says for each row whether
it may pass and whether it may fail, given all that is known; where both are so, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Bools, Column, Relation, UInt8s
from penstock.rules.comparing import kind_of, unpadded
from penstock.rules.conditions import All, AnyOf, Comparison, Condition, Not
from penstock.rules.operands import UnfitOperand

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
