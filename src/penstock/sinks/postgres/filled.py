"""The rows of a table that an import has filled, put into one that stays: somebody else's, or one that others hang on.

An import into a table of the target that keeps rows of somebody else's: ``existing_rows: keep``.

While changes are replayed into the shadow, the keys of rows that they delete are noted in a table of their own, in the
transaction that records these changes. When the import ends, in one transaction:

1. Rows with these keys leave the target's table: the stream does not bring these deletes again. All rows do, if the source's
   table was truncated meanwhile.
2. Rows that the target has by key get the source's values, where they are: columns that only the target has keep theirs.
3. All other rows of the source are added.

So a row that the target has and the source has not stays, whoever put it there. One that came from the source stays too, if
it was deleted there while nobody looked (a table that was outside the publication): nothing tells it from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import LiteralString

from psycopg import sql

from penstock.errors import SinkRefused
from penstock.postgres.connection import Connection
from penstock.schema.target_names import Place
from penstock.sinks.postgres.changes import Applier
from penstock.sinks.postgres.foreign_keys import merge
from penstock.sinks.postgres.session import replicates
from penstock.sinks.postgres.staging import StagedChanges
from penstock.sinks.postgres.target import Target, is_referenced, listed

# Adds the rows of a filled table, the second one, to another. First, what the table is called in the source.
AddRows = Callable[[tuple[str, str], Target, Target], None]


def replace_rows(
    connection: Connection, before: Target, filled: Target, key: Sequence[str], add: Callable[[Target, Target], None]
) -> None:
    """All of them. Where others refer to rows that stay, these stay in their place."""
    if key and is_referenced(connection, before) and not replicates(connection):
        merge(connection, before, filled, columns_in_both(before, filled), key)
    else:
        connection.execute(sql.SQL("DELETE FROM {}").format(before.rows))
        add(before, filled)
    connection.execute(sql.SQL("DROP TABLE {}").format(filled.name))


def add_rows(connection: Connection, target: Target, filled: Target, which: sql.Composable) -> None:
    names = columns_in_both(target, filled)
    connection.execute(
        sql.SQL("INSERT INTO {} {} OVERRIDING SYSTEM VALUE SELECT {} FROM {} WHERE {}").format(
            target.name, listed(names), sql.SQL(", ").join(map(sql.Identifier, names)), filled.name, which
        )
    )


def columns_in_both(target: Target, filled: Target) -> list[str]:
    there = {column.name for column in filled.columns if not column.generated}
    return [column.name for column in target.columns if column.name in there and not column.generated]


class DeletedKeys:
    """Of one import, beside the table that it fills. Keys are texts; a row of NULLs stands for all, by TRUNCATE."""

    def __init__(self, connection: Connection, shadow: tuple[str, str]) -> None:
        self._connection = connection
        place = Place(*shadow).beside("__deleted")
        self.name = sql.Identifier(place.schema, place.name)

    def note(self, applier: Applier, staged: Iterable[StagedChanges]) -> None:
        for change in staged:
            columns = [sql.Identifier(f"k{place}") for place in range(len(change.relation.key))]
            if not columns or not (change.deletes or change.truncated_at):
                continue
            texts = sql.SQL(", ").join(sql.SQL("{} text").format(column) for column in columns)
            self._execute("CREATE TABLE IF NOT EXISTS {} ({})", texts)
            if change.truncated_at is not None:
                self._execute("DELETE FROM {}")
                self._execute("INSERT INTO {} DEFAULT VALUES")
            if change.deletes:
                applier.copy(self.name, columns, change.deletes.open())

    def remove_from(self, target: Target, key: Sequence[str]) -> None:
        """Step 1."""
        row = self._connection.execute("SELECT to_regclass(%s)", [self.name.as_string()]).fetchone()
        if row is None or row[0] is None:
            return
        found = self._connection.execute(sql.SQL("SELECT FROM {} WHERE k0 IS NULL LIMIT 1").format(self.name))
        if found.fetchone() is not None:
            self._connection.execute(sql.SQL("DELETE FROM {}").format(target.rows))
            return
        casts = sql.SQL(", ").join(
            sql.SQL("CAST({0} AS {1}) AS {0}").format(sql.Identifier(f"k{place}"), sql.SQL(_type(target, name)))
            for place, name in enumerate(key)
        )
        same = target.same([(f"k{place}", name) for place, name in enumerate(key)], "s")
        delete = sql.SQL("DELETE FROM {} t USING (SELECT {} FROM {}) s WHERE {}")
        self._connection.execute(delete.format(target.rows, casts, self.name, same))

    def drop(self) -> None:
        self._execute("DROP TABLE IF EXISTS {}")

    def _execute(self, statement: LiteralString, *more: sql.Composable) -> None:
        self._connection.execute(sql.SQL(statement).format(self.name, *more))


def add_beside(
    connection: Connection,
    target: Target,
    filled: Target,
    key: Sequence[str],
    deleted: DeletedKeys,
    add: Callable[[Target, Target], None],
) -> None:
    """The three steps above; the filled table goes."""
    connection.execute("SET CONSTRAINTS ALL DEFERRED")
    deleted.remove_from(target, key)
    same = target.same([(name, name) for name in key], "s")
    if others := [name for name in columns_in_both(target, filled) if name not in key]:
        connection.execute(
            sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {} AND ({})").format(
                target.rows, _each("{0} = s.{0}", ", ", others), filled.name, same,
                _each("t.{0}::text IS DISTINCT FROM s.{0}::text", " OR ", others),
            )
        )  # fmt: skip
    connection.execute(sql.SQL("DELETE FROM {} s USING {} t WHERE {}").format(filled.name, target.rows, same))
    add(target, filled)
    connection.execute(sql.SQL("DROP TABLE {}").format(filled.name))


def _type(target: Target, name: str) -> str:
    column = target.column(name)
    if column is None:
        raise SinkRefused(
            f"Table {target.schema}.{target.table} of the target has no column {name}, which is part of the source's key.",
            "Add the column; then start again.",
        )
    return column.type


def _each(template: LiteralString, between: LiteralString, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(between).join(sql.SQL(template).format(sql.Identifier(column)) for column in columns)
