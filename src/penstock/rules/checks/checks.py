"""Rules held against the tables of the source, before anything runs: every mistake with its place in the config file.

Pure: it is given the tables. What it lets pass, ``compiled`` can apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.changes.batch import OWN_SCHEMA, Column, Relation
from penstock.changes.toast import may_be_toasted
from penstock.errors import ConfigError
from penstock.findings import Finding
from penstock.rules.checks.source_tables import SourceTable
from penstock.rules.code.code import Code, function_result, refuse_unfit_table
from penstock.rules.compiled import second_frame
from penstock.rules.coverage import uncovered
from penstock.rules.model import OPERATIONS, Exclude, Function, Keep, RuleSettings
from penstock.rules.routing import caught_by, route
from penstock.rules.where.conditions import Comparison
from penstock.rules.where.filters import outcome_apart, test_of
from penstock.rules.where.operands import UnfitOperand
from penstock.settings.mistakes import nearest, show_path

_SHOWN = 5
_LONGEST_NAME = 63  # bytes


def check_rules(rules: Sequence[RuleSettings], tables: Sequence[SourceTable]) -> list[Finding]:
    """What is wrong (``ok`` False) or worth a warning (None); empty if nothing is."""
    checks = [_RuleCheck(rule, f"rules[{index}]") for index, rule in enumerate(rules)]
    arrivals = [arrival for table in tables if (arrival := _follow(checks, table)) is not None]
    findings = [finding for check in checks for finding in check.all_findings(tables)]
    return [*findings, *_uncovered(rules, tables), *_collisions(arrivals)]


@dataclass(frozen=True)
class _Arrival:
    """Where a table of the source ends."""

    source: Relation
    relation: Relation
    origin: str | None
    path: str  # of the rule that named it last; "" if none did
    allowed: bool  # to meet others


def _follow(checks: Sequence[_RuleCheck], table: SourceTable) -> _Arrival | None:
    """Through all rules that are for it, each seeing what the one before made. None: it does not get through."""
    source = table.relation
    relation, unique = source, {name for names in table.unique for name in names}
    origin, path, allowed = None, "", False
    frames = [check for check in checks if check.rule.in_frame and caught_by(check.rule, source.schema, source.table)]
    for another in frames[1:]:
        another.add("", second_frame(another.path, another.rule, source))
    for check in checks:
        if caught_by(check.rule, source.schema, source.table) is None:
            continue
        check.look_at(relation, unique, (source.schema, source.table))
        try:
            made = _through_code(check.rule, check.path, relation)
            if made is None:
                return None
            routed = route(check.rule, check.path, made, (source.schema, source.table))
        except ConfigError as error:
            check.add("", error)
            return None
        check.look_at_names(relation, routed.relation)
        renamed = check.rule.rename.columns
        relation, unique = routed.relation, {renamed.get(name, name) for name in unique}
        origin = routed.origin if routed.origin is not None else origin
        if check.rule.rename.templates:
            path, allowed = f"{check.path}.rename", allowed or check.rule.allow_uniqueness_loss
    return _Arrival(source, relation, origin, path, allowed)


def _through_code(rule: RuleSettings, path: str, relation: Relation) -> Relation | None:
    """What the rule's code makes of the table; None where it takes Spark to tell. ConfigError if it does not fit."""
    if rule.code is None:
        return relation
    key, code = rule.code
    where = f"{path}.{key}"
    refuse_unfit_table(where, relation)
    if isinstance(code, Function):
        code.load(where)
    if rule.in_frame:
        return None
    assert isinstance(code, Function)
    return Code.of(key, code, where, relation, function_result(code, where, relation)).output


@dataclass
class _RuleCheck:
    """One rule and what is found of it. The same mistake in many tables is told once, with the first few of them."""

    rule: RuleSettings
    path: str
    found: dict[Finding, list[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)  # columns that some table has
    tables: list[str] = field(default_factory=list)

    def add(
        self, where: str, message: ConfigError | str, remedy: str = "", ok: bool | None = False, table: str = ""
    ) -> None:
        if isinstance(message, ConfigError):
            path, _, text = message.message.partition(": ")
            named = "." in text.partition(" ")[0]  # it begins with a table's name
            finding = Finding(path, ok, text if named else _sentence(text), message.advice or "")
        else:
            finding = Finding(f"{self.path}{where}", ok, message, remedy)
        self.found.setdefault(finding, []).append(table)

    def all_findings(self, tables: Sequence[SourceTable]) -> Iterator[Finding]:
        yield from self._unmatched(tables)
        for finding, names in self.found.items():
            yield replace(finding, message=finding.message.replace("{tables}", _listed(names)))
        if self.tables:
            for where, name in self._named_columns():
                if name not in self.seen and not any(finding.name == f"{self.path}{where}" for finding in self.found):
                    yield Finding(
                        f"{self.path}{where}",
                        False,
                        f"None of the rule's tables has a column {name}.",
                        "Correct it. If the column has another name by now, write that: without it, it would arrive as it is.",
                    )

    def look_at_names(self, before: Relation, after: Relation) -> None:
        """Those that the rule gives."""
        known = {before.schema, before.table, *before.columns_by_name}
        for name in (after.schema, after.table, *after.columns_by_name):
            if name not in known and len(name.encode()) > _LONGEST_NAME:
                self.add(
                    ".rename", f"{name} has {len(name.encode())} bytes; Postgres cuts names after {_LONGEST_NAME}.",
                    "Choose a shorter name.",
                )  # fmt: skip
        if after.schema == OWN_SCHEMA:
            self.add(
                ".rename.schema",
                f"The schema {OWN_SCHEMA} holds what Penstock itself keeps in a sink.",
                "Choose another one.",
            )

    def _unmatched(self, tables: Sequence[SourceTable]) -> Iterator[Finding]:
        names = [table.relation.qualified_name for table in tables]
        for index, pattern in enumerate(self.rule.tables):
            only = self.rule.model_copy(update={"tables": (pattern,)})
            if any(caught_by(only, table.relation.schema, table.relation.table) for table in tables):
                continue
            if "*" in pattern:
                yield Finding(f"{self.path}.tables[{index}]", None, f"No captured table matches {pattern}.")
            else:
                near = nearest(pattern, names) if names else "see source.tables"
                yield Finding(
                    f"{self.path}.tables[{index}]", False, f"There is no captured table {pattern}.", _sentence(near)
                )

    def _named_columns(self) -> Iterator[tuple[str, str]]:
        """What code makes is looked at when that is known."""
        made = self.rule.code is not None
        columns = self.rule.columns.items()
        yield from (
            (f".columns.{name}", name) for name, action in columns if not (made and isinstance(action, Exclude))
        )
        yield from ((f".rename.columns.{name}", name) for name in self.rule.rename.columns if not made)

    def look_at(self, relation: Relation, unique: set[str], source: tuple[str, str]) -> None:
        caught = caught_by(self.rule, *source)
        assert caught is not None
        self.tables.append(relation.qualified_name)
        known = relation.columns_by_name
        for where, name in self._named_columns():
            if name in known:
                self.seen.add(name)
            elif "*" not in caught[0]:
                self._unknown(where, name, relation)
        for name, action in self.rule.columns.items():
            if name in known and not isinstance(action, Exclude | Keep):
                self._look_at_transform(f".columns.{name}", action, known[name], relation, name in unique)
        if self.rule.where is not None:
            for path, comparison in self.rule.where.comparisons():
                self._look_at_comparison(show_path((".where", *path)), comparison, relation)
            self._warn_of_rows_that_enter(relation)

    def _unknown(self, where: str, name: str, relation: Relation) -> None:
        remedy = nearest(name, list(relation.columns_by_name))
        self.add(where, f"{relation.qualified_name} has no column {name}.", _sentence(remedy))

    def _look_at_transform(self, where: str, transform: Any, column: Column, relation: Relation, unique: bool) -> None:
        table = relation.qualified_name
        misfit = transform.misfit(column)
        if misfit is not None:
            self.add(
                where, f"{table}: {_sentence(misfit)}", f"The column is {column.type_name}; use another transform."
            )
        for other in sorted(transform.columns() - relation.columns_by_name.keys()):
            self._unknown(where, other, relation)
        if transform.columns() and relation.identity != "f" and not column.in_identity and may_be_toasted(column):
            self.add(
                where,
                f"The transform reads other columns than {column.name}. An update of those does not say what a long value is "
                "that it leaves alone (TOAST), and then the sink stops (in {tables}).",
                "Set REPLICA IDENTITY FULL where values are longer than about 2 kB.", ok=None, table=table,
            )  # fmt: skip
        in_key = column.name in relation.key
        if not transform.deterministic and (in_key or not relation.key):
            what = "is in the key of" if in_key else "tells rows apart in"
            self.add(
                where, f"{column.name} {what} {table}, and the transform gives another value each time.",
                "Use one that is deterministic, or sinks cannot find the row again.",
            )  # fmt: skip
        elif (in_key or unique) and not transform.keeps_uniqueness and not self.rule.allow_uniqueness_loss:
            what = "in the key of" if in_key else "unique in"
            self.add(
                where, f"{column.name} is {what} {table}, and the transform may make different values equal.",
                "Use one that keeps them apart, such as encrypt; or set allow_uniqueness_loss: true.",
            )  # fmt: skip
        if in_key:
            self._look_at_key(where, transform, column, relation)

    def _look_at_key(self, where: str, transform: Any, column: Column, relation: Relation) -> None:
        table = relation.qualified_name
        if set(self.rule.operations) != set(OPERATIONS):
            self.add(
                where, f"{column.name} is in the key of {table}, and the rule is not for all operations.",
                "Leave operations out, or changes of one row arrive under different keys.",
            )  # fmt: skip
        known = relation.columns_by_name
        read = sorted(name for name in transform.columns() if name in known and not known[name].in_identity)
        if read:
            self.add(
                where, f"{column.name} is in the key of {table}, and the transform reads {read[0]}: deletes do not have it.",
                "Set REPLICA IDENTITY FULL on the table, or use a transform that reads the key alone.",
            )  # fmt: skip

    def _look_at_comparison(self, where: str, comparison: Comparison, relation: Relation) -> None:
        column = relation.columns_by_name.get(comparison.column)
        if column is None:
            self._unknown(f"{where}.column", comparison.column, relation)
            return
        try:
            test_of(comparison, column)
        except UnfitOperand as error:
            self.add(
                f"{where}.{comparison.op}", f"{relation.qualified_name}.{column.name} is {column.type_name}: {error}."
            )
        unseen = outcome_apart(comparison, column) is None and not column.in_identity
        if unseen and relation.identity != "f" and may_be_toasted(column):
            self.add(
                f"{where}.column",
                f"{column.name} is {column.type_name}: an update does not say what a long value is that it leaves alone "
                "(TOAST), and then the sink stops (in {tables}).",
                "Filter by a short column, or set REPLICA IDENTITY FULL.", ok=None, table=relation.qualified_name,
            )  # fmt: skip

    def _warn_of_rows_that_enter(self, relation: Relation) -> None:
        assert self.rule.where is not None
        known = relation.columns_by_name
        if all(name in known and known[name].in_identity for name in self.rule.where.columns):
            return
        if any(may_be_toasted(column) and not column.in_identity for column in relation.columns):
            self.add(
                ".where",
                "A row that comes into the filter by an update lacks long values that did not change (TOAST), and sinks that "
                "keep rows stop at it, if there are such values (in {tables}).",
                "Set REPLICA IDENTITY FULL where values are longer than about 2 kB.", ok=None, table=relation.qualified_name,
            )  # fmt: skip


def _uncovered(rules: Sequence[RuleSettings], tables: Sequence[SourceTable]) -> Iterator[Finding]:
    for table in tables:
        for problem in uncovered(rules, table.relation):
            yield Finding(problem.path, False, problem.message, problem.remedy)


def _collisions(arrivals: Sequence[_Arrival]) -> Iterator[Finding]:
    """Tables that get one name."""
    by_name: dict[str, list[_Arrival]] = {}
    for arrival in arrivals:
        by_name.setdefault(arrival.relation.qualified_name, []).append(arrival)
    for name, several in by_name.items():
        first, *others = several
        for other in others:
            path = other.path or first.path
            both = f"{first.source.qualified_name} and {other.source.qualified_name} both go to {name}"
            if _shape(first.relation) != _shape(other.relation):
                yield Finding(path, False, f"{both}, and have different columns.", "Exclude or rename what differs.")
            elif first.origin == other.origin and not (first.allowed and other.allowed):
                yield Finding(
                    path, False, f"{both}, and nothing tells their rows apart.",
                    "Add rename.origin; or set allow_uniqueness_loss: true if their keys never meet.",
                )  # fmt: skip


def _shape(relation: Relation) -> tuple[Any, ...]:
    return {column.name: column.type_name for column in relation.columns}, set(relation.key)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?")) else f"{text}."
