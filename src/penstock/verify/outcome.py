"""What rules make of a table's columns, as far as its rows alone tell what a sink should hold.

A sink holds what the rules made of *changes*. Mostly that is what they make of the source's row as it is now, but not always:

- A transform that draws its values by chance gave others then. So did one that is for inserts only, or for updates only, of a
  row that saw both. Such columns cannot be compared, nor what is made from them.
- A filter that looks at such a column, or that is not for inserts and updates alike, let rows pass by what they were once.
  Then nobody can tell which rows should be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.changes import Relation
from penstock.rules.compiled import Step

_NEW_ROWS = {"insert", "update"}
_BY_CHANCE = "its transform gives another value each time"
_BY_OPERATION = "its transform is not for inserts and updates alike"


@dataclass(frozen=True)
class Traced:
    """A column that comes out of the rules. ``source``: its place in the source's relation; None for an origin.

    ``unsure``: why nobody can tell from the source's row what the sink should have; None if one can.
    """

    source: int | None
    transformed: bool = False
    unsure: str | None = None
    constant: str | None = None  # the value of an origin


@dataclass(frozen=True)
class Outcome:
    """``columns``: one for each of ``relation``, which is what comes out. ``obstacle``: why nothing can be compared."""

    relation: Relation
    columns: tuple[Traced, ...]
    obstacle: str | None = None

    @cached_property
    def by_name(self) -> dict[str, Traced]:
        return {column.name: traced for column, traced in zip(self.relation.columns, self.columns, strict=True)}

    @property
    def origins(self) -> dict[str, str]:
        """Columns that have one value in all rows of this table."""
        return {name: traced.constant for name, traced in self.by_name.items() if traced.constant is not None}

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that cannot be compared, and why."""
        return {name: traced.unsure for name, traced in self.by_name.items() if traced.unsure is not None}

    @property
    def transformed(self) -> frozenset[str]:
        return frozenset(name for name, traced in self.by_name.items() if traced.transformed)

    @property
    def transforms_key(self) -> bool:
        return not self.transformed.isdisjoint(self.relation.key)


def outcome_of(relation: Relation, steps: Sequence[Step]) -> Outcome:
    columns = tuple(Traced(index) for index in range(len(relation.columns)))
    obstacle = None
    for step in steps:
        obstacle = obstacle or _obstacle(step, columns)
        columns = _through(step, columns)
        relation = step.route.relation
    found = Outcome(relation, columns, obstacle)
    unsure = next((name for name in relation.key if name in found.left_out), None)
    if obstacle is None and unsure is not None:
        return replace(found, obstacle=f"of column {unsure} of its key, {found.left_out[unsure]}")
    return found


def _obstacle(step: Step, columns: Sequence[Traced]) -> str | None:
    if step.filter is None:
        return None
    if not _NEW_ROWS.issubset(step.rule.operations):
        return f"the filter of {step.path} is not for inserts and updates alike, so that a row's past decides"
    unsure = next((index for index in step.filter.columns if columns[index].unsure), None)
    if unsure is None:
        return None
    name = step.relation.columns[unsure].name
    return f"the filter of {step.path} looks at column {name}, of which {columns[unsure].unsure}"


def _through(step: Step, columns: Sequence[Traced]) -> tuple[Traced, ...]:
    """All transforms of a rule see what went into it."""
    operations = _NEW_ROWS & set(step.rule.operations)
    places = {column.name: index for index, column in enumerate(step.relation.columns)}
    made = list(columns)
    for index, transform in step.transforms if operations else ():
        reasons = [columns[place].unsure for place in (index, *(places[name] for name in sorted(transform.columns())))]
        if not transform.deterministic:
            reasons.append(_BY_CHANCE)
        if operations != _NEW_ROWS:
            reasons.append(_BY_OPERATION)
        unsure = next((reason for reason in reasons if reason is not None), None)
        made[index] = Traced(columns[index].source, transformed=True, unsure=unsure)
    kept = [made[index] for index in step.route.kept]
    return (*kept, Traced(None, constant=step.route.origin)) if step.route.origin is not None else tuple(kept)
