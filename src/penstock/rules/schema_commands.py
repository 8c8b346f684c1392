"""Schema changes of the source as a sink behind rules has to follow them: under the target's names, and only where the target
has what they are about.

A table that keeps its name and columns is like the source's but for its rows, so everything is followed. One that rules give
other names, fewer columns or company is made from what changes say, with columns and a key alone: of it, columns are followed.
One that code makes has the columns of its result, which the next rows show.

A table or column that gets a name for which the rules say something else would arrive as nobody wants it: the sink stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from psycopg import sql

from penstock.errors import RuleError
from penstock.rules.compiled import CompiledRules
from penstock.rules.coverage import uncovered_columns
from penstock.rules.model import Exclude, Keep, RuleSettings
from penstock.rules.patterns import filled, values_for
from penstock.rules.routing import caught_by, may_merge, merged_oid
from penstock.schema import kinds
from penstock.schema.definitions import ColumnDefinition, Constraint, TableName
from penstock.schema.kinds import SchemaChange, TableChange
from penstock.schema.log.row import LoggedCommand

_OF_COLUMNS = (kinds.AddColumn, kinds.DropColumn, kinds.RetypeColumn, kinds.RenameColumn, kinds.DropNotNull)


def through_rules(rules: CompiledRules, commands: Sequence[LoggedCommand]) -> tuple[LoggedCommand, ...]:
    """RuleError where a new name leads out of the rules, or past them."""
    return tuple(
        replace(command, instead=tuple(made for change in command.changes for made in _made(rules.settings, change)))
        for command in commands
    )


def _made(rules: Sequence[RuleSettings], change: SchemaChange) -> Iterable[SchemaChange]:
    if not isinstance(change, TableChange):
        return (change,)
    course = Course.of(rules, (change.table.schema, change.table.table))
    if isinstance(change, kinds.RenameTable | kinds.MoveTable):
        return _renamed(rules, course, change)
    if isinstance(change, kinds.RenameColumn):
        course.refuse_to_lose(change)
    if isinstance(change, kinds.AddColumn):
        # before rows that are there show what they have in it
        for problem in uncovered_columns(rules, change.table.schema, change.table.table, [change.column.name]):
            problem.refuse()
    if isinstance(change, kinds.AddForeignKey):
        other = change.foreign_key.referenced
        if Course.of(rules, (other.schema, other.table)).reshapes:
            return ()
    if isinstance(change, kinds.AddColumn) and not course.is_made_by_code:
        change = replace(change, column=course.filled_in(change.column))
    return course.followed(change) if course.reshapes else (change,)


def _renamed(
    rules: Sequence[RuleSettings], course: Course, change: kinds.RenameTable | kinds.MoveTable
) -> Iterator[SchemaChange]:
    schema, table = change.table.schema, change.table.table
    now = (schema, change.after) if isinstance(change, kinds.RenameTable) else (change.after, table)
    then = Course.of(rules, now)
    if [number for number, _ in course.rules] != [number for number, _ in then.rules]:
        others = {number for number, _ in course.rules} ^ {number for number, _ in then.rules}
        raise RuleError(
            f"rules[{min(others)}].tables: {schema}.{table} is called {'.'.join(now)} now, and different rules are for the "
            "two names.",
            "Put both names into the rules' tables, so that its rows go on being treated alike; start, and resync the table.",
        )
    before, after = course.target(change.table.oid), then.target(change.table.oid)
    if course.merges or then.merges:
        return
    if before.table != after.table:
        yield kinds.RenameTable(before, after.table)
    if before.schema != after.schema:
        yield kinds.MoveTable(replace(before, table=after.table), after.schema)


@dataclass(frozen=True)
class Course:
    """What the rules make of the names of one table."""

    source: tuple[str, str]
    rules: tuple[tuple[int, RuleSettings], ...]  # those that are for it, with their numbers

    @classmethod
    def of(cls, rules: Sequence[RuleSettings], source: tuple[str, str]) -> Course:
        return cls(source, tuple((number, rule) for number, rule in enumerate(rules) if caught_by(rule, *source)))

    @property
    def merges(self) -> bool:
        return any(rule.rename.origin is not None or may_merge(rule) for _, rule in self.rules)

    @property
    def is_made_by_code(self) -> bool:
        """Which alone knows what columns the target's table has: sinks learn it from the rows."""
        return any(rule.code is not None for _, rule in self.rules)

    @property
    def reshapes(self) -> bool:
        """Whether the target's table has other names or columns than the source's, so that it is not made like it."""
        return self.merges or any(
            rule.code is not None
            or rule.rename.templates
            or rule.rename.columns
            or any(isinstance(action, Exclude) for action in rule.columns.values())
            for _, rule in self.rules
        )

    def target(self, oid: int) -> TableName:
        schema, table = self.source
        for _, rule in self.rules:
            caught = caught_by(rule, *self.source)
            assert caught is not None
            values = values_for(*self.source, caught[1])
            if rule.rename.to_schema is not None:
                schema = filled(rule.rename.to_schema, values)
            if rule.rename.table is not None:
                table = filled(rule.rename.table, values)
        return TableName(merged_oid(schema, table) if self.merges else oid, schema, table)

    def column(self, name: str) -> str | None:
        """What it is called in the end; None: it does not get there."""
        for rule, stage in self._stages(name):
            if isinstance(rule.columns.get(stage), Exclude):
                return None
            name = rule.rename.columns.get(stage, stage)
        return name

    def _stages(self, name: str) -> Iterator[tuple[RuleSettings, str]]:
        """The rules with what each of them knows the column as."""
        for _, rule in self.rules:
            yield rule, name
            name = rule.rename.columns.get(name, name)

    def refuse_to_lose(self, change: kinds.RenameColumn) -> None:
        """A rule names the column by its old name alone, and what it is to hide would pass under the new one."""
        for number, rule in self.rules:
            looked_at = rule.where.columns if rule.where is not None else frozenset()
            for where, names in (
                ("columns", rule.columns),
                ("where", looked_at),
                ("rename.columns", rule.rename.columns),
            ):
                if change.before in names and change.after not in names:
                    raise RuleError(
                        f"rules[{number}].{where}: column {change.before} of {change.table} is called {change.after} now.",
                        f"Add {change.after} to the rule beside {change.before}, or in its place where the rule's tables are "
                        "named without *; then start again.",
                    )

    def filled_in(self, column: ColumnDefinition) -> ColumnDefinition:
        """With what rows have in it that are there already, transformed like those to come."""
        value = column.missing
        for rule, stage in self._stages(column.name):
            action: Any = rule.columns.get(stage)
            if action is None or isinstance(action, Exclude | Keep) or (value is None and action.nulls != "replace"):
                continue
            if action.columns():
                raise RuleError(
                    f"{'.'.join(self.source)} has a new column {column.name}. What rows have in it that are there already, "
                    "the rule makes of other columns.",
                    f"Take {column.name} out of the rule for now and start; put it back, and resync the table.",
                )
            value = action.apply(pa.array([value], pa.string()), _NoRow())[0].as_py()
        return replace(column, missing=value)

    def followed(self, change: TableChange) -> Iterable[SchemaChange]:
        """What concerns columns, of a table that is made from what changes say."""
        table = self.target(change.table.oid)
        if self.is_made_by_code and isinstance(change, _OF_COLUMNS):
            return ()
        match change:
            case kinds.AddColumn(column=column) if (name := self.column(column.name)) is not None:
                return (kinds.AddColumn(table, _bare(column, name)),)
            case kinds.RetypeColumn(before=before, after=after) if (name := self.column(after.name)) is not None:
                return (kinds.RetypeColumn(table, _bare(before, name), _bare(after, name)),)
            case kinds.RewriteTable(reasons=reasons):
                return (kinds.RewriteTable(table, reasons),)
        return () if self.merges else self._followed_alone(table, change)

    def _followed_alone(self, table: TableName, change: TableChange) -> Iterable[SchemaChange]:
        """What a table that others go to as well would lose for them, too."""
        match change:
            case kinds.DropTable(definition=definition):
                return (kinds.DropTable(table, definition),)
            case kinds.DropColumn(column=column) if (name := self.column(column.name)) is not None:
                return (kinds.DropColumn(table, _bare(column, name)),)
            case kinds.RenameColumn(id=id, before=former, after=latter):
                before, after = self.column(former), self.column(latter)
                return (kinds.RenameColumn(table, id, before, after),) if before and after and before != after else ()
            case kinds.DropNotNull(id=id, column=dropped) if (name := self.column(dropped)) is not None:
                return (kinds.DropNotNull(table, id, name),)
            case kinds.ReplacePrimaryKey(before=key, after=now):
                return (kinds.ReplacePrimaryKey(table, self._key(table, key), self._key(table, now)),)
            case kinds.SetComment(column=None, comment=comment):
                return (kinds.SetComment(table, None, None, comment),)
        return ()

    def _key(self, table: TableName, key: Constraint | None) -> Constraint | None:
        """As the sink names the key of a table that it makes by itself."""
        if key is None:
            return None
        columns = tuple(self.column(name) or name for name in key.columns)
        definition = sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, columns)))
        return Constraint(key.id, f"{table.table}_pkey", "p", columns, definition.as_string())


class _NoRow:
    """Transforms that ask for no other columns get none."""

    def column(self, name: str) -> pa.Array:
        raise KeyError(name)


def _bare(column: ColumnDefinition, name: str) -> ColumnDefinition:
    return replace(
        column, name=name, not_null=False, default=None, identity=None, generated=None, comment=None, sequence=None
    )
