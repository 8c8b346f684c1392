"""Schema changes that the source's log tells of, followed by the Postgres sink: the target's catalog equals the source's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from pydantic import SecretStr

from penstock.changes import ChangeBatch, Relation
from penstock.imports.layout import table_layout
from penstock.lsn import LSN
from penstock.postgres import migrations, schema_log
from penstock.postgres.connection import connect
from penstock.schema_changes.logged import LoggedCommand
from penstock.sinks.contract import Batch
from penstock.sinks.postgres import PostgresSink
from penstock.testing.change_batches import changes
from tests.postgres.catalog_equality import differences

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE orders (id integer PRIMARY KEY, note text, amount integer, how mood DEFAULT 'sad');
CREATE TABLE people (id bigint PRIMARY KEY, email text CONSTRAINT one_email UNIQUE, age integer CHECK (age >= 0));
CREATE INDEX people_age ON people (age);
INSERT INTO orders VALUES (1, 'a', 10), (2, 'b', 20);
INSERT INTO people VALUES (1, 'x', 5), (2, 'y', NULL);
"""


class Followed:
    """A source with its schema log, and a replica that is given rows and commands by hand, batch by batch."""

    def __init__(self, source: str, target: str, directory: Path, **settings: Any) -> None:
        self.source, self.target, self._directory, self._number, self._seen = source, target, directory, 0, 0
        with psycopg.connect(source) as session:
            session.execute(TABLES)
            session.execute("CREATE PUBLICATION everything FOR TABLES IN SCHEMA public")
        with connect(source) as connection:
            migrations.migrate(connection)
            schema_log.install(connection)
        given = {"name": "replica", "type": "postgres", "url": SecretStr(target), **settings}
        self.sink = PostgresSink(PostgresSink.Settings.model_validate(given))
        self.sink.source = source
        self.sink.prepare()
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
        relation = self.relation(table)
        names = [column.name for column in relation.columns]
        columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
        with psycopg.connect(self.source) as connection:
            query = sql.SQL("SELECT {} FROM {} WHERE " + where).format(columns, sql.Identifier(table))
            rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query)]
        return changes(relation, [("insert", row) for row in rows], lsn=lsn if lsn is not None else self._end - 0x100)

    @property
    def _end(self) -> int:
        return 0x1000 * (self._number + 1)

    def deliver(self, *some: ChangeBatch, commands: tuple[LoggedCommand, ...] = ()) -> None:
        start = LSN(0x1000 * self._number)
        batch = Batch(self._number, start, LSN(self._end), str(self._directory), schema_log=commands)
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
        return tuple(LoggedCommand((self._end - 0x800, number), row) for number, row in enumerate(rows))

    def follow(self, statement: str) -> None:
        commands = self.alter(statement)
        assert commands
        self.deliver(commands=commands)

    def differences(self, *tables: str) -> list[str]:
        with connect(self.source) as source, connect(self.target) as target:
            found = differences(source, target, [("public", table) for table in tables])
            for table in tables:
                query = sql.SQL("SELECT to_jsonb(t)::text FROM {} t ORDER BY 1").format(sql.Identifier("public", table))
                if source.execute(query).fetchall() != target.execute(query).fetchall():
                    found.append(f"rows of {table}")
        return found

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.target) as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
def followed(database: str, target_database: str, tmp_path: Path) -> Iterator[Followed]:
    found = Followed(database, target_database, tmp_path, on_drop="drop")
    yield found
    found.sink.close()


@pytest.fixture
def keeping(database: str, target_database: str, tmp_path: Path) -> Iterator[Followed]:
    found = Followed(database, target_database, tmp_path)
    yield found
    found.sink.close()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN extra text",
        "ALTER TABLE orders ADD COLUMN extra integer NOT NULL DEFAULT 7",
        "ALTER TABLE orders ADD COLUMN twice integer GENERATED ALWAYS AS (amount * 2) STORED",
        "ALTER TABLE orders DROP COLUMN note",
        'ALTER TABLE orders RENAME COLUMN note TO "odd ""name; --"',
        "ALTER TABLE orders RENAME COLUMN note TO t; ALTER TABLE orders ALTER amount TYPE text; "
        "ALTER TABLE orders RENAME COLUMN amount TO note; ALTER TABLE orders RENAME COLUMN t TO amount",
        "ALTER TABLE orders ALTER COLUMN amount TYPE bigint",
        "ALTER TABLE orders ALTER COLUMN amount TYPE text",
        'ALTER TABLE orders ALTER COLUMN note TYPE varchar(20) COLLATE "C"',
        "ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'none', ALTER COLUMN amount SET NOT NULL",
        "ALTER TABLE orders ALTER COLUMN how DROP DEFAULT",
        "ALTER TABLE people ALTER COLUMN email SET NOT NULL; ALTER TABLE people ALTER COLUMN email DROP NOT NULL",
        "ALTER TABLE people DROP CONSTRAINT one_email",
        "ALTER TABLE people RENAME CONSTRAINT one_email TO a_single_email",
        "ALTER INDEX people_age RENAME TO by_age",
        "DROP INDEX people_age",
        "CREATE UNIQUE INDEX lower_email ON people (lower(email)) WHERE age > 3",
        "ALTER TABLE people ADD CONSTRAINT grown CHECK (age < 200)",
        "ALTER TABLE people DROP CONSTRAINT people_age_check",
        "ALTER TABLE people DROP CONSTRAINT people_pkey, ADD PRIMARY KEY (email)",
        "ALTER TABLE orders ADD COLUMN person bigint REFERENCES people (id) ON DELETE CASCADE",
        "ALTER TYPE mood ADD VALUE 'calm' BEFORE 'happy'",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TYPE mood RENAME TO feeling",
        "CREATE TYPE size AS ENUM ('s', 'l'); ALTER TABLE orders ADD COLUMN size size DEFAULT 'l'",
        "COMMENT ON TABLE orders IS 'what was ordered'; COMMENT ON COLUMN orders.note IS 'in words'",
        "DO $$ BEGIN ALTER TABLE orders ADD COLUMN a int; ALTER TABLE people RENAME COLUMN age TO years; END $$",
        "ALTER TABLE orders RENAME TO away; ALTER TABLE people RENAME TO orders; ALTER TABLE away RENAME TO people",
    ],
)
def test_the_target_is_defined_like_the_source(followed: Followed, statement: str) -> None:
    followed.follow(statement)
    assert followed.differences("orders", "people") == []


def test_a_table_that_moves_to_another_schema_moves(followed: Followed) -> None:
    followed.follow("CREATE SCHEMA sales; ALTER TABLE orders SET SCHEMA sales; ALTER TABLE sales.orders RENAME TO sold")
    assert followed.query("SELECT id, note FROM sales.sold ORDER BY id") == [(1, "a"), (2, "b")]
    assert followed.query("SELECT to_regclass('public.orders')") == [(None,)]


def test_a_dropped_table_goes(followed: Followed) -> None:
    followed.follow("DROP TABLE orders")
    assert followed.query("SELECT to_regclass('orders')") == [(None,)]


def test_rows_before_and_after_a_rename_in_one_batch_meet_their_column(followed: Followed) -> None:
    followed.alter("INSERT INTO orders VALUES (3, 'before', 1)")
    before = followed.rows_of("orders", "id = 3", followed._end - 0x900)
    commands = followed.alter(
        "ALTER TABLE orders RENAME note TO t; ALTER TABLE orders RENAME amount TO note; "
        "ALTER TABLE orders RENAME t TO amount; "
        "INSERT INTO orders (id, amount, note) VALUES (4, 'after', 2)"
    )
    after = followed.rows_of("orders", "id = 4", followed._end - 0x100)
    followed.deliver(before, after, commands=commands)
    assert followed.differences("orders") == []


def test_a_batch_that_comes_again_is_followed_once(followed: Followed) -> None:
    commands = followed.alter(
        "ALTER TABLE orders RENAME COLUMN note TO text; ALTER TABLE orders ADD COLUMN note integer"
    )
    followed.deliver(commands=commands)
    followed._number -= 1
    followed.deliver(commands=commands)
    assert followed.differences("orders") == []


def test_a_dropped_column_stays_without_its_not_null_and_gives_way_to_a_new_one_of_its_name(keeping: Followed) -> None:
    keeping.follow("ALTER TABLE orders ALTER COLUMN note SET NOT NULL")
    keeping.follow("ALTER TABLE orders DROP COLUMN note")
    assert keeping.query("SELECT note FROM orders ORDER BY id") == [("a",), ("b",)]
    keeping.alter("INSERT INTO orders VALUES (3, 30)")
    keeping.deliver(keeping.rows_of("orders", "id = 3"))
    keeping.follow("ALTER TABLE orders ADD COLUMN note integer DEFAULT 5")
    assert keeping.query("SELECT id, note, note__before_5 FROM orders ORDER BY id") == [
        (1, 5, "a"), (2, 5, "b"), (3, 5, None),
    ]  # fmt: skip


def test_a_kept_column_with_the_longest_of_names_gives_way_as_well(keeping: Followed) -> None:
    name = "ж" * 31  # 62 bytes
    keeping.follow(f"ALTER TABLE orders RENAME COLUMN note TO {name}")
    keeping.follow(f"ALTER TABLE orders DROP COLUMN {name}")
    keeping.follow(f"ALTER TABLE orders ADD COLUMN {name} integer DEFAULT 5")
    assert keeping.query(f"SELECT {name} FROM orders ORDER BY id") == [(5,), (5,)]


def test_a_dropped_table_stays_and_goes_aside_for_a_new_one_of_its_name(keeping: Followed) -> None:
    keeping.follow("DROP TABLE orders")
    assert keeping.query("SELECT count(*) FROM orders") == [(2,)]
    commands = keeping.alter(
        "CREATE TABLE orders (id integer PRIMARY KEY, fresh text); INSERT INTO orders VALUES (9, 'f')"
    )
    keeping.deliver(keeping.rows_of("orders"), commands=commands)
    assert keeping.differences("orders") == []
    kept = keeping.query("SELECT relname FROM pg_class WHERE relname LIKE 'orders\\_\\_before%' AND relkind = 'r'")
    assert len(kept) == 1
    assert keeping.query(f"SELECT count(*) FROM {kept[0][0]}") == [(2,)]


@pytest.mark.parametrize("settings", [{"schema_changes": "ignore"}, {"schema": "existing"}])
def test_a_sink_that_is_told_not_to_follow_does_not(
    settings: dict[str, str], database: str, target_database: str, tmp_path: Path
) -> None:
    if "schema" in settings:
        with psycopg.connect(target_database) as connection:
            connection.execute(TABLES.split("INSERT")[0])
    found = Followed(database, target_database, tmp_path, **settings)
    found.follow("ALTER TABLE orders RENAME COLUMN note TO other")
    assert found.query("SELECT note FROM orders ORDER BY id") == [("a",), ("b",)]
    found.sink.close()
