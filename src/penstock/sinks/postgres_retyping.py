"""A column that has another type in the source now, in a Postgres target. Its values follow by Postgres's own cast.

Where the source computed them (USING) and no cast gives anything, they are let go, if an import is to bring the new ones:
a column has NULL until then, and a table whose key it is in no rows.
"""

from __future__ import annotations

import logging

import psycopg
from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.schema_changes import kinds
from penstock.schema_changes.kinds import SchemaChange
from penstock.sinks.exact_retyping import is_same_cast
from penstock.sinks.logged_columns import column_of
from penstock.sinks.postgres_target import Target

logger = logging.getLogger(__name__)

_IN_KEY = """
SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indisprimary AND i.indrelid = %s AND a.attname = %s
"""


def follows_exactly(change: SchemaChange) -> bool:
    """Whether rows have the source's values when the change is followed: not by a cast that depends on a session's settings,
    which are others in the source."""
    if isinstance(change, kinds.RetypeColumn):
        return is_same_cast(column_of(change.before), column_of(change.after))
    return True


def retype(connection: Connection, target: Target, change: kinds.RetypeColumn, imports: bool) -> None:
    """``imports``: a table whose values the source computed anew is imported again."""
    there = target.column(change.before.name)
    if change.same_type or there is None or there.generated or there.type == change.after.type:
        return
    name, type_ = sql.Identifier(there.name), sql.SQL(change.after.type)
    collate = sql.SQL("COLLATE " + change.after.collation) if change.after.collation else sql.SQL("")
    alter = sql.SQL("ALTER COLUMN {} TYPE {} {}").format(name, type_, collate)
    drop = sql.SQL("ALTER COLUMN {} DROP DEFAULT, ").format(name)
    by_text = drop + alter + sql.SQL(" USING {}::text::{}").format(name, type_)
    try:
        try:
            _alter(connection, target, alter)
        except (psycopg.errors.DatatypeMismatch, psycopg.errors.CannotCoerce):
            _alter(connection, target, by_text)
    except psycopg.DataError:
        if not imports:
            raise
        _let_values_go(connection, target, there.name)
        _alter(connection, target, by_text)


def _let_values_go(connection: Connection, target: Target, column: str) -> None:
    of_key = connection.execute(_IN_KEY, [target.oid, column]).fetchone() is not None
    logger.warning(
        "%s of %s.%s in the target cannot become what the source made of it; until the table is imported again, %s.",
        column, target.schema, target.table, "it has no rows" if of_key else "that is NULL",
    )  # fmt: skip
    if of_key:
        connection.execute(sql.SQL("DELETE FROM {}").format(target.name))
    else:
        name = sql.Identifier(column)
        _alter(connection, target, sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(name))
        connection.execute(sql.SQL("UPDATE {} SET {} = NULL").format(target.name, name))


def _alter(connection: Connection, target: Target, what: sql.Composable) -> None:
    with connection.transaction():
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(target.name, what))
