"""A change in words, for people."""

from __future__ import annotations

from penstock.schema import kinds
from penstock.schema.definitions import ColumnDefinition, EnumDefinition
from penstock.schema.kinds import SchemaChange


def in_words(change: SchemaChange) -> str:
    """``add column price numeric(10,2) not null``: without the table's name, which stands beside it."""
    match change:
        case kinds.CreateTable(definition=made):
            return f"create table ({', '.join(_column(column) for column in made.columns)})"
        case kinds.DropTable():
            return "drop table"
        case kinds.RenameTable(table=table, after=after):
            return f"rename table {table.table} to {after}"
        case kinds.MoveTable(table=table, after=after):
            return f"move from schema {table.schema} to {after}"
        case kinds.AddColumn(column=column):
            return f"add column {_column(column)}"
        case kinds.DropColumn(column=column):
            return f"drop column {column.name}"
        case kinds.RenameColumn(before=before, after=after):
            return f"rename column {before} to {after}"
        case kinds.RetypeColumn(before=old, after=new):
            return f"type of {new.name}: {old.type} to {new.type}"
        case kinds.SetNotNull(column=name):
            return f"{name} not null"
        case kinds.DropNotNull(column=name):
            return f"{name} may be null"
        case kinds.SetDefault(column=name, expression=expression):
            return f"default of {name}: {expression}"
        case kinds.DropDefault(column=name):
            return f"no default of {name}"
        case kinds.ChangeIdentity(column=name, identity=identity):
            return f"identity of {name}" if identity else f"no identity of {name}"
        case kinds.ChangeGenerated(column=name, generated=generated, expression=expression):
            return f"{name} generated as {expression}" if generated else f"{name} no longer generated"
        case kinds.SetComment(column=name, comment=comment):
            return f"comment on {name or 'the table'}: {comment or 'none'}"
    return _of_parts(change) or _of_types(change) or type(change).__name__


def _of_parts(change: SchemaChange) -> str | None:
    match change:
        case kinds.ReplacePrimaryKey(after=None):
            return "drop primary key"
        case kinds.ReplacePrimaryKey(after=key) if key is not None:
            return f"primary key ({', '.join(key.columns)})"
        case kinds.AddUnique(constraint=one) | kinds.AddCheck(constraint=one) | kinds.AddForeignKey(foreign_key=one):
            return f"add constraint {one.name} {one.definition}"
        case kinds.DropUnique(constraint=one) | kinds.DropCheck(constraint=one) | kinds.DropForeignKey(foreign_key=one):
            return f"drop constraint {one.name}"
        case kinds.CreateIndex(index=index):
            return f"create index {index.name}"
        case kinds.DropIndex(index=index):
            return f"drop index {index.name}"
        case kinds.RenamePart(part=part, before=before, after=after):
            return f"rename {part.replace('_', ' ')} {before} to {after}"
        case kinds.AlterPart(part=part, after=altered):
            return f"alter {part.replace('_', ' ')} {altered.name}: {altered.definition}"
        case kinds.RewordPart(part=part, after=reworded):
            return f"{part.replace('_', ' ')} {reworded.name} reads {reworded.definition}"
        case kinds.ChangeReplicaIdentity(after=identity):
            words = {"d": "default", "n": "nothing", "f": "full", "i": f"index {identity.index}"}
            return f"replica identity {words[identity.kind]}"
        case kinds.AttachPartition(partition_of=of):
            return f"attach to {of.schema}.{of.table} {of.bound}"
        case kinds.DetachPartition(partition_of=of):
            return f"detach from {of.schema}.{of.table}"
        case kinds.RewordPartition(after=of):
            return f"partition of {of.schema}.{of.table}"
        case kinds.SetPersistence(after=after):
            return "unlogged" if after == "u" else "logged"
        case kinds.ChangeSettings():
            return "settings"
        case kinds.RewriteTable(reasons=reasons):
            return f"all rows written anew ({', '.join(reasons)})"
    return None


def _of_types(change: SchemaChange) -> str | None:
    match change:
        case kinds.CreateType(type=EnumDefinition() as made):
            return f"create enum {made} ({', '.join(label.label for label in made.labels)})"
        case kinds.CreateType(type=made_type):
            return f"create type {made_type}"
        case kinds.DropType(type=gone):
            return f"drop type {gone}"
        case kinds.AddEnumValue(type=enum, label=label):
            return f"add value {label.label} to {enum}"
        case kinds.RenameEnumValue(type=enum, before=before, after=after):
            return f"rename value {before} of {enum} to {after}"
        case kinds.RenameType(type=type_, after=after):
            return f"rename type {type_} to {after}"
        case kinds.MoveType(type=type_, after=after):
            return f"move type {type_} to schema {after}"
        case kinds.SetTypeComment(type=type_, comment=comment):
            return f"comment on {type_}: {comment or 'none'}"
        case kinds.RewordType(type=type_):
            return f"{type_} as before, with other names in it"
        case kinds.AddAttribute(type=type_, attribute=one):
            return f"add attribute {one.name} {one.type} to {type_}"
        case kinds.DropAttribute(type=type_, attribute=one):
            return f"drop attribute {one.name} of {type_}"
        case kinds.RenameAttribute(type=type_, before=before, after=after):
            return f"rename attribute {before} of {type_} to {after}"
        case kinds.RetypeAttribute(type=type_, before=old, after=new):
            return f"type of attribute {new.name} of {type_}: {old.type} to {new.type}"
    return _of_domains(change)


def _of_domains(change: SchemaChange) -> str | None:
    match change:
        case kinds.AddDomainCheck(type=domain, check=check):
            return f"add constraint {check.name} {check.definition} to {domain}"
        case kinds.DropDomainCheck(type=domain, check=check):
            return f"drop constraint {check.name} of {domain}"
        case kinds.RenameDomainCheck(type=domain, before=before, after=after):
            return f"rename constraint {before} of {domain} to {after}"
        case kinds.ValidateDomainCheck(type=domain, check=check):
            return f"validate constraint {check.name} of {domain}"
        case kinds.SetDomainDefault(type=domain, expression=expression):
            return f"default of {domain}: {expression or 'none'}"
        case kinds.SetDomainNotNull(type=domain, not_null=not_null):
            return f"{domain} {'not null' if not_null else 'may be null'}"
        case kinds.OtherCommand(objects=objects, error=error):
            names = ", ".join(f"{one['type']} {one['identity'] or ''}".strip() for one in objects)
            return f"not known: {error}" if error else names
    return None


def _column(column: ColumnDefinition) -> str:
    parts = [
        column.name,
        column.type,
        "not null" if column.not_null else "",
        f"default {column.default}" if column.default else "",
    ]
    return " ".join(part for part in parts if part)
