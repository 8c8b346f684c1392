"""The rows of a table that an import has filled, put into one that stays: somebody else's, or one that others hang on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.sinks.postgres_foreign_keys import merge
from penstock.sinks.postgres_session import replicates
from penstock.sinks.postgres_target import Target, is_referenced, listed

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
