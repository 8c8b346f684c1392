"""Columns of a Postgres target, made to fit what the changes of a table show of them."""

from __future__ import annotations

import logging
from itertools import count

from psycopg import sql

from penstock.changes import Column, Relation
from penstock.postgres.connection import Connection
from penstock.postgres.target_names import fitted
from penstock.sinks.postgres_target import Target

logger = logging.getLogger(__name__)


# The type of the column that is there is the user's own, and there is none of the other name.
_IS_RENAMED = "SELECT to_regtype(%s) IS NULL AND to_regtype(%s)::oid >= 16384"
_FIRST_OWN_OID = 16384


def fit(connection: Connection, target: Target, column: Column) -> list[sql.Composed]:
    """The parts of an ALTER TABLE; none if it fits."""
    there, name, type = target.column(column.name), sql.Identifier(column.name), sql.SQL(column.type_name)
    if there is None:
        return [sql.SQL("ADD COLUMN {} {}").format(name, type)]
    if not is_retyped(target, column) or _has_other_name(connection, there.type, column):
        return []
    return [sql.SQL("ALTER COLUMN {} TYPE {} USING {}::text::{}").format(name, type, name, type)]


def is_retyped(target: Target, column: Column) -> bool:
    there = target.column(column.name)
    return there is not None and not there.generated and there.type != column.type_name


def _has_other_name(connection: Connection, there: str, column: Column) -> bool:
    """Whether the type is the one that is there. Changes may call it by a name that it got later, or had before: a Relation
    message has the type's oid alone, and the new name of a type is followed when the schema log tells of it."""
    if column.type_oid < _FIRST_OWN_OID:
        return False
    return connection.execute(_IS_RENAMED, [column.type_name, there]).fetchone() == (True,)


class GoneColumns:
    """Those that went from the source and stayed in the target, as far as the changes have shown it."""

    def __init__(self) -> None:
        self._names: dict[int, set[str]] = {}  # by the table's oid

    def make_room(self, connection: Connection, before: Relation, now: Relation, target: Target) -> bool:
        """One that went gives way to a new one of its name: its values are none of the new one's. False: none had to."""
        gone = self._names.setdefault(now.oid, set())
        gone |= before.columns_by_name.keys() - now.columns_by_name.keys()
        new = now.columns_by_name.keys() - before.columns_by_name.keys()
        back = [name for name in sorted(gone & new) if target.column(name) is not None]
        for name in back:
            set_aside(connection, target, name, _free_number(target, name))
        return bool(back)


def set_aside(connection: Connection, target: Target, name: str, number: int) -> None:
    """A column that the source has no more gives its name away."""
    aside = fitted(name, f"__before_{number}")
    alter = sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")
    connection.execute(alter.format(target.name, sql.Identifier(name), sql.Identifier(aside)))
    logger.warning("Column %s of %s, which the source has no more, is called %s now.", name, target.table, aside)


def _free_number(target: Target, name: str) -> int:
    return next(number for number in count(1) if target.column(fitted(name, f"__before_{number}")) is None)
