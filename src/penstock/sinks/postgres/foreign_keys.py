"""Changes applied to a target whose foreign keys are at work: for a role that may not set session_replication_role.

The source's transactions kept every foreign key, but a batch holds many of them, reduced to one row per key, and its tables
are written one after the other. So, for all tables of a batch together:

1. Children first, rows that go are deleted. One that a row still refers to stays for now: that row will refer to another.
2. Parents first, rows are written.
3. Children first, what stayed in step 1 is deleted.

A constraint that is DEFERRABLE is deferred: it is checked when all is done. What still violates one (tables that refer to
each other in a circle) is refused, with the constraint's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import LiteralString

import psycopg
from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.sinks.mirror.changes import since_truncate
from penstock.sinks.postgres.changes import Applier, TableChanges, TargetOf, by_table
from penstock.sinks.postgres.staging import StagedChanges
from penstock.sinks.postgres.target import Target

# Of a partitioned table, the constraint of the whole.
_FOREIGN_KEYS = """
SELECT conrelid::bigint, nspname, relname, confrelid::bigint, condeferrable AND confdeltype = 'a', condeferrable,
    array(SELECT attname::text FROM unnest(conkey) WITH ORDINALITY k (number, place)
        JOIN pg_attribute ON attrelid = conrelid AND attnum = number ORDER BY place),
    array(SELECT attname::text FROM unnest(confkey) WITH ORDINALITY k (number, place)
        JOIN pg_attribute ON attrelid = confrelid AND attnum = number ORDER BY place)
FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE contype = 'f' AND conparentid = 0 AND (conrelid = ANY (%(oids)s) OR confrelid = ANY (%(oids)s))
"""
# Whose tables the role may alter.
_REFERRING = """
SELECT nspname, relname, conname, pg_get_constraintdef(k.oid), convalidated
FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE contype = 'f' AND confrelid = %s AND conrelid <> confrelid AND relkind = 'r' AND conparentid = 0
    AND pg_has_role(relowner, 'USAGE')
"""


@dataclass(frozen=True)
class ForeignKey:
    child: int  # the oid of the table that refers
    schema: str
    table: str
    parent: int
    delete_waits: bool  # a row may go while others refer to it: looked at when all is done
    waits: bool  # a row may come before the one that it refers to
    columns: Sequence[str]
    parent_columns: Sequence[str]

    def refers_to(self, parent: str, but: sql.Composable) -> sql.Composed:
        """Whether a row of the child refers to the one at hand, which is called ``parent`` in the statement."""
        same = sql.SQL(" AND ").join(
            sql.SQL("r.{} = {}.{}").format(sql.Identifier(ours), sql.Identifier(parent), sql.Identifier(theirs))
            for ours, theirs in zip(self.columns, self.parent_columns, strict=True)
        )
        return sql.SQL("EXISTS (SELECT FROM {} r WHERE {}{})").format(
            sql.Identifier(self.schema, self.table), same, but
        )


def foreign_keys(connection: Connection, oids: Sequence[int]) -> list[ForeignKey]:
    """Those of these tables, and those that refer to them."""
    return [ForeignKey(*row) for row in connection.execute(_FOREIGN_KEYS, {"oids": list(oids)})]


def parents_first(oids: Sequence[int], keys: Iterable[ForeignKey]) -> list[int]:
    """The tables in an order in which each comes after those it refers to. In a circle, constraints that can wait do."""
    parents: dict[int, set[int]] = {oid: set() for oid in oids}
    at_once: dict[int, set[int]] = {oid: set() for oid in oids}
    for key in keys:
        if key.child in parents and key.parent in parents and key.child != key.parent:
            parents[key.child].add(key.parent)
            if not key.waits:
                at_once[key.child].add(key.parent)
    ordered: list[int] = []
    left = list(oids)
    while left:
        free = (
            [oid for oid in left if not parents[oid] & set(left)]
            or [oid for oid in left if not at_once[oid] & set(left)][:1]
            or left[:1]
        )
        ordered += free
        left = [oid for oid in left if oid not in free]
    return ordered


class OrderedApplier(Applier):
    """Applies a batch in the three steps above."""

    def apply(self, staged: Sequence[StagedChanges], target_of: TargetOf, *, where_known: bool = False) -> None:
        self._connection.execute("SET CONSTRAINTS ALL DEFERRED")
        groups = by_table(staged)
        names = {changes.relation for group in groups for changes in group}
        distinct = min(len({(r.schema, r.table) for r in names}), len({r.oid for r in names}))
        if where_known or len(names) > distinct:
            # Into the table of an import, which has no foreign keys. Or a name has passed from one table to another, or a
            # table from one name to another, which has an order of its own.
            super().apply(staged, target_of, where_known=where_known)
            return
        for turn in _turns(groups):
            self._apply_turn(turn, target_of)

    def _apply_turn(self, groups: list[list[StagedChanges]], target_of: TargetOf) -> None:
        targets = [target_of(self._connection, group[0].relation) for group in groups]
        keys = foreign_keys(self._connection, [target.oid for target in targets])
        tables = {target.oid: _Table(self, target, group, keys) for target, group in zip(targets, groups, strict=True)}
        order = [tables[oid] for oid in parents_first(list(tables), keys)]
        for table in order:
            table.fill()
        for table in reversed(order):
            table.delete()
        for table in order:
            table.write()
        for table in reversed(order):
            table.delete_rest()

    def empty(self, target: Target) -> None:
        self._empty(target)


def _turns(groups: list[list[StagedChanges]]) -> Iterator[list[list[StagedChanges]]]:
    """Changes of a table that one task cut in pieces concern the same rows: one turn after the other."""
    last = max((change.turn for group in groups for change in group), default=-1)
    for turn in range(last + 1):
        found = [[change for change in group if change.turn == turn] for group in groups]
        yield [group for group in found if group]


class _Table:
    """All changes of one table, in one turn. Those of different tasks concern different rows."""

    def __init__(
        self, applier: OrderedApplier, target: Target, changes: list[StagedChanges], keys: Sequence[ForeignKey]
    ) -> None:
        self._applier, self._target = applier, target
        self._truncated_at, valid_changes = since_truncate(changes)
        referring = tuple(key for key in keys if key.parent == target.oid and not key.delete_waits)
        refers_to_itself = any(key.child == key.parent == target.oid and not key.waits for key in keys)
        self._parts = [
            OrderedTableChanges(applier, target, change, False, referring, refers_to_itself) for change in valid_changes
        ]

    def fill(self) -> None:
        for part in self._parts:
            part.fill()

    def delete(self) -> None:
        if self._truncated_at is not None:
            self._applier.empty(self._target)
        for part in self._parts:
            part.delete()

    def write(self) -> None:
        """Rows that change are in one place, those of all parts."""
        first, *others = self._parts
        for other in others:
            first.take_over(other)
        for part in self._parts:
            part.write()

    def delete_rest(self) -> None:
        for part in self._parts:
            part.delete_rest()


@dataclass
class OrderedTableChanges(TableChanges):
    """``referring``: the foreign keys that look at once whether a row may go."""

    referring: tuple[ForeignKey, ...] = ()
    refers_to_itself: bool = False
    _held: sql.Identifier | None = field(default=None, init=False)

    def take_over(self, other: OrderedTableChanges) -> None:
        if other._updates is not None:
            self._updates, self._count = other._updates, self._count + other._count
            other._updates, other._count = None, 0

    def write(self) -> None:
        """A row that changes may refer to a new one of the same table."""
        if self.refers_to_itself:
            self._write_inserts()
            self._write_updates()
        else:
            super().write()

    def _delete_gone(self, gone: sql.Identifier) -> None:
        if self.referring:
            self._hold_back(gone)
        super()._delete_gone(gone)

    def _hold_back(self, gone: sql.Identifier) -> None:
        """Rows that are still referred to move to a table of their own; with them those that they themselves refer to."""
        columns = self._c(self._relation.key_indexes)
        held = self._held = self.applier.temporary(self.target, "held", columns)
        names = sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(alias)) for alias, _ in columns)
        stays = sql.SQL(" AND NOT EXISTS (SELECT FROM {} g WHERE {})").format(
            gone,
            sql.SQL(" AND ").join(
                sql.SQL("r.{} = g.{}").format(sql.Identifier(name), sql.Identifier(alias)) for alias, name in columns
            ),
        )
        statement = sql.SQL(
            "WITH held AS (DELETE FROM {gone} s USING {target} t WHERE {same} AND ({referred_to}) RETURNING {names}) "
            "INSERT INTO {held} SELECT * FROM held"
        ).format(
            gone=gone, target=self.target.rows, same=self._same(), names=names, held=held,
            referred_to=sql.SQL(" OR ").join(
                key.refers_to("t", stays if key.child == self.target.oid else sql.SQL("")) for key in self.referring
            ),
        )  # fmt: skip
        while self.applier.execute(statement):
            pass

    def _may_go(self) -> sql.Composable:
        """Not those that are referred to: they are updated where they are."""
        return sql.SQL("").join(
            sql.SQL(" AND NOT {}").format(key.refers_to("t", sql.SQL(""))) for key in self.referring
        )

    def delete_rest(self) -> None:
        if self._held is not None:
            TableChanges._delete_gone(self, self._held)
            self.applier.execute(sql.SQL("DELETE FROM {}").format(self._held))


def merge(connection: Connection, into: Target, rows: Target, columns: Sequence[str], key: Sequence[str]) -> None:
    """Makes a table's rows equal to those of another one. Rows that both have stay: others may refer to them."""
    connection.execute("SET CONSTRAINTS ALL DEFERRED")
    same = into.same([(name, name) for name in key], "s")
    names = _each("{0}", ", ", columns)
    with _others_may_be_behind(connection, into):
        connection.execute(
            sql.SQL("DELETE FROM {} t WHERE NOT EXISTS (SELECT FROM {} s WHERE {})").format(into.rows, rows.name, same)
        )
        if others := [column for column in columns if column not in key]:
            connection.execute(
                sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {} AND ({})").format(
                    into.rows, _each("{0} = s.{0}", ", ", others), rows.name, same,
                    _each("t.{0}::text IS DISTINCT FROM s.{0}::text", " OR ", others),
                )
            )  # fmt: skip
        connection.execute(
            sql.SQL(
                "INSERT INTO {into} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM {rows} s "
                "WHERE NOT EXISTS (SELECT FROM {there} t WHERE {same})"
            ).format(into=into.name, there=into.rows, names=names, rows=rows.name, same=same)
        )


@contextmanager
def _others_may_be_behind(connection: Connection, parent: Target) -> Iterator[None]:
    """Tables that refer to this one may be behind it, and refer to rows that are gone; what they get later makes it good.

    So their constraints are made anew, and not valid until then: where the role may do so, that is for tables of its own.
    """
    found = connection.execute(_REFERRING, [parent.oid]).fetchall()
    constraints = [(sql.Identifier(schema, table), sql.Identifier(name), *rest) for schema, table, name, *rest in found]
    for child, name, *_ in constraints:
        connection.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(child, name))
    yield
    if constraints:
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks to come cannot be altered
    for child, name, definition, is_valid in constraints:
        not_valid = sql.SQL(" NOT VALID" if is_valid else "")
        add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}{}")
        connection.execute(add.format(child, name, sql.SQL(definition), not_valid))
        if is_valid:
            with suppress(psycopg.errors.ForeignKeyViolation), connection.transaction():
                connection.execute(sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(child, name))


def _each(template: LiteralString, between: LiteralString, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(between).join(sql.SQL(template).format(sql.Identifier(column)) for column in columns)
