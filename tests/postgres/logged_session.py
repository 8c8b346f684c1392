"""Somebody's session on a source whose schema changes are logged, and what its commands left in the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from penstock.postgres.connection import Connection, connect
from penstock.schema.applying import apply
from penstock.schema.definitions import ColumnDefinition, Definition
from penstock.schema.kinds import SchemaChange
from penstock.schema.log import history
from penstock.schema.log import triggers as schema_log
from penstock.schema.log.row import SchemaLogRow, changes
from penstock.subscription import migrations


class LoggedSession:
    """Runs commands as a user would, and hands out what they wrote. ``warnings``: what users were told meanwhile."""

    def __init__(self, connection: Connection, ours: Connection) -> None:
        self.connection, self.ours = connection, ours
        self.warnings: list[str] = []
        connection.add_notice_handler(self._note)
        self._seen = 0

    def _note(self, message: psycopg.errors.Diagnostic) -> None:
        if message.severity_nonlocalized == "WARNING":
            self.warnings.append(str(message.message_primary))

    def run(self, *commands: str) -> None:
        for command in commands:
            self.connection.execute(command.encode())

    def new_rows(self) -> list[SchemaLogRow]:
        """Since the last look."""
        found = [row for row in history.rows(self.ours) if row.id > self._seen]
        self._seen = max((row.id for row in found), default=self._seen)
        return found

    def rows_of(self, *commands: str) -> list[SchemaLogRow]:
        self.new_rows()
        self.run(*commands)
        return self.new_rows()

    def row_of(self, *commands: str) -> SchemaLogRow:
        (row,) = self.rows_of(*commands)
        assert row.error is None
        return row

    def changes_of(self, *commands: str) -> list[SchemaChange]:
        """Of all rows that the commands wrote. Each row's changes lead from its before to its after."""
        found: list[SchemaChange] = []
        for row in self.rows_of(*commands):
            assert row.error is None
            assert_consistent(row)
            found += changes(row)
        return found

    def kinds_of(self, *commands: str) -> list[str]:
        return [type(change).__name__ for change in self.changes_of(*commands)]

    def definition(self, name: str) -> Definition:
        """As the triggers have it."""
        found = history.known_definitions(self.ours).values()
        return next(one for one in found if str(one.name) == name)

    def names(self) -> set[str]:
        return {str(one.name) for one in history.known_definitions(self.ours).values()}

    def assert_up_to_date(self) -> None:
        """What the triggers keep is what the catalog has."""
        stored = self.ours.execute("select oid, definition from penstock.table_definitions order by oid").fetchall()
        now = self.ours.execute(
            "select oid, definition from penstock.describe_tables(penstock.all_tables()) order by oid"
        ).fetchall()
        assert stored == now
        assert (
            self.ours.execute("select oid, definition from penstock.type_definitions order by oid").fetchall()
            == (
                self.ours.execute(
                    "select oid, definition from penstock.describe_types(penstock.all_types()) order by oid"
                )
            ).fetchall()
        )


def assert_consistent(row: SchemaLogRow) -> None:
    for table in row.tables:
        now = table.before
        for change in changes(row):
            now = apply(now, change)
        assert now == table.after


def column(definition: Definition, name: str) -> ColumnDefinition:
    return next(one for one in definition.columns if one.name == name)


@contextmanager
def logged_session(url: str) -> Iterator[LoggedSession]:
    with connect(url) as ours, psycopg.connect(url, autocommit=True) as theirs:
        migrations.migrate(ours)
        schema_log.install(ours)
        yield LoggedSession(theirs, ours)
