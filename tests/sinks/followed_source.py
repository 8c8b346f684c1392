"""A source with its schema log, and a sink that is given rows and commands by hand, batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from penstock.changes.batch import ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.postgres.connection import connect
from penstock.postgres.reading.layout import table_layout
from penstock.schema.log import triggers as schema_log
from penstock.schema.log.row import LoggedCommand
from penstock.sinks.contract import Batch, Sink
from penstock.subscription import migrations
from penstock.testing.change_batches import changes

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE orders (id integer PRIMARY KEY, note text, amount integer, how mood DEFAULT 'sad');
CREATE TABLE people (id bigint PRIMARY KEY, email text CONSTRAINT one_email UNIQUE, age integer CHECK (age >= 0));
CREATE INDEX people_age ON people (age);
INSERT INTO orders VALUES (1, 'a', 10), (2, 'b', 20);
INSERT INTO people VALUES (1, 'x', 5), (2, 'y', NULL);
"""


class FollowedSource:
    """Its two tables have arrived in the sink."""

    def __init__(self, source: str, sink: Sink[Any, Any], directory: Path) -> None:
        self.source, self.sink, self.directory, self._number, self._seen = source, sink, directory, 0, 0
        with psycopg.connect(source) as session:
            session.execute(TABLES)
            session.execute(
                "CREATE PUBLICATION everything FOR TABLES IN SCHEMA public WITH (publish_via_partition_root = true)"
            )
        with connect(source) as connection:
            migrations.migrate(connection)
            schema_log.install(connection)
        sink.source = source
        sink.prepare()
        self.deliver(*(self.rows_of(name) for name in ("orders", "people")))

    def relation(self, table: str) -> Relation:
        with connect(self.source) as connection:
            found = connection.execute(
                "SELECT to_regclass('public.' || quote_ident(%s))::oid::bigint", [table]
            ).fetchone()
            assert found is not None
            layout = table_layout(connection, found[0], ["everything"])
        assert layout is not None
        return layout.relation

    def rows_of(self, table: str, where: str = "true", lsn: int | None = None) -> ChangeBatch:
        """The table's rows, as inserts."""
        return self._changes("insert", table, where, lsn)

    def updates_of(self, table: str, where: str = "true", lsn: int | None = None) -> ChangeBatch:
        """The table's rows, as updates that leave their keys."""
        return self._changes("update", table, where, lsn)

    def _changes(self, op: str, table: str, where: str, lsn: int | None) -> ChangeBatch:
        relation = self.relation(table)
        names = [column.name for column in relation.columns]
        printed = sql.SQL(
            "CASE WHEN num_nulls({0}) = 0 THEN format('%s', {0}) END"
        )  # as the stream has it; a cast may differ
        columns = sql.SQL(", ").join(printed.format(sql.Identifier(name)) for name in names)
        with psycopg.connect(self.source) as connection:
            query = sql.SQL("SELECT {} FROM {} WHERE " + where).format(columns, sql.Identifier(table))
            rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query)]
        return changes(relation, [(op, row) for row in rows], lsn=lsn if lsn is not None else self.end - 0x100)

    @property
    def end(self) -> int:
        return 0x1000 * (self._number + 1)

    def deliver(self, *some: ChangeBatch, commands: tuple[LoggedCommand, ...] = ()) -> None:
        start = LSN(0x1000 * self._number)
        batch = Batch(self._number, start, LSN(self.end), str(self.directory), schema_log=commands)
        self.sink.commit(batch, [self.sink.write(batch, iter([one])) for one in some])
        self._number += 1

    def alter(self, statement: str) -> tuple[LoggedCommand, ...]:
        """On the source; the commands that its log has of it, at places in the middle of the next batch."""
        with psycopg.connect(self.source, autocommit=True) as connection:
            connection.execute(statement.encode())
        with psycopg.connect(self.source, row_factory=dict_row) as connection:
            names = connection.execute("SELECT * FROM penstock.schema_log LIMIT 0").description or ()
            columns = ", ".join(f"{name.name}::text" for name in names)
            query = f"SELECT {columns} FROM penstock.schema_log WHERE id > {self._seen} ORDER BY penstock.schema_log.id"
            rows = connection.execute(query.encode()).fetchall()
        self._seen = max((int(row["id"]) for row in rows), default=self._seen)
        return tuple(LoggedCommand((self.end - 0x800, number), row) for number, row in enumerate(rows))

    def follow(self, statement: str) -> None:
        commands = self.alter(statement)
        assert commands
        self.deliver(commands=commands)

    def again(self) -> None:
        """The next batch is the last one once more."""
        self._number -= 1
