"""Schema changes of the source, followed in a Postgres target, inside the transaction of the batch that they came with.

1. New values of enum types come first and in a transaction of their own: Postgres does not let anybody use one before it is
   committed. Made twice, it is there once.
2. A command is followed when the changes that came before it to its table are applied, and before those that came after.
3. What rows may violate until all of them are there (keys, constraints, NOT NULL) and what only reads them (indexes) comes in
   at the end of the batch, if the table has it then, and as it is then.

All of 2 and 3 is committed with the position, so a change is followed once. What a follower cannot find, because the table is
not mirrored or somebody has altered the target, it leaves alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import psycopg
from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.schema import kinds
from penstock.schema.definitions import ColumnDefinition, Constraint, Definition, ForeignKey, IndexDefinition
from penstock.schema.kinds import SchemaChange, TableChange
from penstock.schema.log.row import LoggedCommand
from penstock.schema.words import in_words
from penstock.sinks.mirror.schema_following import follow_in_table, in_their_place
from penstock.sinks.postgres.carried_ddl import carry
from penstock.sinks.postgres.columns import retype, set_aside
from penstock.sinks.postgres.staging import StagedChanges
from penstock.sinks.postgres.tables import Tables
from penstock.sinks.postgres.target import Target, find
from penstock.sinks.postgres.types import LateTypeChanges, follow_type, restrict_domain, type_exists, type_name
from penstock.sinks.postgres.unfollowed import following

logger = logging.getLogger(__name__)

_Apply = Callable[[Sequence[StagedChanges]], None]
_Follow = Callable[["SchemaFollower", Target, Any], None]


class SchemaFollower:
    """For one sink. ``on_drop``: whether what the source drops is kept in the target. ``imports``: tables whose values the
    source computed anew are imported again."""

    def __init__(
        self, connection: Connection, sink: str, tables: Tables, on_drop: Literal["keep", "drop"], imports: bool
    ) -> None:
        self._connection, self._sink, self._tables = connection, sink, tables
        self._on_drop, self._imports = on_drop, imports

    def before_batch(self, commands: Sequence[LoggedCommand]) -> None:
        """Step 1. The connection is in no transaction."""
        for command in commands:
            for change in command.changes:
                if isinstance(change, kinds.AddEnumValue) and type_exists(self._connection, type_name(change.type)):
                    before = [change.before] if change.before is not None else []
                    place = sql.Composed([sql.SQL(" BEFORE {}").format(sql.Literal(label)) for label in before])
                    self._connection.execute(
                        sql.SQL("ALTER TYPE {} ADD VALUE IF NOT EXISTS {}{}").format(
                            type_name(change.type), sql.Literal(change.label.label), place
                        )
                    )

    def apply(self, commands: Sequence[LoggedCommand], staged: Sequence[StagedChanges], apply: _Apply) -> None:
        """Steps 2 and 3; ``apply`` applies changes of tables."""
        late, of_types = _Late(commands), LateTypeChanges(commands)
        for change in in_their_place(commands, staged, apply):
            late.note(change)
            of_types.note(change)
            self._follow(change)
        for restriction in of_types.changes():
            with following(self._sink, restriction):
                restrict_domain(self._connection, restriction)
        for change, step in late.steps():
            with following(self._sink, change):
                if self._step(change, step):
                    logger.info("%s of the target follows: %s.", change.table, in_words(change))

    def _follow(self, change: SchemaChange) -> None:
        with following(self._sink, change):
            self._follow_one(change)

    def _follow_one(self, change: SchemaChange) -> None:
        if isinstance(change, TableChange):
            follow_in_table(self, change, self._on_drop)
        elif isinstance(change, kinds.OtherCommand):
            carry(self._connection, self._sink, change)
        else:
            follow_type(self._connection, change, lambda name: self._make_types(name))

    def has(self, oid: int) -> bool:
        return self._tables.place_of(self._connection, oid) is not None

    def rename(self, oid: int, now: tuple[str, str]) -> bool:
        return self._tables.rename(self._connection, oid, now)

    def drop(self, oid: int) -> bool:
        return self._tables.drop(self._connection, oid)

    def alter(self, change: TableChange) -> bool:
        return self._step(change, _STEPS.get(type(change)))

    def _step(self, change: TableChange, step: _Follow | None) -> bool:
        target = self._target(change.table.oid) if step is not None else None
        if step is None or target is None:
            return False
        step(self, target, change)
        self._tables.forget_one(change.table.oid)
        return True

    def _target(self, oid: int) -> Target | None:
        place = self._tables.place_of(self._connection, oid)
        return find(self._connection, *place) if place is not None else None

    # One column or part at a time. The table and what is spoken of are there.

    def add_column(self, target: Target, change: kinds.AddColumn) -> None:
        column = change.column
        self._make_room(target, column.name, column.id)
        self._make_type(change, column)
        _alter(self._connection, target, sql.SQL("ADD COLUMN {}").format(column_words(column)))
        if column.missing is not None:
            then = sql.SQL("SET DEFAULT " + column.default if column.default is not None else "DROP DEFAULT")
            _alter(self._connection, target, sql.SQL("ALTER COLUMN {} {}").format(sql.Identifier(column.name), then))

    def drop_column(self, target: Target, change: kinds.DropColumn) -> None:
        there = target.column(change.column.name)
        if there is None:
            return
        name = sql.Identifier(there.name)
        if self._on_drop == "drop":
            _alter(self._connection, target, sql.SQL("DROP COLUMN {}").format(name))
            return
        logger.info("Column %s of %s was dropped in the source. It stays in the target.", there.name, change.table)
        if there.not_null and not there.generated:
            _alter(self._connection, target, sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(name))

    def rename_column(self, target: Target, change: kinds.RenameColumn) -> None:
        if target.column(change.before) is None:
            return
        self._make_room(target, change.after, change.id)
        names = sql.Identifier(change.before), sql.Identifier(change.after)
        _alter(self._connection, target, sql.SQL("RENAME COLUMN {} TO {}").format(*names))

    def _make_room(self, target: Target, name: str, id: int) -> None:
        """A column that the source dropped and we kept has the name: its values are none of the new one's."""
        if target.column(name) is not None:
            set_aside(self._connection, target, name, id)

    def retype_column(self, target: Target, change: kinds.RetypeColumn) -> None:
        self._make_type(change, change.after)
        retype(self._connection, target, change, self._imports)

    def _make_type(self, change: TableChange, column: ColumnDefinition) -> None:
        if self._connection.execute("SELECT to_regtype(%s)", [column.type]).fetchone() == (None,):
            self._tables.make_types(self._connection, change.table.oid, str(change.table))

    def _make_types(self, name: str) -> None:
        """For an attribute of a composite type: whatever the tables of the source need by now."""
        if self._connection.execute("SELECT to_regtype(%s)", [name]).fetchone() == (None,):
            for oid, table in self._tables.known(self._connection).items():
                self._tables.make_types(self._connection, oid, ".".join(table))

    def set_not_null(self, target: Target, change: kinds.SetNotNull) -> None:
        self._alter_column(target, change.column, sql.SQL("SET NOT NULL"))

    def drop_not_null(self, target: Target, change: kinds.DropNotNull) -> None:
        self._alter_column(target, change.column, sql.SQL("DROP NOT NULL"))

    def set_default(self, target: Target, change: kinds.SetDefault) -> None:
        self._alter_column(target, change.column, sql.SQL("SET DEFAULT " + change.expression))

    def drop_default(self, target: Target, change: kinds.DropDefault) -> None:
        self._alter_column(target, change.column, sql.SQL("DROP DEFAULT"))

    def drop_identity(self, target: Target, change: kinds.ChangeIdentity) -> None:
        if change.identity is None:
            self._alter_column(target, change.column, sql.SQL("DROP IDENTITY IF EXISTS"))

    def _alter_column(self, target: Target, name: str, what: sql.SQL) -> None:
        there = target.column(name)
        if there is not None and not there.generated:
            _alter(self._connection, target, sql.SQL("ALTER COLUMN {} {}").format(sql.Identifier(name), what))

    def drop_primary_key(self, target: Target, change: kinds.ReplacePrimaryKey) -> None:
        if change.before is not None:
            _drop_constraint(self._connection, target, change.before.name)

    def add_primary_key(self, target: Target, change: kinds.ReplacePrimaryKey) -> None:
        if change.after is not None:
            _add_constraint(self._connection, target, change.after)

    def add_constraint(self, target: Target, change: kinds.AddUnique | kinds.AddCheck) -> None:
        _add_constraint(self._connection, target, change.constraint)

    def drop_constraint(self, target: Target, change: kinds.DropUnique | kinds.DropCheck) -> None:
        _drop_constraint(self._connection, target, change.constraint.name)

    def add_foreign_key(self, target: Target, change: kinds.AddForeignKey) -> None:
        """Only to a table that is mirrored as well. One of the two may be behind the other: then it is validated later."""
        key = change.foreign_key
        if self._tables.place_of(self._connection, key.referenced.oid) is None:
            return
        try:
            with self._connection.transaction():
                _add_constraint(self._connection, target, key)
        except psycopg.errors.ForeignKeyViolation:
            _add_constraint(self._connection, target, replace(key, definition=f"{key.definition} NOT VALID"))

    def drop_foreign_key(self, target: Target, change: kinds.DropForeignKey) -> None:
        _drop_constraint(self._connection, target, change.foreign_key.name)

    def create_index(self, target: Target, change: kinds.CreateIndex) -> None:
        there = self._connection.execute(
            "SELECT 1 FROM pg_class WHERE relnamespace = %s::regnamespace AND relname = %s",
            [sql.Identifier(target.schema).as_string(), change.index.name],
        ).fetchone()
        if there is None:
            self._connection.execute(sql.SQL(change.index.definition))  # Postgres's own words, names qualified

    def drop_index(self, target: Target, change: kinds.DropIndex) -> None:
        name = sql.Identifier(target.schema, change.index.name)
        self._connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(name))

    def rename_part(self, target: Target, change: kinds.RenamePart) -> None:
        before, after = sql.Identifier(change.before), sql.Identifier(change.after)
        if change.part == "index":
            index = sql.Identifier(target.schema, change.before)
            self._connection.execute(sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}").format(index, after))
        elif _has_constraint(self._connection, target, change.before):
            _alter(self._connection, target, sql.SQL("RENAME CONSTRAINT {} TO {}").format(before, after))

    def set_comment(self, target: Target, change: kinds.SetComment) -> None:
        comment = sql.Literal(change.comment)
        if change.column is None:
            self._connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(target.name, comment))
        elif target.column(change.column) is not None:
            column = sql.Identifier(target.schema, target.table, change.column)
            self._connection.execute(sql.SQL("COMMENT ON COLUMN {} IS {}").format(column, comment))


_STEPS: dict[type[TableChange], _Follow] = {
    kinds.AddColumn: SchemaFollower.add_column,
    kinds.DropColumn: SchemaFollower.drop_column,
    kinds.RenameColumn: SchemaFollower.rename_column,
    kinds.RetypeColumn: SchemaFollower.retype_column,
    kinds.DropNotNull: SchemaFollower.drop_not_null,
    kinds.SetDefault: SchemaFollower.set_default,
    kinds.DropDefault: SchemaFollower.drop_default,
    kinds.ChangeIdentity: SchemaFollower.drop_identity,
    kinds.ReplacePrimaryKey: SchemaFollower.drop_primary_key,
    kinds.DropUnique: SchemaFollower.drop_constraint,
    kinds.DropCheck: SchemaFollower.drop_constraint,
    kinds.DropForeignKey: SchemaFollower.drop_foreign_key,
    kinds.DropIndex: SchemaFollower.drop_index,
    kinds.RenamePart: SchemaFollower.rename_part,
    kinds.SetComment: SchemaFollower.set_comment,
}
_LAST_STEPS: dict[type[TableChange], _Follow] = {
    kinds.SetNotNull: SchemaFollower.set_not_null,
    kinds.ReplacePrimaryKey: SchemaFollower.add_primary_key,
    kinds.AddUnique: SchemaFollower.add_constraint,
    kinds.AddCheck: SchemaFollower.add_constraint,
    kinds.AddForeignKey: SchemaFollower.add_foreign_key,
    kinds.CreateIndex: SchemaFollower.create_index,
}


class _Late:
    """What comes in at the end of a batch, if the last definition of its table still has it."""

    def __init__(self, commands: Sequence[LoggedCommand]) -> None:
        self._noted: list[TableChange] = []
        self._definitions = {table.oid: table.after for command in commands for table in command.parsed.tables}

    def note(self, change: SchemaChange) -> None:
        if isinstance(change, TableChange) and type(change) in _LAST_STEPS:
            self._noted.append(change)

    def steps(self) -> Iterator[tuple[TableChange, _Follow]]:
        seen = set()
        for change in self._noted:
            definition = self._definitions.get(change.table.oid)
            now = _as_it_is(change, definition) if definition is not None else None
            if now is not None and now not in seen:
                seen.add(now)
                yield now, _LAST_STEPS[type(now)]


def _as_it_is(change: TableChange, definition: Definition) -> TableChange | None:
    """The change in the words of the table's last definition; None: that does not have it any more."""
    table = definition.name
    match change:
        case kinds.SetNotNull(id=id):
            columns = [column for column in definition.columns if column.id == id and column.not_null]
            return kinds.SetNotNull(table, id, columns[0].name) if columns else None
        case kinds.ReplacePrimaryKey():
            return kinds.ReplacePrimaryKey(table, None, definition.primary_key) if definition.primary_key else None
        case kinds.AddUnique(constraint=part):
            return next((kinds.AddUnique(table, one) for one in definition.uniques if _is(one, part)), None)
        case kinds.AddCheck(constraint=part):
            return next((kinds.AddCheck(table, one) for one in definition.checks if _is(one, part)), None)
        case kinds.AddForeignKey(foreign_key=key):
            return next((kinds.AddForeignKey(table, one) for one in definition.foreign_keys if _is(one, key)), None)
        case kinds.CreateIndex(index=index):
            return next((kinds.CreateIndex(table, one) for one in definition.indexes if _is(one, index)), None)
    return None


def _is(one: Constraint | ForeignKey | IndexDefinition, other: Constraint | ForeignKey | IndexDefinition) -> bool:
    """By its name, too: Postgres builds it anew when a column's type changes."""
    return one.id == other.id or one.name == other.name


def column_words(column: ColumnDefinition) -> sql.Composed:
    """As in CREATE TABLE. Values of an identity column come from the source, so it is an ordinary one until the table is
    copied again. The default is the value that it had for rows that were there: ``now()`` was another moment there."""
    parts = [sql.Identifier(column.name), sql.SQL(column.type)]
    if column.collation:
        parts.append(sql.SQL("COLLATE " + column.collation))
    if column.generated:
        kind = "STORED" if column.generated == "s" else "VIRTUAL"
        parts.append(sql.SQL(f"GENERATED ALWAYS AS ({column.default}) {kind}"))
    elif column.missing is not None:
        parts.append(sql.SQL("DEFAULT {}").format(sql.Literal(column.missing)))
    elif column.default is not None:
        parts.append(sql.SQL("DEFAULT " + column.default))
    if column.not_null and (column.default is not None or column.missing is not None or column.generated):
        parts.append(sql.SQL("NOT NULL"))
    return sql.SQL(" ").join(parts)


def _alter(connection: Connection, target: Target, what: sql.Composed | sql.SQL) -> None:
    connection.execute(sql.SQL("ALTER TABLE {} {}").format(target.name, what))


def _has_constraint(connection: Connection, target: Target, name: str) -> bool:
    query = "SELECT 1 FROM pg_constraint WHERE conrelid = %s AND conname = %s"
    return connection.execute(query, [target.oid, name]).fetchone() is not None


def _add_constraint(connection: Connection, target: Target, constraint: Constraint | ForeignKey) -> None:
    if not _has_constraint(connection, target, constraint.name):
        definition = sql.SQL(constraint.definition)
        _alter(connection, target, sql.SQL("ADD CONSTRAINT {} {}").format(sql.Identifier(constraint.name), definition))


def _drop_constraint(connection: Connection, target: Target, name: str) -> None:
    _alter(connection, target, sql.SQL("DROP CONSTRAINT IF EXISTS {}").format(sql.Identifier(name)))
