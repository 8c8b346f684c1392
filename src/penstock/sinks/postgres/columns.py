"""Columns of a Postgres target, made to fit what the changes of a table show of them.

A column that has another type in the source now, in a Postgres target. Its values follow by Postgres's own cast.

Where the source computed them (USING) and no cast gives anything, they are let go, if an import is to bring the new ones:
a column has NULL until then, and a table whose key it is in no rows.

``TRUNCATE … RESTART IDENTITY`` in the source: the sequences that the target's table owns start again as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import count

import psycopg
from psycopg import sql

from penstock.changes.batch import Column, Relation
from penstock.postgres.connection import Connection
from penstock.schema import kinds
from penstock.schema.kinds import SchemaChange
from penstock.schema.target_names import fitted
from penstock.sinks.mirror.schema_following import column_of, is_same_cast
from penstock.sinks.postgres.staging import StagedChanges
from penstock.sinks.postgres.target import Target

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


# Owned by a column: of an identity column internally (i), of a serial one automatically (a).
_OWNED = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, seqstart, has_sequence_privilege(c.oid, 'UPDATE')
FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S' JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_sequence ON seqrelid = c.oid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
    AND d.refobjid IN (SELECT %(oid)s::bigint::oid UNION ALL SELECT relid FROM pg_partition_tree(%(oid)s::bigint::oid))
"""


def restart_sequences(
    connection: Connection, staged: Iterable[StagedChanges], target_of: Callable[[Relation], Target | None]
) -> bool:
    """Those of the tables that these changes truncate with RESTART IDENTITY, once the changes are applied. False: of none.

    Each starts where its own definition in the target says, as with Postgres's own subscriptions. ``setval`` needs no
    ownership and no lock. It is not undone with the transaction, but a batch that is rolled back comes again.
    """
    latest: dict[int, StagedChanges] = {}
    restarted = set()
    for change in staged:
        oid = change.relation.oid
        if oid not in latest or change.last_at >= latest[oid].last_at:
            latest[oid] = change
        if change.restarts_identity:
            restarted.add(oid)
    for oid in sorted(restarted):
        target = target_of(latest[oid].relation)
        if target is not None:
            _restart(connection, target)
    return bool(restarted)


def _restart(connection: Connection, target: Target) -> None:
    for oid, schema, name, start, may_set in connection.execute(_OWNED, {"oid": target.oid}).fetchall():
        if may_set:
            connection.execute("SELECT setval(%s::bigint::oid::regclass, %s, false)", [oid, start])
        else:
            grant = sql.SQL("GRANT UPDATE ON SEQUENCE {} TO {}").format(
                sql.Identifier(schema, name), sql.Identifier(connection.info.user)
            )
            logger.warning(
                "%s.%s was truncated with RESTART IDENTITY in the source. The role may not set its sequence %s.%s in the "
                "target, which stays as it is. For the next time, run there: %s.",
                target.schema, target.table, schema, name, grant.as_string(),
            )  # fmt: skip
