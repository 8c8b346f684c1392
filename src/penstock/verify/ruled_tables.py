"""Which tables of the subscription rules are for, and which of them can only be compared together.

Tables that go to one name are told apart by their origins: then each is compared with the target's rows of its own. Where
nothing tells them apart, the target should hold the rows of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from penstock.changes.batch import Relation
from penstock.postgres.connection import Connection
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout, table_layout
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.rules.routing import caught_by
from penstock.rules.schema_commands import Course
from penstock.subscription.publication import PublishedTable
from penstock.verify.report import TableReport
from penstock.verify.ruled_rows import Outcome, RuledRows, Traced, UnitedRows, outcome_of


@dataclass(frozen=True)
class RuledTable:
    table: PublishedTable
    layout: TableLayout
    outcome: Outcome

    @property
    def name(self) -> str:
        return self.table.qualified_name


@dataclass(frozen=True, eq=False)
class RuledTables:
    """A table with rules, or several that nothing tells apart in the target. ``origins``: what tells them from others."""

    members: tuple[RuledTable, ...]
    origins: Mapping[str, str]
    url: str
    publications: Sequence[str]
    rules: CompiledRules

    def refreshed(self, connection: Connection) -> RuledTables | None:
        """With their layouts as they are now; None if one of them is gone."""
        found = [ruled_table(connection, self.rules, self.publications, member.table) for member in self.members]
        members = tuple(member for member in found if member is not None)
        return replace(self, members=members) if len(members) == len(found) else None

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Columns that cannot be compared, and why."""
        return {name: why for member in self.members for name, why in member.outcome.left_out.items()}

    @cached_property
    def relation(self) -> Relation:
        """The columns that are compared."""
        relation = self.members[0].outcome.relation
        return replace(relation, columns=tuple(each for each in relation.columns if each.name not in self.left_out))

    @property
    def obstacle(self) -> str | None:
        """Why they cannot be compared."""
        for member in self.members:
            if member.outcome.obstacle is not None:
                return member.outcome.obstacle
            if _shape(member.outcome.relation) != _shape(self.members[0].outcome.relation):
                names = f"{self.members[0].name} and {member.name}"
                return f"{names} both go to {self.relation.qualified_name}, and have different columns"
        return None if self.relation.columns else "no column of it can be compared"

    @property
    def transformed(self) -> frozenset[str]:
        return frozenset[str]().union(*(member.outcome.transformed for member in self.members))

    @property
    def transforms_key(self) -> bool:
        return any(member.outcome.transforms_key for member in self.members)

    @property
    def layout(self) -> TableLayout:
        """The first one's, as large as all of them."""
        layouts = [member.layout for member in self.members]
        known = [layout.rows_estimated for layout in layouts if layout.rows_estimated is not None]
        return replace(
            layouts[0], rows_estimated=sum(known) if len(known) == len(layouts) else None,
            bytes=sum(layout.bytes for layout in layouts),
        )  # fmt: skip

    def rows(self, chunks: Sequence[Sequence[Chunk]]) -> UnitedRows:
        """``chunks``: of each member."""
        return UnitedRows([
            (RuledRows(self.url, each.layout, self.publications, self.rules, each.outcome, self.relation), planned)
            for each, planned in zip(self.members, chunks, strict=True)
        ])  # fmt: skip

    def described(self, report: TableReport) -> TableReport:
        first, *others = self.members
        name = self.relation.qualified_name
        return replace(
            report, target=name if name != first.name else None, together_with=tuple(other.name for other in others),
            columns_left_out=self.left_out if report.state not in ("left_out", "not_comparable") else {},
        )  # fmt: skip


def ruled_table(
    connection: Connection, rules: CompiledRules, publications: Sequence[str], table: PublishedTable
) -> RuledTable | None:
    """None: it was dropped, or is a part of another published table."""
    layout = table_layout(connection, table.oid, publications)
    if layout is None:
        return None
    outcome = _made_by_code(layout.relation, rules) or outcome_of(layout.relation, rules.steps(layout.relation))
    return RuledTable(table, layout, outcome)


def _made_by_code(relation: Relation, rules: CompiledRules) -> Outcome | None:
    """None: no rule for the table has code."""
    course = Course.of(rules.settings, (relation.schema, relation.table))
    for number, rule in course.rules:
        if rule.code is not None:
            place = course.target(relation.oid)
            named = replace(relation, schema=place.schema, table=place.table)
            columns = tuple(Traced(index) for index in range(len(relation.columns)))
            return Outcome(
                named, columns, f"{rule.code[0]} of rules[{number}] makes its rows, which verify does not run"
            )
    return None


def ruled_tables(
    connection: Connection,
    url: str,
    settings: Sequence[RuleSettings],
    publications: Sequence[str],
    published: Sequence[PublishedTable],
) -> dict[int, RuledTables]:
    """By the oid of each table that has rules, or meets one that has. Others are not looked at."""
    rules = CompiledRules(settings)
    by_name: dict[tuple[str, str], list[RuledTable]] = {}
    tables = {table.oid: table for table in published}.values()
    has_rules = {table.oid: any(caught_by(rule, table.schema, table.table) for rule in settings) for table in tables}
    for table in sorted(tables, key=lambda table: not has_rules[table.oid]):
        if has_rules[table.oid] or (table.schema, table.table) in by_name:
            found = ruled_table(connection, rules, publications, table)
            if found is not None:
                target = found.outcome.relation
                by_name.setdefault((target.schema, target.table), []).append(found)
    return {
        member.table.oid: group
        for several in by_name.values()
        for members, origins in _told_apart(several)
        for group in (RuledTables(tuple(members), origins, url, publications, rules),)
        for member in members
    }


def _told_apart(tables: Sequence[RuledTable]) -> Iterator[tuple[Sequence[RuledTable], dict[str, str]]]:
    """Each by itself where their origins differ, or all together."""
    origins = [table.outcome.origins for table in tables]
    alike = len({frozenset(found.items()) for found in origins}) < len(origins)
    if len({frozenset(found) for found in origins}) > 1 or alike:
        yield tables, {}
        return
    yield from (([table], found) for table, found in zip(tables, origins, strict=True))


def _shape(relation: Relation) -> tuple[Any, ...]:
    return {column.name: column.type_name for column in relation.columns}, set(relation.key)
