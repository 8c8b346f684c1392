"""Types of the source in a Postgres target: new names of types and of the labels of enums.

The type of a table that an import has made meanwhile comes from the source as it is now. Where a new name is there already,
what has the old one passes over to it.
"""

from __future__ import annotations

from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.schema_changes.type_definitions import EnumDefinition, TypeDefinition

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
