"""Schema changes that the source's log tells of, followed by the Postgres sink: the target's catalog equals the source's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from penstock.errors import SinkRefused
from penstock.lsn import LSN, ZERO
from penstock.postgres.connection import connect
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.postgres.sink import PostgresSink
from tests.postgres.catalog_equality import differences
from tests.sinks.followed_source import TABLES, FollowedSource


class Followed(FollowedSource):
    """Followed by a replica."""

    def __init__(self, source: str, target: str, directory: Path, **settings: Any) -> None:
        self.target = target
        given = {"name": "replica", "type": "postgres", "url": SecretStr(target), **settings}
        super().__init__(source, PostgresSink(PostgresSink.Settings.model_validate(given)), directory)

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
        "ALTER TABLE orders ADD COLUMN at timestamptz NOT NULL DEFAULT now()",
        "ALTER TABLE orders ADD COLUMN code text DEFAULT 'it''s {\"a\", b}'; ALTER TABLE orders ALTER code SET DEFAULT 'c'",
        "ALTER TABLE orders ADD COLUMN how_2 mood DEFAULT 'happy'; ALTER TABLE orders ALTER how_2 DROP DEFAULT",
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
    before = followed.rows_of("orders", "id = 3", followed.end - 0x900)
    commands = followed.alter(
        "ALTER TABLE orders RENAME note TO t; ALTER TABLE orders RENAME amount TO note; "
        "ALTER TABLE orders RENAME t TO amount; "
        "INSERT INTO orders (id, amount, note) VALUES (4, 'after', 2)"
    )
    after = followed.rows_of("orders", "id = 4", followed.end - 0x100)
    followed.deliver(before, after, commands=commands)
    assert followed.differences("orders") == []


def test_a_batch_that_comes_again_is_followed_once(followed: Followed) -> None:
    commands = followed.alter(
        "ALTER TABLE orders RENAME COLUMN note TO text; ALTER TABLE orders ADD COLUMN note integer"
    )
    followed.deliver(commands=commands)
    followed.again()
    followed.deliver(commands=commands)
    assert followed.differences("orders") == []


def test_a_column_that_came_with_an_import_is_not_added_again(followed: Followed) -> None:
    """The import came further than the stream: its rows have the column, and then the command comes."""
    commands = followed.alter("ALTER TABLE orders ADD COLUMN extra integer DEFAULT 5")
    followed.alter("UPDATE orders SET extra = 6 WHERE id = 1")
    relation = followed.relation("orders")
    rows = followed.rows_of("orders")
    begin = ImportPart(1, relation, "begin")
    for part in (begin, replace(begin, phase="rows", number=1), replace(begin, phase="end", upto=LSN(followed.end))):
        batch = Batch(-1, ZERO, ZERO, str(followed.directory), part)
        receipts = [followed.sink.write(batch, iter([rows]))] if part.phase == "rows" else []
        followed.sink.commit(batch, receipts)
    followed.deliver(commands=tuple(command.later_than(lambda _oid: followed.end) for command in commands))
    assert followed.differences("orders") == []


def test_values_that_the_source_computed_and_no_cast_gives_are_absent_until_the_import(followed: Followed) -> None:
    followed.sink.source_is_copied = True
    followed.follow("ALTER TABLE orders ALTER COLUMN note SET NOT NULL")
    followed.follow("ALTER TABLE orders ALTER COLUMN note TYPE integer USING id * 2")
    assert followed.query("SELECT id, note FROM orders ORDER BY id") == [(1, None), (2, None)]


def test_a_key_that_the_source_computed_and_no_cast_gives_leaves_no_rows_until_the_import(followed: Followed) -> None:
    followed.sink.source_is_copied = True
    followed.follow("ALTER TABLE orders DROP CONSTRAINT orders_pkey; ALTER TABLE orders ADD PRIMARY KEY (note)")
    followed.follow("ALTER TABLE orders ALTER COLUMN note TYPE integer USING id * 2")
    assert followed.query("SELECT pg_typeof(note)::text FROM orders") == []
    assert followed.query("SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = 'orders'::regclass "
                          "AND attname = 'note'") == [("integer",)]  # fmt: skip


def test_without_imports_a_value_that_no_cast_gives_stops_the_sink(followed: Followed) -> None:
    with pytest.raises(SinkRefused, match=r"orders of the target cannot follow .*note"):
        followed.follow("ALTER TABLE orders ALTER COLUMN note TYPE integer USING id * 2")


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
