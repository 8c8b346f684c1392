"""From how a table or a type was to how it is: the changes, in an order in which they can be applied.

Each change comes with its step. Sorted by steps, the changes of several tables that one command altered fit together:
foreign keys go before what they refer to, and come after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any

from penstock.schema import kinds
from penstock.schema.applying import altered, parts_of
from penstock.schema.definitions import ColumnDefinition, Definition, TypeDefinition
from penstock.schema.kinds import PartKind, SchemaChange, TableChange
from penstock.schema.types import renames, type_changes


class Step(IntEnum):
    TYPES = 0
    DROP_FOREIGN_KEYS = 1
    DETACH = 2
    DROP_PARTS = 3
    DROP_TABLES = 4
    NAMES = 5
    DROP_COLUMNS = 6
    COLUMN_NAMES = 7
    CREATE_TABLES = 8
    COLUMNS = 9
    PARTS = 10
    ATTACH = 11
    FOREIGN_KEYS = 12
    SETTINGS = 13
    DROP_TYPES = 14


_ADDED: dict[PartKind, Any] = {
    "unique": lambda table, part: kinds.AddUnique(table, part),
    "check": lambda table, part: kinds.AddCheck(table, part),
    "index": lambda table, part: kinds.CreateIndex(table, part),
    "foreign_key": lambda table, part: kinds.AddForeignKey(table, part),
}
_DROPPED: dict[PartKind, Any] = {
    "unique": lambda table, part: kinds.DropUnique(table, part),
    "check": lambda table, part: kinds.DropCheck(table, part),
    "index": lambda table, part: kinds.DropIndex(table, part),
    "foreign_key": lambda table, part: kinds.DropForeignKey(table, part),
}
_KINDS: tuple[PartKind, ...] = ("primary_key", "unique", "check", "index", "foreign_key")


def table_differences(before: Definition | None, after: Definition | None) -> list[tuple[Step, SchemaChange]]:
    if before is None:
        return _created(after) if after is not None else []
    if after is None:
        dropped = [(Step.DROP_FOREIGN_KEYS, kinds.DropForeignKey(before.name, key)) for key in before.foreign_keys]
        bare = replace(before, foreign_keys=())
        return [*dropped, (Step.DROP_TABLES, kinds.DropTable(before.name, bare))]
    return _Comparison(before, after).steps()


def _created(after: Definition) -> list[tuple[Step, SchemaChange]]:
    bare = replace(after, foreign_keys=())
    keys = [(Step.FOREIGN_KEYS, kinds.AddForeignKey(after.name, key)) for key in after.foreign_keys]
    return [(Step.CREATE_TABLES, kinds.CreateTable(after.name, bare)), *keys]


class _Comparison:
    """Keeps the definition as it is after the changes found so far, from which the next one takes its names."""

    def __init__(self, before: Definition, after: Definition) -> None:
        self._now, self._after = before, after
        self._found: list[tuple[Step, SchemaChange]] = []

    def steps(self) -> list[tuple[Step, SchemaChange]]:
        for part in _KINDS:
            self._built_anew(part)
        self._drop_parts("foreign_key", Step.DROP_FOREIGN_KEYS)
        self._detach()
        for part in ("index", "unique", "check"):
            self._drop_parts(part, Step.DROP_PARTS)
        self._drop_key_that_is_in_the_way()
        self._names()
        self._drop_columns()
        self._rename_columns()
        for column in self._after.columns:
            self._column(column)
        self._rename_parts()
        self._primary_key()
        for part in _KINDS:
            self._parts(part)
        self._attach()
        self._settings()
        return self._found

    def _say(self, step: Step, change: TableChange) -> None:
        self._found.append((step, change))
        self._now = altered(self._now, change)

    def _built_anew(self, part: PartKind) -> None:
        """Postgres builds keys, constraints and indexes of a column anew when its type changes: the same, by another id."""
        if {column.id for column in self._now.columns} - {column.id for column in self._after.columns}:
            return  # another column may have the name of one that went
        ids = {one.id for one in parts_of(self._now, part)}
        wanted = {one.name: one for one in parts_of(self._after, part) if one.id not in ids}
        kept = {one.id for one in parts_of(self._after, part)}
        for one in parts_of(self._now, part):
            new = wanted.get(one.name)
            if one.id not in kept and new is not None and replace(one, id=new.id) == new:
                self._say(Step.DROP_FOREIGN_KEYS, kinds.RewordPart(self._now.name, part, one, new))

    def _drop_parts(self, part: PartKind, step: Step) -> None:
        kept = {one.id for one in parts_of(self._after, part)}
        for one in parts_of(self._now, part):
            if one.id not in kept:
                self._say(step, _DROPPED[part](self._now.name, one))

    def _detach(self) -> None:
        old, new = self._now.partition_of, self._after.partition_of
        if old is not None and (new is None or (old.oid, old.bound) != (new.oid, new.bound)):
            self._say(Step.DETACH, kinds.DetachPartition(self._now.name, old))

    def _drop_key_that_is_in_the_way(self) -> None:
        """Otherwise the key is replaced in one go, when the new one's columns are there."""
        key, new = self._now.primary_key, self._after.primary_key
        kept = {column.id for column in self._after.columns}
        going = {column.name for column in self._now.columns if column.id not in kept}
        taken = {one.name for part in _KINDS[1:] for one in parts_of(self._after, part)}
        replaced = key is not None and (new is None or new.id != key.id)
        if key is not None and replaced and (going & set(key.columns) or key.name in taken):
            self._say(Step.DROP_PARTS, kinds.ReplacePrimaryKey(self._now.name, key, None))

    def _names(self) -> None:
        if self._now.schema != self._after.schema:
            self._say(Step.NAMES, kinds.MoveTable(self._now.name, self._after.schema))
        if self._now.table != self._after.table:
            self._say(Step.NAMES, kinds.RenameTable(self._now.name, self._after.table))

    def _drop_columns(self) -> None:
        kept = {column.id for column in self._after.columns}
        for column in sorted(self._now.columns, key=lambda column: column.generated is None):  # these use others
            if column.id not in kept:
                self._say(Step.DROP_COLUMNS, kinds.DropColumn(self._now.name, column))

    def _rename_columns(self) -> None:
        wanted = {column.id: column.name for column in self._after.columns}
        names = {column.id: column.name for column in self._now.columns}
        for number, old, new in renames(names, wanted):
            self._say(Step.COLUMN_NAMES, kinds.RenameColumn(self._now.name, number, old, new))

    def _column(self, new: ColumnDefinition) -> None:
        if all(column.id != new.id for column in self._now.columns):
            self._say(Step.COLUMNS, kinds.AddColumn(self._now.name, new))
            return
        for change in self._column_changes(self._now.column(new.id), new):
            self._say(Step.COLUMNS, change)

    def _column_changes(self, old: ColumnDefinition, new: ColumnDefinition) -> Iterator[TableChange]:
        """A default goes before the type changes, which it may not fit, and the new one comes after."""
        place = (self._now.name, new.id, new.name)
        plain = old.generated is None and new.generated is None
        if plain and old.default is not None and old.default != new.default:
            yield kinds.DropDefault(*place)
        retyped = replace(
            old, type=new.type, type_oid=new.type_oid, modifier=new.modifier, collation=new.collation, base=new.base
        )
        if retyped != old:
            yield kinds.RetypeColumn(self._now.name, old, retyped)
        if new.not_null and not old.not_null:
            yield kinds.SetNotNull(*place)
        if (old.identity, old.sequence) != (new.identity, new.sequence):
            yield kinds.ChangeIdentity(*place, new.identity, new.sequence)
        if old.not_null and not new.not_null:  # an identity column cannot be null
            yield kinds.DropNotNull(*place)
        if not plain and (old.generated, old.default) != (new.generated, new.default):
            yield kinds.ChangeGenerated(*place, new.generated, new.default)
        elif new.default is not None and old.default != new.default:
            yield kinds.SetDefault(*place, new.default)
        if old.comment != new.comment:
            yield kinds.SetComment(*place, new.comment)

    def _primary_key(self) -> None:
        old, new = self._now.primary_key, self._after.primary_key
        if (old and old.id) != (new and new.id):
            self._say(Step.PARTS, kinds.ReplacePrimaryKey(self._now.name, old, new))

    def _rename_parts(self) -> None:
        """All kinds together: one may take the name of another."""
        names, wanted = (
            {(part, one.id): one.name for part in _KINDS for one in parts_of(definition, part)}
            for definition in (self._now, self._after)
        )
        for (part, number), old, new in renames(names, wanted):
            self._say(Step.PARTS, kinds.RenamePart(self._now.name, part, number, old, new))

    def _parts(self, part: PartKind) -> None:
        known = {one.id: one for one in parts_of(self._now, part)}
        for new in parts_of(self._after, part):
            old = known.get(new.id)
            if old is None:
                step = Step.FOREIGN_KEYS if part == "foreign_key" else Step.PARTS
                self._say(step, _ADDED[part](self._now.name, new))
            elif old != new:
                kind = kinds.AlterPart if old.flags != new.flags else kinds.RewordPart
                self._say(Step.PARTS, kind(self._now.name, part, old, new))

    def _attach(self) -> None:
        old, new = self._now.partition_of, self._after.partition_of
        if old is None and new is not None:
            self._say(Step.ATTACH, kinds.AttachPartition(self._now.name, new))
        elif old is not None and new is not None and old != new:
            self._say(Step.ATTACH, kinds.RewordPartition(self._now.name, old, new))

    def _settings(self) -> None:
        now, after = self._now, self._after
        if now.replica_identity != after.replica_identity:
            change = kinds.ChangeReplicaIdentity(now.name, now.replica_identity, after.replica_identity)
            self._say(Step.SETTINGS, change)
        if now.persistence != after.persistence:
            self._say(Step.SETTINGS, kinds.SetPersistence(now.name, after.persistence))
        if now.settings != after.settings:
            self._say(Step.SETTINGS, kinds.ChangeSettings(now.name, now.settings, after.settings))
        if now.comment != after.comment:
            self._say(Step.SETTINGS, kinds.SetComment(now.name, None, None, after.comment))


def type_differences(before: TypeDefinition | None, after: TypeDefinition | None) -> list[tuple[Step, SchemaChange]]:
    step = Step.DROP_TYPES if after is None else Step.TYPES
    return [(step, change) for change in type_changes(before, after)]
