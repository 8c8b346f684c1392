"""Tables of the target made from what the stream says of the source's: columns, types and key."""

from __future__ import annotations

from psycopg import sql

from penstock.changes import Relation
from penstock.postgres.connection import Connection

_NAME_BYTES = 63


class RelationShapes:
    """Columns with their types, and the key."""

    def create(self, connection: Connection, relation: Relation, schema: str, table: str, keyed: bool) -> None:
        connection.execute(_create_schema(connection, schema))
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type_name))
            for column in relation.columns
        ]
        if keyed and relation.key:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(_key(relation)))
        connection.execute(
            sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(schema, table), sql.SQL(", ").join(parts))
        )

    def index(self, connection: Connection, relation: Relation, schema: str, table: str) -> None:
        if relation.key:
            connection.execute(
                sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(sql.Identifier(schema, table), _key(relation))
            )

    def settle(self, connection: Connection, relation: Relation, schema: str, table: str) -> None:
        """The key gets the name that Postgres would have given it."""
        row = connection.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'",
            [sql.Identifier(schema, table).as_string(connection)],
        ).fetchone()
        wanted = _cut(table, "_pkey")
        if row is not None and row[0] != wanted:
            connection.execute(
                sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}").format(
                    sql.Identifier(schema, table), sql.Identifier(row[0]), sql.Identifier(wanted)
                )
            )


def _key(relation: Relation) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, relation.key))


def _create_schema(connection: Connection, schema: str) -> sql.Composed:
    """Looked up first: CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where it exists."""
    there = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema]).fetchone()
    if there is not None:
        return sql.SQL("SELECT").format()
    return sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema))


def _cut(table: str, suffix: str) -> str:
    """As Postgres cuts names that would be too long: whole characters, at the end of the table's name."""
    return table.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore") + suffix
