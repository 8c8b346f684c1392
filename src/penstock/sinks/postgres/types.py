"""Domains, composite types and names of all types, followed in a Postgres target.

The type of a table that an import has made meanwhile comes from the source as it is now: what is there already is left alone.

1. A change of a type is followed when all changes before it are applied, and before those that came after: their text has
   another shape.
2. A check or NOT NULL of a domain comes in at the end of the batch, if the domain has it then. The target may have values that
   the source does not have any more (columns and tables that were dropped there, tables whose import has not ended), so it is
   not validated where those are in the way.
3. A check that is not valid in the source does not come in: rows there may violate it, and change, for as long as the command
   that changes them does not touch the value.

Types of the source in a Postgres target: new names of types and of the labels of enums.

The type of a table that an import has made meanwhile comes from the source as it is now. Where a new name is there already,
what has the old one passes over to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import psycopg
from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.schema import type_kinds as kinds
from penstock.schema.definitions import Attribute, CompositeDefinition, DomainDefinition, EnumDefinition, TypeDefinition
from penstock.schema.log.row import LoggedCommand
from penstock.schema.target_names import fitted
from penstock.schema.type_ddl import collate, create_type
from penstock.schema.type_definition import CompositeAttribute, CompositeType
from penstock.schema.type_kinds import TypeChange
from penstock.schema.types import altered_type
from penstock.schema.words import in_words

_COLUMNS = """
SELECT n.nspname::text, c.relname::text, a.attname::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE a.atttypid = to_regtype(%s) AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""


def type_name(type_: TypeDefinition) -> sql.Identifier:
    return sql.Identifier(type_.schema, type_.name)


def type_exists(connection: Connection, name: sql.Identifier) -> bool:
    return connection.execute("SELECT to_regtype(%s) IS NOT NULL", [name.as_string()]).fetchone() == (True,)


def rename_label(connection: Connection, type_: EnumDefinition, before: str, after: str) -> None:
    name = type_name(type_)
    if not _has_label(connection, name, before):
        return
    if not _has_label(connection, name, after):
        rename = sql.SQL("ALTER TYPE {} RENAME VALUE {} TO {}")
        connection.execute(rename.format(name, sql.Literal(before), sql.Literal(after)))
        return
    for schema, table, column in connection.execute(_COLUMNS, [name.as_string()]).fetchall():
        connection.execute(
            sql.SQL("UPDATE {} SET {column} = {} WHERE {column} = {}").format(
                sql.Identifier(schema, table), sql.Literal(after), sql.Literal(before), column=sql.Identifier(column)
            )
        )


def rename_type(connection: Connection, type_: TypeDefinition, now: tuple[str, str]) -> None:
    """Of a type or of its schema, one at a time."""
    before, after = type_name(type_), sql.Identifier(*now)
    if not type_exists(connection, before):
        return
    if not type_exists(connection, after):
        what = sql.SQL("SET SCHEMA {}").format(sql.Identifier(now[0]))
        if now[0] == type_.schema:
            what = sql.SQL("RENAME TO {}").format(sql.Identifier(now[1]))
        connection.execute(sql.SQL("ALTER TYPE {} {}").format(before, what))
        return
    for schema, table, column in connection.execute(_COLUMNS, [before.as_string()]).fetchall():
        alter = sql.SQL(
            "ALTER TABLE {} ALTER {column} DROP DEFAULT, ALTER {column} TYPE {type} USING {column}::text::{type}"
        )
        connection.execute(alter.format(sql.Identifier(schema, table), column=sql.Identifier(column), type=after))


def _has_label(connection: Connection, name: sql.Identifier, label: str) -> bool:
    query = "SELECT 1 FROM pg_enum WHERE enumtypid = to_regtype(%s) AND enumlabel = %s"
    return connection.execute(query, [name.as_string(), label]).fetchone() is not None


logger = logging.getLogger(__name__)

_LATE = (kinds.AddDomainCheck, kinds.ValidateDomainCheck, kinds.SetDomainNotNull)
_IN_THE_WAY = (
    psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation,
    psycopg.errors.FeatureNotSupported,  # temporary tables of other sessions
    psycopg.errors.LockNotAvailable,
)  # fmt: skip


def follow_type(connection: Connection, change: TypeChange, make_type: Callable[[str], None]) -> None:
    """Step 1. ``make_type``: makes the type of this name that the target lacks, and those that it is made of."""
    if isinstance(change, kinds.CreateType) or not type_exists(connection, type_name(change.type)):
        return
    match change:
        case kinds.RenameEnumValue(type=enum, before=before, after=after):
            rename_label(connection, enum, before, after)
        case kinds.RenameType(type=type_, after=name):
            rename_type(connection, type_, (type_.schema, name))
        case kinds.MoveType(type=type_, after=schema):
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            rename_type(connection, type_, (schema, type_.name))
        case kinds.DropType(type=CompositeDefinition() | DomainDefinition() as type_):
            _let_go(connection, type_)
        case kinds.AddAttribute() | kinds.DropAttribute() | kinds.RenameAttribute() | kinds.RetypeAttribute():
            _follow_composite(connection, change, make_type)
        case kinds.DropDomainCheck() | kinds.RenameDomainCheck() | kinds.SetDomainDefault() | kinds.SetDomainNotNull():
            _follow_domain(connection, change)
        case _:
            return
    logger.info("The target follows: %s.", in_words(change))


class LateTypeChanges:
    """Step 2: what comes in at the end of a batch, as the domain is then."""

    def __init__(self, commands: Sequence[LoggedCommand]) -> None:
        self._noted: list[TypeChange] = []
        self._definitions = {type_.oid: type_.after for command in commands for type_ in command.parsed.types}

    def note(self, change: object) -> None:
        if isinstance(change, _LATE):
            self._noted.append(change)

    def changes(self) -> Iterator[TypeChange]:
        for change in self._noted:
            now = self._definitions.get(change.type.oid)
            if isinstance(now, DomainDefinition):
                yield from _as_it_is(change, now)


def _as_it_is(change: TypeChange, now: DomainDefinition) -> Iterator[TypeChange]:
    match change:
        case kinds.AddDomainCheck(check=check) | kinds.ValidateDomainCheck(check=check):
            yield from (kinds.AddDomainCheck(now, one) for one in now.checks if one.id == check.id and one.validated)
        case kinds.SetDomainNotNull(not_null=True) if now.not_null:
            yield kinds.SetDomainNotNull(now, True)


def restrict_domain(connection: Connection, change: TypeChange) -> None:
    """A check or NOT NULL comes in."""
    name = type_name(change.type)
    if not type_exists(connection, name):
        return
    if isinstance(change, kinds.AddDomainCheck) and not _has_check(connection, name, change.check.name):
        add = sql.SQL("ALTER DOMAIN {} ADD CONSTRAINT {} {} NOT VALID")
        check = sql.Identifier(change.check.name)
        connection.execute(add.format(name, check, sql.SQL(change.check.definition)))
        _try(connection, change, sql.SQL("ALTER DOMAIN {} VALIDATE CONSTRAINT {}").format(name, check))
    elif isinstance(change, kinds.SetDomainNotNull):
        _try(connection, change, sql.SQL("ALTER DOMAIN {} SET NOT NULL").format(name))


def _try(connection: Connection, change: TypeChange, statement: sql.Composed) -> None:
    """It looks at all values in the target, also at those that the source has no more."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '2s'")
            connection.execute(statement)
    except _IN_THE_WAY as error:
        logger.warning(
            "%s of the target has values that are in the way of the source's (%s): %s. Rows follow all the same.",
            change.type, in_words(change), (error.diag.message_primary or "").rstrip("."),
        )  # fmt: skip
    else:
        logger.info("The target follows: %s.", in_words(change))


def _follow_composite(connection: Connection, change: TypeChange, make_type: Callable[[str], None]) -> None:
    name, there = type_name(change.type), _attributes(connection, change.type)
    alter = sql.SQL("ALTER TYPE {} ").format(name)
    match change:
        case kinds.AddAttribute(attribute=new) if new.name not in there:
            make_type(new.type)
            add = sql.SQL("ADD ATTRIBUTE {} {}{} CASCADE")
            connection.execute(alter + add.format(sql.Identifier(new.name), sql.SQL(new.type), collate(new.collation)))
        case kinds.DropAttribute(attribute=gone) if gone.name in there:
            connection.execute(alter + sql.SQL("DROP ATTRIBUTE {} CASCADE").format(sql.Identifier(gone.name)))
        case kinds.RenameAttribute(before=before, after=after) if before in there and after not in there:
            names = sql.Identifier(before), sql.Identifier(after)
            connection.execute(alter + sql.SQL("RENAME ATTRIBUTE {} TO {} CASCADE").format(*names))
        case kinds.RetypeAttribute(after=new) if there.get(new.name) not in (None, new.type):
            make_type(new.type)
            _retype_attribute(connection, change, new)


def _retype_attribute(connection: Connection, change: kinds.RetypeAttribute, new: Attribute) -> None:
    """In the source no table has the type; in the target, columns and tables that were dropped there may have it."""
    retype = sql.SQL("ALTER TYPE {} ALTER ATTRIBUTE {} TYPE {}{} CASCADE")
    name = type_name(change.type)
    try:
        with connection.transaction():
            connection.execute(retype.format(name, sql.Identifier(new.name), sql.SQL(new.type), collate(new.collation)))
    except psycopg.errors.FeatureNotSupported:
        _set_aside(connection, change.type)
        now = altered_type(change.type, change)
        assert isinstance(now, CompositeDefinition)
        attributes = tuple(CompositeAttribute(one.name, one.type, one.collation) for one in now.attributes)
        connection.execute(create_type(CompositeType(now.oid, now.schema, now.name, attributes)))


def _follow_domain(connection: Connection, change: TypeChange) -> None:
    name = type_name(change.type)
    alter = sql.SQL("ALTER DOMAIN {} ").format(name)
    match change:
        case kinds.DropDomainCheck(check=check):
            connection.execute(alter + sql.SQL("DROP CONSTRAINT IF EXISTS {}").format(sql.Identifier(check.name)))
        case kinds.RenameDomainCheck(before=before, after=after):
            if _has_check(connection, name, before) and not _has_check(connection, name, after):
                names = sql.Identifier(before), sql.Identifier(after)
                connection.execute(alter + sql.SQL("RENAME CONSTRAINT {} TO {}").format(*names))
        case kinds.SetDomainDefault(expression=None):
            connection.execute(alter + sql.SQL("DROP DEFAULT"))
        case kinds.SetDomainDefault(expression=str() as expression):
            connection.execute(alter + sql.SQL("SET DEFAULT " + expression))
        case kinds.SetDomainNotNull(not_null=False):
            connection.execute(alter + sql.SQL("DROP NOT NULL"))


def _let_go(connection: Connection, type_: TypeDefinition) -> None:
    """A new one of its name is another one. Where a column that was kept has it, it gets another name."""
    try:
        with connection.transaction():
            connection.execute(sql.SQL("DROP TYPE {}").format(type_name(type_)))
    except psycopg.errors.DependentObjectsStillExist:
        _set_aside(connection, type_)


def _set_aside(connection: Connection, type_: TypeDefinition) -> None:
    names = (fitted(type_.name, f"__before_{number}") for number in count(1))
    aside = next(name for name in names if not type_exists(connection, sql.Identifier(type_.schema, name)))
    connection.execute(sql.SQL("ALTER TYPE {} RENAME TO {}").format(type_name(type_), sql.Identifier(aside)))
    logger.warning("Type %s is still in use in the target as it was before. It is called %s now.", type_, aside)


def _attributes(connection: Connection, type_: TypeDefinition) -> dict[str, str]:
    """With their types."""
    query = (
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_type t "
        "JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped WHERE t.oid = to_regtype(%s)"
    )
    return dict(connection.execute(query, [type_name(type_).as_string()]).fetchall())


def _has_check(connection: Connection, domain: sql.Identifier, name: str) -> bool:
    query = "SELECT 1 FROM pg_constraint WHERE contypid = to_regtype(%s) AND conname = %s"
    return connection.execute(query, [domain.as_string(), name]).fetchone() is not None
