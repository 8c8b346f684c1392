"""Staged changes, applied to the tables of a Postgres target, inside the caller's transaction.

Rows reach the server by COPY: new ones go straight into their table; all others into a temporary table of the same types,
which one statement then applies. For each part of a table's changes, in order:

1. Values that Postgres did not send again (unchanged TOAST) are taken from the target as it is before anything goes.
2. Rows that go are deleted, and of those that change a value which is unique by something else than the key, the old
   versions: two rows may have swapped such values.
3. The other rows that change are updated; what is not there is inserted.

Where several parts concern one table with such values, step 2 is done for all of them before: a value may pass from a row of
one part to a row of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from psycopg import sql

from penstock.changes.batch import Relation
from penstock.postgres.connection import Connection
from penstock.sinks.mirror.changes import last_at, missing_row, since_truncate
from penstock.sinks.postgres.refusals import RowRefused
from penstock.sinks.postgres.staging import Lines, StagedChanges, pieces
from penstock.sinks.postgres.target import Target, is_referenced, listed

TargetOf = Callable[[Connection, Relation], Target]


class Applier:
    """Applies changes through one connection. Its temporary tables stay, empty, for the next batch."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._temporary: dict[tuple[object, ...], sql.Identifier] = {}

    def apply(self, staged: Sequence[StagedChanges], target_of: TargetOf, *, where_known: bool = False) -> None:
        """All changes of a batch. ``where_known``: those of an import, whose rows were read at different times."""
        for changes in by_table(staged):
            self._apply_table(changes, target_of, where_known)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """All that is done herein is undone when an error leaves it; temporary tables that were made go as well."""
        before = dict(self._temporary)
        try:
            with self._connection.transaction():
                yield
        except BaseException:
            self._temporary = before
            raise

    def tidy(self) -> None:
        """Rows that attempts have left in temporary tables, unseen but in the way of whoever reads these."""
        if self._temporary:
            self._connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(self._temporary.values())))

    def clear(self, change: StagedChanges, target: Target) -> None:
        """Only what would make room: rows that go, and the old versions of rows that change a unique value."""
        TableChanges(self, target, change, False).clear()

    def _apply_table(self, changes: list[StagedChanges], target_of: TargetOf, where_known: bool) -> None:
        truncated_at, changes = since_truncate(changes)
        if truncated_at is not None:
            self._empty(target_of(self._connection, changes[0].relation))
        for relation, some in groupby(changes, key=lambda change: change.relation):
            target = target_of(self._connection, relation)
            parts = [TableChanges(self, target, change, where_known) for change in some]
            if len(parts) > 1 and target.unique_besides(relation.key) and not any(part.keeps for part in parts):
                for part in parts:
                    part.clear()
            for part in parts:
                part.fill()
                part.delete()
                part.write()

    def _empty(self, target: Target) -> None:
        """TRUNCATE would also empty, or be refused because of, tables that refer to this one."""
        verb = sql.SQL("DELETE FROM {}") if is_referenced(self._connection, target) else sql.SQL("TRUNCATE {}")
        self._connection.execute(verb.format(target.rows))

    def copy(self, into: sql.Identifier, columns: Sequence[sql.Identifier], lines: Sequence[pa.Array]) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(into, sql.SQL(", ").join(columns))
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for array in lines:
                for piece in pieces(array):
                    copy.write(piece)

    def execute(self, statement: sql.Composed) -> int:
        return self._connection.execute(statement).rowcount

    def query(self, statement: sql.Composed) -> tuple[object, ...] | None:
        return self._connection.execute(statement).fetchone()

    def temporary(
        self, target: Target, kind: str, columns: Sequence[tuple[str, str]], may_lack: Collection[str] = ()
    ) -> sql.Identifier:
        """A table of this session with these columns: their names, and what they are in the target; "" for bits.

        ``may_lack``: columns that may be NULL, which a domain may forbid.
        """
        key = (target.oid, kind, target.columns, tuple(columns), tuple(may_lack))
        known = self._temporary.get(key)
        if known is None:
            name = f"penstock_{len(self._temporary)}"
            values = sql.SQL(", ").join(
                sql.SQL("NULL::pg_catalog.varbit AS {}").format(sql.Identifier(alias))
                if not of
                else sql.SQL("{} AS {}").format(target.staged(of, alias in may_lack), sql.Identifier(alias))
                for alias, of in columns
            )
            self._connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA").format(
                    sql.Identifier(name), values, target.name
                )
            )
            known = self._temporary[key] = sql.Identifier("pg_temp", name)
        return known


@dataclass
class TableChanges:
    """Changes of one table, and where they are on the server."""

    applier: Applier
    target: Target
    change: StagedChanges
    where_known: bool

    def __post_init__(self) -> None:
        self._updates: sql.Identifier | None = None
        self._count = 0

    @property
    def keeps(self) -> bool:
        return self.change.partly_kept is not None

    def fill(self) -> None:
        """Step 1."""
        if self.change.partly_kept:
            self._fill_kept(self.change.partly_kept)

    @property
    def _relation(self) -> Relation:
        return self.change.relation

    def _c(self, indexes: Iterable[int], prefix: str = "c") -> list[tuple[str, str]]:
        return [(f"{prefix}{index}", self._relation.columns[index].name) for index in indexes]

    @property
    def _all(self) -> list[tuple[str, str]]:
        return self._c(range(len(self._relation.columns)))

    def _staged(
        self, kind: str, columns: list[tuple[str, str]], lines: Sequence[pa.Array], may_lack: Collection[str] = ()
    ) -> sql.Identifier:
        table = self.applier.temporary(self.target, kind, columns, may_lack)
        self.applier.copy(table, [sql.Identifier(alias) for alias, _ in columns], lines)
        return table

    def _same(self, prefix: str = "c") -> sql.Composed:
        return self.target.same(self._c(self._relation.key_indexes, prefix), "s")

    def _stage_updates(self) -> sql.Identifier:
        """For the rows that change."""
        if self._updates is None:
            self._updates = self.applier.temporary(self.target, "updates", self._all)
        return self._updates

    def _fill_kept(self, lines: Lines) -> None:
        """Group by group of the columns, so that no step of the statement has more of them than Postgres takes (1,664)."""
        change = self.change
        partly = self._staged("partly", self._c(change.never_kept), lines.open())
        groups = [self._stage_group(number, group, lines) for number, group in enumerate(change.kept_groups)]
        updates = self._stage_updates()
        if not self.where_known:
            self._refuse_missing(groups[0])
        place = dict.fromkeys(change.never_kept, "p")
        filled = []
        for number, (table, group) in enumerate(zip(groups, change.kept_groups, strict=True)):
            place |= dict.fromkeys(group, f"f{number}")
            own = self.target.same(self._c(self._relation.key_indexes), f"f{number}", "p", aliased=True)
            filled.append(
                sql.SQL("JOIN ({}) {} ON {}").format(self._filled(table, group), sql.Identifier(f"f{number}"), own)
            )
        self._count += self.applier.execute(
            sql.SQL("INSERT INTO {updates} ({names}) SELECT {values} FROM {partly} p {filled}").format(
                updates=updates, partly=partly, filled=sql.SQL(" ").join(filled),
                names=sql.SQL(", ").join(sql.Identifier(alias) for alias, _ in self._all),
                values=sql.SQL(", ").join(sql.Identifier(place[index], f"c{index}") for index in range(len(place))),
            )
        )  # fmt: skip
        for table in (partly, *groups):
            self.applier.execute(sql.SQL("DELETE FROM {}").format(table))

    def _stage_group(self, number: int, group: Sequence[int], lines: Lines) -> sql.Identifier:
        key, columns = self._relation.key_indexes, self._c(group)
        every = [*self._c(key), *self._c(key, "k"), ("marks", ""), *columns]
        return self._staged(f"kept{number}", every, lines.open_kept(number), [alias for alias, _ in columns])

    def _filled(self, staged: sql.Identifier, group: Sequence[int]) -> sql.Composed:
        """A query: the columns of the group, with the target's values where those are kept, and the key."""
        # During an import the row may have been read under the key that it has now; see sinks/contract.py.
        looks = sql.SQL("({}) OR ({})").format(self._same("k"), self._same()) if self.where_known else self._same("k")
        own = sql.SQL(", ").join(
            sql.SQL("s.{}").format(sql.Identifier(f"c{index}")) for index in self._relation.key_indexes
        )
        values = sql.SQL(", ").join(
            sql.SQL("CASE WHEN get_bit(s.marks, {0}) = 1 THEN t.{1} ELSE s.{2} END AS {2}").format(
                sql.SQL(str(bit)), sql.Identifier(name), sql.Identifier(alias)
            )
            for bit, (alias, name) in enumerate(self._c(group))
        )
        return sql.SQL(
            "SELECT DISTINCT ON ({own}) {own}, {values} FROM {staged} s JOIN {target} t ON {looks} "
            "ORDER BY {own}, ({under_kept}) DESC"
        ).format(
            own=own, values=values, staged=staged, target=self.target.rows, looks=looks, under_kept=self._same("k")
        )

    def _refuse_missing(self, keys: sql.Identifier) -> None:
        key = self._relation.key_indexes
        shown = sql.SQL(", ").join(sql.SQL("s.{}::text").format(sql.Identifier(f"k{index}")) for index in key)
        missing = self.applier.query(
            sql.SQL("SELECT {} FROM {} s WHERE NOT EXISTS (SELECT FROM {} t WHERE {}) LIMIT 1").format(
                shown, keys, self.target.rows, self._same("k")
            )
        )
        if missing:
            raise RowRefused(*missing_row(self._relation, missing, self.change.kept))

    def delete(self) -> None:
        """Step 2."""
        if self.change.deletes:
            gone = self._staged("deletes", self._c(self._relation.key_indexes), self.change.deletes.open())
            self._delete_gone(gone)
            self.applier.execute(sql.SQL("DELETE FROM {}").format(gone))
        if self.change.removed:
            self._remove_equal_rows(self.change.removed)
        if self.change.bare_rows < 0:
            self._remove_any_rows(-self.change.bare_rows)
        if self.change.updates:
            self._staged("updates", self._all, self.change.updates.open())
            self._count += self.change.updates.count
            self._stage_updates()
        if self._updates is not None:
            self._delete_former_versions(self._updates)

    def _delete_gone(self, gone: sql.Identifier) -> None:
        self.applier.execute(
            sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(self.target.rows, gone, self._same())
        )

    def _may_go(self) -> sql.Composable:
        """Which old versions of rows may be deleted, to be inserted again: a condition, with its AND."""
        return sql.SQL("")

    def _delete_former_versions(self, updates: sql.Identifier) -> None:
        unique = set(self.target.unique_besides(self._relation.key))
        changed = sql.SQL(" OR ").join(
            sql.SQL("t.{}::text IS DISTINCT FROM s.{}::text").format(sql.Identifier(name), sql.Identifier(alias))
            for alias, name in self._all
            if name in unique
        )
        if changed.as_string():
            self.applier.execute(
                sql.SQL("DELETE FROM {} t USING {} s WHERE {} AND ({}){}").format(
                    self.target.rows, updates, self._same(), changed, self._may_go()
                )
            )

    def clear(self) -> None:
        """Step 2, ahead of the others' steps."""
        self.delete()
        if self._updates is not None:
            self.applier.execute(sql.SQL("DELETE FROM {}").format(self._updates))
        self._updates, self._count = None, 0

    def write(self) -> None:
        """Step 3."""
        self._write_updates()
        self._write_inserts()

    def _write_updates(self) -> None:
        if self._updates is not None:
            self._update(self._updates)
            self.applier.execute(sql.SQL("DELETE FROM {}").format(self._updates))

    def _write_inserts(self) -> None:
        if self.change.inserts:
            self._insert(self.change.inserts)
        if self.change.bare_rows > 0:
            count = sql.SQL(str(self.change.bare_rows))
            insert = sql.SQL("INSERT INTO {} SELECT FROM generate_series(1, {})")
            self.applier.execute(insert.format(self.target.name, count))

    def _update(self, updates: sql.Identifier) -> None:
        key = self._relation.key_indexes
        writable = self.target.writable(self._relation)
        values = sql.SQL(", ").join(
            sql.SQL("{} = s.{}").format(sql.Identifier(self._relation.columns[index].name), sql.Identifier(f"c{index}"))
            for index in writable
            if index not in key
        )
        found = 0
        if values.as_string():
            found = self.applier.execute(
                sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {}").format(self.target.rows, values, updates, self._same())
            )
        if found < self._count:
            self._insert_from(updates, writable, missing_only=True)

    def _insert(self, lines: Lines) -> None:
        relation, target = self._relation, self.target
        writable = target.writable(relation)
        if len(writable) == len(relation.columns):
            names = [sql.Identifier(column.name) for column in relation.columns]
            self.applier.copy(target.name, names, lines.open())
            return
        inserts = self._staged("inserts", self._all, lines.open())
        self._insert_from(inserts, writable, missing_only=False)
        self.applier.execute(sql.SQL("DELETE FROM {}").format(inserts))

    def _insert_from(self, staged: sql.Identifier, writable: Sequence[int], missing_only: bool) -> None:
        names = listed([self._relation.columns[index].name for index in writable])
        values = sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(f"c{index}")) for index in writable)
        missing = sql.SQL(" WHERE NOT EXISTS (SELECT FROM {} t WHERE {})").format(self.target.rows, self._same())
        self.applier.execute(
            sql.SQL("INSERT INTO {} {} OVERRIDING SYSTEM VALUE SELECT {} FROM {} s{}").format(
                self.target.name, names, values, staged, missing if missing_only else sql.SQL("")
            )
        )

    def _remove_any_rows(self, count: int) -> None:
        """Of a table without columns: Postgres's own subscriptions remove the first that they meet."""
        self.applier.execute(
            sql.SQL(
                "DELETE FROM {target} t USING (SELECT tableoid AS part, ctid AS place FROM {target} LIMIT {count}) s "
                "WHERE t.tableoid = s.part AND t.ctid = s.place"
            ).format(target=self.target.rows, count=sql.SQL(str(count)))
        )

    def _remove_equal_rows(self, lines: Lines) -> None:
        """Of n equal rows to remove, n equal rows of the target go, no matter which. Equal is what has the same text: not
        every type can say whether two values are equal, and 1.0 is not 1.00."""
        removed = self._staged("removed", self._all, lines.open())
        staged = sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(alias)) for alias, _ in self._all)
        there = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for _, name in self._all)
        self.applier.execute(
            sql.SQL(
                """
                WITH found AS (
                    SELECT t.tableoid AS part, t.ctid AS place, s.copies, row_number() OVER (PARTITION BY s.row) AS copy
                    FROM (SELECT row({staged})::text AS row, count(*) AS copies FROM {removed} s GROUP BY 1) s
                    JOIN {target} t ON row({there})::text = s.row
                )
                DELETE FROM {target} t USING found f
                WHERE t.ctid = f.place AND t.tableoid = f.part AND f.copy <= f.copies
                """
            ).format(target=self.target.rows, staged=staged, removed=removed, there=there)
        )
        self.applier.execute(sql.SQL("DELETE FROM {}").format(removed))


def by_table(staged: Sequence[StagedChanges]) -> list[list[StagedChanges]]:
    """The changes of each table, in order; those from before it got another name apart, since a table that took its name may
    come in between."""
    by_table: dict[int, list[StagedChanges]] = {}
    for change in staged:
        by_table.setdefault(change.relation.oid, []).append(change)
    named = (groupby(changes, key=lambda change: _name(change.relation)) for changes in by_table.values())
    groups = [list(some) for changes in named for _, some in changes]
    return sorted(groups, key=last_at)


def _name(relation: Relation) -> tuple[str, str]:
    return relation.schema, relation.table
