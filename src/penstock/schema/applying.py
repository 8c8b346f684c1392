"""What a definition is after a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.schema import kinds
from penstock.schema.definitions import ColumnDefinition, Definition, TypeDefinition
from penstock.schema.kinds import Part, PartKind, SchemaChange, TableChange, TypeChange
from penstock.schema.types import altered_type

# Which field of a definition holds the parts of a kind.
FIELDS: dict[PartKind, str] = {
    "unique": "uniques",
    "check": "checks",
    "foreign_key": "foreign_keys",
    "index": "indexes",
}


def apply(definition: Definition | None, change: SchemaChange) -> Definition | None:
    """The table after the change; None if there is none. A change that is not of this table leaves it as it is."""
    if isinstance(change, kinds.CreateTable):
        return change.definition if definition is None else definition
    if definition is None or not isinstance(change, TableChange) or change.table.oid != definition.oid:
        return definition
    if isinstance(change, kinds.DropTable):
        return None
    return altered(definition, change)


def apply_to_type(definition: TypeDefinition | None, change: SchemaChange) -> TypeDefinition | None:
    """The type after the change."""
    if isinstance(change, kinds.CreateType):
        return change.type if definition is None else definition
    if definition is None or not isinstance(change, TypeChange) or change.type.oid != definition.oid:
        return definition
    if isinstance(change, kinds.DropType):
        return None
    return altered_type(definition, change)


def altered(definition: Definition, change: TableChange) -> Definition:
    step = _STEPS.get(type(change))
    return step(definition, change) if step else definition


def _with_column(definition: Definition, number: int, **fields: Any) -> Definition:
    columns = (replace(column, **fields) if column.id == number else column for column in definition.columns)
    return replace(definition, columns=tuple(columns))


def _with_parts(definition: Definition, part: PartKind, parts: list[Any]) -> Definition:
    if part == "primary_key":
        return replace(definition, primary_key=parts[0] if parts else None)
    changed: dict[str, Any] = {FIELDS[part]: tuple(sorted(parts, key=lambda one: one.name))}
    return replace(definition, **changed)


def parts_of(definition: Definition, part: PartKind) -> tuple[Part, ...]:
    if part == "primary_key":
        return (definition.primary_key,) if definition.primary_key else ()
    found: tuple[Part, ...] = getattr(definition, FIELDS[part])
    return found


def _add(part: PartKind, field: str) -> Callable[[Definition, Any], Definition]:
    return lambda definition, change: _with_parts(
        definition, part, [*parts_of(definition, part), getattr(change, field)]
    )


def _drop(part: PartKind, field: str) -> Callable[[Definition, Any], Definition]:
    return lambda definition, change: _with_parts(
        definition, part, [one for one in parts_of(definition, part) if one.id != getattr(change, field).id]
    )


def _put(definition: Definition, change: kinds.AlterPart | kinds.RewordPart) -> Definition:
    parts = [change.after if one.id == change.before.id else one for one in parts_of(definition, change.part)]
    return _with_parts(definition, change.part, parts)


def _rename_part(definition: Definition, change: kinds.RenamePart) -> Definition:
    """The index that is the replica identity keeps being it; a constraint's index has the constraint's name."""
    parts = [
        replace(one, name=change.after) if one.id == change.id else one for one in parts_of(definition, change.part)
    ]
    identity = definition.replica_identity
    if identity.index == change.before and change.part not in ("check", "foreign_key"):
        identity = replace(identity, index=change.after)
    return replace(_with_parts(definition, change.part, parts), replica_identity=identity)


def _rename_column(definition: Definition, change: kinds.RenameColumn) -> Definition:
    """Keys and constraints go along; their texts are told by RewordPart."""

    def renamed(part: Any) -> Any:
        names = tuple(change.after if name == change.before else name for name in part.columns)
        return replace(part, columns=names)

    definition = _with_column(definition, change.id, name=change.after)
    return replace(
        definition,
        primary_key=renamed(definition.primary_key) if definition.primary_key else None,
        uniques=tuple(renamed(part) for part in definition.uniques),
        checks=tuple(renamed(part) for part in definition.checks),
        foreign_keys=tuple(renamed(part) for part in definition.foreign_keys),
    )


def _add_column(definition: Definition, change: kinds.AddColumn) -> Definition:
    columns = sorted([*definition.columns, change.column], key=lambda column: column.id)
    return replace(definition, columns=tuple(columns))


def _drop_column(definition: Definition, change: kinds.DropColumn) -> Definition:
    left = (column for column in definition.columns if column.id != change.column.id)
    return replace(definition, columns=tuple(left))


def _retype(definition: Definition, change: kinds.RetypeColumn) -> Definition:
    new: ColumnDefinition = change.after
    return _with_column(
        definition, new.id, type=new.type, type_oid=new.type_oid, modifier=new.modifier, collation=new.collation,
        base=new.base,
    )  # fmt: skip


def _comment(definition: Definition, change: kinds.SetComment) -> Definition:
    if change.id is None:
        return replace(definition, comment=change.comment)
    return _with_column(definition, change.id, comment=change.comment)


_STEPS: dict[type[TableChange], Callable[[Definition, Any], Definition]] = {
    kinds.RenameTable: lambda d, c: replace(d, table=c.after),
    kinds.MoveTable: lambda d, c: replace(d, schema=c.after),
    kinds.AddColumn: _add_column,
    kinds.DropColumn: _drop_column,
    kinds.RenameColumn: _rename_column,
    kinds.RetypeColumn: _retype,
    kinds.SetNotNull: lambda d, c: _with_column(d, c.id, not_null=True),
    kinds.DropNotNull: lambda d, c: _with_column(d, c.id, not_null=False),
    kinds.SetDefault: lambda d, c: _with_column(d, c.id, default=c.expression),
    kinds.DropDefault: lambda d, c: _with_column(d, c.id, default=None),
    kinds.ChangeIdentity: lambda d, c: _with_column(d, c.id, identity=c.identity, sequence=c.sequence),
    kinds.ChangeGenerated: lambda d, c: _with_column(d, c.id, generated=c.generated, default=c.expression),
    kinds.ReplacePrimaryKey: lambda d, c: replace(d, primary_key=c.after),
    kinds.AddUnique: _add("unique", "constraint"),
    kinds.DropUnique: _drop("unique", "constraint"),
    kinds.AddCheck: _add("check", "constraint"),
    kinds.DropCheck: _drop("check", "constraint"),
    kinds.AddForeignKey: _add("foreign_key", "foreign_key"),
    kinds.DropForeignKey: _drop("foreign_key", "foreign_key"),
    kinds.CreateIndex: _add("index", "index"),
    kinds.DropIndex: _drop("index", "index"),
    kinds.RenamePart: _rename_part,
    kinds.AlterPart: _put,
    kinds.RewordPart: _put,
    kinds.ChangeReplicaIdentity: lambda d, c: replace(d, replica_identity=c.after),
    kinds.AttachPartition: lambda d, c: replace(d, partition_of=c.partition_of),
    kinds.DetachPartition: lambda d, c: replace(d, partition_of=None),
    kinds.RewordPartition: lambda d, c: replace(d, partition_of=c.after),
    kinds.SetComment: _comment,
    kinds.SetPersistence: lambda d, c: replace(d, persistence=c.after),
    kinds.ChangeSettings: lambda d, c: replace(d, settings=c.after),
}  # RewriteTable changes rows, not the definition
