"""Rules applied to batches of changes. Pure and vectorised; pickles, and runs in the executors.

Rules for a table apply in the order of the config file; each sees what the one before it made: its rows, operations, values
and column names. ``tables`` always means the source's names. Within a rule: filter, transforms, code, exclusion, new names.

Code that runs in Spark (``sql``, ``python_frame``) is run by others, over all rows of a table at once; ``before_frame`` is
what it is given and ``from_frame`` goes on with what came out. A table has one such rule at most.

What a filter makes of an UPDATE: ``filters.py``. TRUNCATE goes on, except into a table that several are merged into, where
it would take the others' rows: there ``rename.truncate`` decides.

``operations`` limits the filter and the transforms of new rows. Old values are transformed whatever the operation, so that
nothing leaks and keys still match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import (
    DELETE,
    INSERT,
    MESSAGES,
    OLD_FULL,
    OLD_KEY,
    OLD_NONE,
    READ,
    TRUNCATE,
    UPDATE,
    Bools,
    ChangeBatch,
    Relation,
)
from penstock.errors import ConfigError, RuleError
from penstock.rules.code.code import Code, Results, function_result, refuse_unfit_table
from penstock.rules.coverage import uncovered
from penstock.rules.model import CodeKey, Exclude, Function, Keep, RuleSettings
from penstock.rules.refused_values import keeping_values_secret
from penstock.rules.routing import Route, caught_by, route
from penstock.rules.transforms.contract import Side, new_side, old_side
from penstock.rules.where.filters import Filter, Undecided, compiled_filter, filtered, null_elsewhere
from penstock.rules.where.operands import UnfitOperand

Analyse = Callable[[CodeKey, Any, str, Relation], pa.Schema]  # what code in Spark makes of a relation

_OPS = {"insert": (INSERT, READ), "update": (UPDATE,), "delete": (DELETE,)}


class CompiledRules:
    """The rules of a config, in its order. What they make of a relation is worked out once."""

    analyse: Analyse | None = None  # on the driver, where Spark is

    def __init__(self, rules: Sequence[RuleSettings]) -> None:
        self._rules = tuple(rules)
        self._steps: dict[Relation, tuple[Step, ...]] = {}
        self._results: dict[tuple[str, Relation], pa.Schema] = {}  # of code that only Spark can tell

    def __getstate__(self) -> tuple[Any, ...]:
        return self._rules, dict(self._results)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(state[0])  # type: ignore[misc]
        self._results = state[1]

    @property
    def settings(self) -> Sequence[RuleSettings]:
        return self._rules

    def apply(self, batch: ChangeBatch) -> ChangeBatch | None:
        """What goes on to the sinks; None if nothing does. Raises ConfigError for rules that do not fit the table, and
        RuleError where a change does not tell enough or has a value that a rule cannot take; it never shows values."""
        for step in self.steps(batch.relation):
            batch = step.apply(batch)
            if not len(batch):
                return None
        return batch

    def runs_in_frame(self, relation: Relation) -> bool:
        """Whether the table has code that runs in Spark: told by its name alone, anywhere."""
        if relation.is_own or relation == MESSAGES:
            return False
        return any(rule.in_frame and caught_by(rule, relation.schema, relation.table) for rule in self._rules)

    def frame(self, relation: Relation) -> Code | None:
        """The table's code that runs in Spark."""
        return next((step.code for step in self.steps(relation) if step.in_frame), None)

    def before_frame(self, batch: ChangeBatch) -> ChangeBatch | None:
        """What the table's code in Spark is given; None if there is nothing for it."""
        for step in self.steps(batch.relation):
            batch = step.before_code(batch) if step.in_frame else step.apply(batch)
            if not len(batch):
                return None
            if step.in_frame:
                break
        return batch

    def from_frame(self, source: Relation, batch: ChangeBatch, results: Results) -> ChangeBatch | None:
        """Goes on with what came out. ``source``: the relation that the batch had before all rules."""
        steps = self.steps(source)
        at = next(index for index, step in enumerate(steps) if step.in_frame)
        batch = steps[at].routed(results.apply(batch))
        for step in steps[at + 1 :]:
            batch = step.apply(batch) if len(batch) else batch
        return batch if len(batch) else None

    def output_relation(self, relation: Relation) -> Relation:
        """The relation that batches of this one have after ``apply``."""
        steps = self.steps(relation)
        return steps[-1].route.relation if steps else relation

    def origin(self, relation: Relation) -> tuple[str, str] | None:
        """The column that tells this table's rows from others', as it is called in the end, and its value."""
        found: tuple[str, str] | None = None
        for step in self.steps(relation):
            if found is not None:
                found = step.rule.rename.columns.get(found[0], found[0]), found[1]
            if step.route.origin is not None and step.rule.rename.origin is not None:
                found = step.rule.rename.origin.column, step.route.origin
        return found

    def steps(self, relation: Relation) -> tuple[Step, ...]:
        """The rules that are for this relation, compiled for it, in order."""
        found = self._steps.get(relation)
        if found is None:
            found = self._steps[relation] = tuple(self._compiled(relation))
        return found

    def _compiled(self, relation: Relation) -> list[Step]:
        if relation.is_own or relation == MESSAGES:
            return []
        source, steps = (relation.schema, relation.table), list[Step]()
        for problem in uncovered(self._rules, relation):
            problem.refuse()
        for index, rule in enumerate(self._rules):
            if caught_by(rule, *source) is not None:
                path = f"rules[{index}]"
                if rule.in_frame and any(step.in_frame for step in steps):
                    raise second_frame(path, rule, relation)
                steps.append(compiled_step(rule, path, relation, source, self._code(rule, path, relation)))
                relation = steps[-1].route.relation
        return steps

    def _code(self, rule: RuleSettings, path: str, relation: Relation) -> Code | None:
        if rule.code is None:
            return None
        key, code = rule.code
        path = f"{path}.{key}"
        refuse_unfit_table(path, relation)
        if not rule.in_frame:
            assert isinstance(code, Function)
            return Code.of(key, code, path, relation, function_result(code, path, relation))
        if (path, relation) not in self._results:
            if self.analyse is None:
                raise RuleError(f"{path}: it takes Spark to tell what {key} makes of {relation.qualified_name}.")
            self._results[path, relation] = self.analyse(key, code, path, relation)
        return Code.of(key, code, path, relation, self._results[path, relation])


def second_frame(path: str, rule: RuleSettings, relation: Relation) -> ConfigError:
    assert rule.code is not None
    return ConfigError(
        f"{path}.{rule.code[0]}: another rule has sql or python_frame for {relation.qualified_name}.",
        "Make one of the two, or write one of them as python.",
    )


def compiled_step(
    rule: RuleSettings, path: str, relation: Relation, source: tuple[str, str], code: Code | None = None
) -> Step:
    """A rule for one relation. ConfigError says why it does not fit."""
    caught = caught_by(rule, *source)
    assert caught is not None
    exact = "*" not in caught[0]
    transforms: list[tuple[int, Any]] = []
    names = {column.name: index for index, column in enumerate(relation.columns)}
    made = code.output if code is not None else relation
    left_out = {name for name, action in rule.columns.items() if isinstance(action, Exclude)}
    in_source = {
        name for name, action in rule.columns.items() if isinstance(action, Exclude) and action.exclude == "source"
    }
    known = in_source | (left_out & made.columns_by_name.keys())
    for name, action in rule.columns.items():
        if name not in names:
            if exact and name not in known:
                raise _unknown(f"{path}.columns.{name}", name, relation)
        elif not isinstance(action, Exclude | Keep):
            for other in sorted(action.columns()):
                if other not in names:
                    raise _unknown(f"{path}.columns.{name}", other, relation)
            transforms.append((names[name], action))
    for name in rule.rename.columns:
        if exact and name not in made.columns_by_name:
            raise _unknown(f"{path}.rename.columns.{name}", name, made)
    routed = route(rule, path, made, source)
    return Step(rule, path, relation, routed, _filter(rule, path, relation), tuple(transforms), code)


def _filter(rule: RuleSettings, path: str, relation: Relation) -> Filter | None:
    if rule.where is None:
        return None
    for name in sorted(rule.where.columns):
        if name not in relation.columns_by_name:
            raise _unknown(f"{path}.where", name, relation)
    try:
        return compiled_filter(rule.where, relation)
    except UnfitOperand as error:
        raise ConfigError(f"{path}.where: {error} (in {relation.qualified_name}).") from None


def _unknown(path: str, name: str, relation: Relation) -> ConfigError:
    return ConfigError(
        f"{path}: {relation.qualified_name} has no column {name}.",
        "Correct the rule. If tables may be with and without the column, write their names with a *.",
    )


@dataclass(frozen=True)
class Step:
    """One rule, compiled for one relation."""

    rule: RuleSettings
    path: str
    relation: Relation  # what goes in
    route: Route
    filter: Filter | None
    transforms: tuple[tuple[int, Any], ...]
    code: Code | None = None

    @property
    def in_frame(self) -> bool:
        return self.rule.in_frame

    def apply(self, batch: ChangeBatch) -> ChangeBatch:
        batch = self.before_code(batch)
        if self.code is not None and len(batch):
            batch = self.code.apply(batch)
        return self.routed(batch)

    def before_code(self, batch: ChangeBatch) -> ChangeBatch:
        if self.filter is not None:
            batch = self._filtered(self.filter, batch)
        if self.route.merges:
            batch = self._without_truncates(batch)
        if not len(batch):
            return batch
        batch = self._with_own_values(batch)
        new, old = list(batch.new), list(batch.old)
        for index, transform in self.transforms:
            new[index] = self._transformed(batch, index, transform, new_side, self._is_new(batch))
            old[index] = self._transformed(batch, index, transform, old_side, self._is_old(batch, index))
        return replace(batch, new=new, old=old)

    def _with_own_values(self, batch: ChangeBatch) -> ChangeBatch:
        """A transform that reads other columns makes something else when those change, also of a value that did not change and
        was not sent again. It is in the old row, or not known."""
        reading = [index for index, transform in self.transforms if index in batch.unchanged and transform.columns()]
        if not reading:
            return batch
        new, unchanged = list(batch.new), dict(batch.unchanged)
        for index in reading:
            left = unchanged.pop(index)
            known = left & (batch.old_kind == OLD_FULL)
            if (left & ~known & self._is_new(batch)).any():
                name = self.relation.columns[index].name
                raise self._cannot_tell(batch, left & ~known, name, "the rule makes something of, and of other columns")
            new[index] = pc.if_else(pa.array(known), batch.old[index], batch.new[index])
            if (left & ~known).any():
                unchanged[index] = left & ~known
        return replace(batch, new=new, unchanged=unchanged)

    def _filtered(self, filter: Filter, batch: ChangeBatch) -> ChangeBatch:
        try:
            return keeping_values_secret(
                f"{self.path}.where", "the filter", batch, lambda some: filtered(filter, some, self.operations)
            )
        except Undecided as undecided:
            raise self._cannot_tell(batch, undecided.rows, undecided.column, "the filter looks at") from None

    @cached_property
    def operations(self) -> Bools:
        """By op, whether the rule's operations have it."""
        table = np.zeros(256, np.bool_)
        for name in self.rule.operations:
            table[list(_OPS[name])] = True
        return table

    def _is_new(self, batch: ChangeBatch) -> Bools:
        """Which rows have new values that are to be transformed."""
        with_new_row: Bools = np.isin(batch.op, (INSERT, UPDATE, READ)) & self.operations[batch.op]
        return with_new_row

    def _is_old(self, batch: ChangeBatch, index: int) -> Bools:
        sent: Bools = batch.old_kind == OLD_FULL
        return sent | (batch.old_kind == OLD_KEY) if self.relation.columns[index].in_identity else sent

    def _transformed(
        self, batch: ChangeBatch, index: int, transform: Any, side: Callable[[ChangeBatch], Side], there: Bools
    ) -> pa.Array:
        """NULL stays NULL unless the transform replaces it; what was not sent stays absent."""
        row = side(batch)
        values = row.side[index]
        if not there.any():
            return values
        name, held_back = self.relation.columns[index].name, row.masks.get(index)
        for other in sorted(transform.columns()):
            unseen = row.unchanged(other)
            if unseen is not None and (unseen & (there if held_back is None else there & ~held_back)).any():
                raise self._cannot_tell(batch, unseen, other, f"the transform of {name} reads")

        def change(some: ChangeBatch) -> pa.Array:
            seen = side(some)
            return transform.apply(seen.side[index], seen)

        changed = keeping_values_secret(f"{self.path}.columns.{name}", f"the transform of {name}", batch, change)
        keep = ~there if held_back is None else ~there | held_back
        if transform.nulls != "replace" and values.null_count:
            keep = keep | pc.is_null(values).to_numpy(zero_copy_only=False)
        return pc.if_else(pa.array(keep), values, changed) if keep.any() else changed

    def _cannot_tell(self, batch: ChangeBatch, rows: Bools, name: str, why: str) -> RuleError:
        row = int(np.flatnonzero(rows)[0])
        lsn = int(batch.commit_lsn[row])
        return RuleError(
            f"{self.path}: an update of {self.relation.qualified_name} (commit {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}) does not "
            f"say what {name} is, which {why}: the value is stored apart (TOAST) and did not change, so it was not sent.",
            f"Set REPLICA IDENTITY FULL on the table, so that later updates have it. To get past this one, take {name} out of "
            "the rule, and resync the table.",
        )

    def _without_truncates(self, batch: ChangeBatch) -> ChangeBatch:
        truncates = batch.op == TRUNCATE
        if self.rule.rename.truncate == "pass" or not truncates.any():
            return batch
        if self.rule.rename.truncate == "stop":
            raise RuleError(
                f"{self.path}: {self.relation.qualified_name} was truncated, and other tables are merged into "
                f"{self.route.relation.qualified_name} with it, whose rows a TRUNCATE there would take.",
                "Set rename.truncate to ignore, and delete this table's rows in the sinks yourself; or to pass, which empties "
                "the merged table.",
            )
        return batch.take(np.flatnonzero(~truncates))

    def routed(self, batch: ChangeBatch) -> ChangeBatch:
        route = self.route
        new, old = [batch.new[index] for index in route.kept], [batch.old[index] for index in route.kept]
        if route.origin is not None:
            constant = pa.repeat(pa.scalar(route.origin, pa.string()), len(batch))
            with_new_row = np.isin(batch.op, (INSERT, UPDATE, READ))
            new.append(null_elsewhere(with_new_row, constant))
            sent = route.relation.columns[-1].in_identity
            old.append(null_elsewhere((batch.old_kind != OLD_NONE) & sent, constant))
        unchanged = {
            place: batch.unchanged[index] for place, index in enumerate(route.kept) if index in batch.unchanged
        }
        return replace(batch, relation=route.relation, new=new, old=old, unchanged=unchanged)
