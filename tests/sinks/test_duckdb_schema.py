"""Schema changes that the source's log tells of, followed by the DuckDB sink: the file's tables equal the source's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from penstock.lsn import LSN, ZERO
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.duckdb.file import quoted
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.sinks.duckdb.types import duckdb_type
from tests.sinks.followed_source import FollowedSource


class Followed(FollowedSource):
    def __init__(self, source: str, directory: Path, **settings: Any) -> None:
        self.path = directory / "lake.duckdb"
        given = {"name": "lake", "type": "duckdb", "path": self.path, **settings}
        super().__init__(source, DuckDBSink(DuckDBSink.Settings.model_validate(given)), directory / "staging")

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.path, read_only=True) as connection:
            return connection.execute(query).fetchall()

    def columns(self, table: str) -> dict[str, str]:
        """With their types."""
        return dict(
            self.query(
                "SELECT column_name, data_type FROM duckdb_columns() "
                f"WHERE schema_name = 'public' AND table_name = '{table}'"
            )
        )

    def differences(self, *tables: str) -> list[str]:
        """In columns, their types, and rows."""
        return [difference for table in tables for difference in self._differences(table)]

    def _differences(self, table: str) -> Iterator[str]:
        wanted = {column.name: duckdb_type(column, "error") for column in self.relation(table).columns}
        if (found := self.columns(table)) != wanted:
            yield f"{table} has {found}, not {wanted}"
            return
        names = ", ".join(f"{quoted(name)}::text" for name in sorted(found))
        printed = ", ".join(
            f"CASE WHEN {quoted(n)} IS NOT NULL THEN format('%s', {quoted(n)}) END" for n in sorted(found)
        )
        with psycopg.connect(self.source) as connection:
            rows = connection.execute(f"SELECT {printed} FROM {table}".encode()).fetchall()
        if (here := sorted(self.query(f"SELECT {names} FROM public.{table}"), key=repr)) != sorted(rows, key=repr):
            yield f"{table} has {here}, not {rows}"


@pytest.fixture
def followed(database: str, tmp_path: Path) -> Iterator[Followed]:
    found = Followed(database, tmp_path, on_drop="drop")
    yield found
    found.sink.close()


@pytest.fixture
def keeping(database: str, tmp_path: Path) -> Iterator[Followed]:
    found = Followed(database, tmp_path)
    yield found
    found.sink.close()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN extra text",
        "ALTER TABLE orders ADD COLUMN extra integer NOT NULL DEFAULT 7",
        "ALTER TABLE orders ADD COLUMN extra numeric(8,2) DEFAULT 1.5, ADD COLUMN more text DEFAULT 'it''s {\"a\", b}'",
        "ALTER TABLE orders ADD COLUMN at timestamp DEFAULT now()",
        "ALTER TABLE orders ADD COLUMN tags integer[], ADD COLUMN data jsonb DEFAULT '{\"a\": [1, null]}'",
        "ALTER TABLE orders ADD COLUMN extra integer DEFAULT 7; ALTER TABLE orders ALTER COLUMN extra SET DEFAULT 8",
        "CREATE DOMAIN cents AS numeric(10,2); ALTER TABLE orders ADD COLUMN price cents DEFAULT 2.5",
        "CREATE TYPE size AS ENUM ('s', 'l'); ALTER TABLE orders ADD COLUMN size size DEFAULT 'l'",
        "ALTER TABLE orders DROP COLUMN note",
        "ALTER TABLE orders DROP COLUMN note, ADD COLUMN note integer DEFAULT 3",
        'ALTER TABLE orders RENAME COLUMN note TO "odd ""name; --"',
        "ALTER TABLE orders RENAME COLUMN note TO t; ALTER TABLE orders ALTER amount TYPE text; "
        "ALTER TABLE orders RENAME COLUMN amount TO note; ALTER TABLE orders RENAME COLUMN t TO amount",
        "ALTER TABLE orders ALTER COLUMN amount TYPE bigint",
        "ALTER TABLE orders ALTER COLUMN amount TYPE text",
        "ALTER TABLE orders ALTER COLUMN amount TYPE numeric(6,1)",
        "ALTER TABLE orders ALTER amount TYPE text; ALTER TABLE orders ALTER amount TYPE integer USING amount::int",
        "ALTER TABLE orders ALTER amount TYPE float8; ALTER TABLE orders ALTER amount TYPE text",
        "ALTER TABLE orders ALTER note TYPE char(5); ALTER TABLE orders ALTER amount TYPE char(7)",
        "ALTER TABLE orders ALTER note TYPE char(5); ALTER TABLE orders ALTER note TYPE text",
        'ALTER TABLE orders ALTER COLUMN note TYPE varchar(20) COLLATE "C"',
        "ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'none', ALTER COLUMN amount SET NOT NULL",
        "ALTER TABLE people DROP CONSTRAINT people_pkey, ADD PRIMARY KEY (email)",
        "ALTER TYPE mood ADD VALUE 'calm' BEFORE 'happy'",
        "ALTER TYPE mood RENAME TO feeling",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TABLE orders RENAME COLUMN how TO mood; ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TABLE orders ALTER COLUMN how DROP DEFAULT, ALTER COLUMN how TYPE text; "
        "ALTER TABLE orders ADD COLUMN other mood DEFAULT 'sad'; ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "DO $$ BEGIN ALTER TABLE orders ADD COLUMN a int; ALTER TABLE people RENAME COLUMN age TO years; END $$",
        "ALTER TABLE orders RENAME TO away; ALTER TABLE people RENAME TO orders; ALTER TABLE away RENAME TO people",
    ],
)
def test_the_file_has_the_sources_columns_and_rows(followed: Followed, statement: str) -> None:
    followed.follow(statement)
    assert followed.differences("orders", "people") == []


def test_rows_of_a_partitioned_table_get_the_value_that_its_partitions_have_for_them(followed: Followed) -> None:
    followed.alter(
        "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); "
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10); INSERT INTO parts VALUES (1, 'a')"
    )
    followed.deliver(followed.rows_of("parts"))
    followed.follow("ALTER TABLE parts ADD COLUMN at timestamp DEFAULT now()")
    assert followed.differences("parts") == []


def test_a_new_value_of_an_enum_needs_nothing_since_the_file_has_text(followed: Followed) -> None:
    commands = followed.alter("ALTER TYPE mood ADD VALUE 'calm'")
    followed.alter("INSERT INTO orders VALUES (3, 'c', 30, 'calm')")
    followed.deliver(followed.rows_of("orders", "id = 3"), commands=commands)
    assert followed.differences("orders") == []
    assert followed.columns("orders")["how"] == "VARCHAR"


def test_a_renamed_label_is_so_in_a_table_that_was_just_imported(followed: Followed) -> None:
    begin = ImportPart(1, followed.relation("orders"), "begin")
    for part in (begin, replace(begin, phase="rows", number=1), replace(begin, phase="end", upto=LSN(1))):
        batch = Batch(-1, ZERO, ZERO, str(followed.directory), part)
        some = [followed.rows_of("orders")] if part.phase == "rows" else []
        followed.sink.commit(batch, [followed.sink.write(batch, iter(some))])
    followed.follow("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert followed.differences("orders") == []


def test_a_table_that_moves_to_another_schema_moves_with_all_its_columns(keeping: Followed) -> None:
    keeping.follow("ALTER TABLE orders DROP COLUMN amount")
    keeping.follow("CREATE SCHEMA sales; ALTER TABLE orders SET SCHEMA sales; ALTER TABLE sales.orders RENAME TO sold")
    assert keeping.query("SELECT id, note, amount FROM sales.sold ORDER BY id") == [(1, "a", 10), (2, "b", 20)]
    assert keeping.columns("orders") == {}


def test_rows_before_and_after_commands_in_one_batch_meet_their_columns(followed: Followed) -> None:
    followed.alter("INSERT INTO orders VALUES (3, 'before', 1)")
    before = followed.rows_of("orders", "id = 3", followed.end - 0x900)
    commands = followed.alter(
        "ALTER TABLE orders RENAME note TO t; ALTER TABLE orders RENAME amount TO note; "
        "ALTER TABLE orders RENAME t TO amount; ALTER TABLE orders ADD COLUMN extra integer DEFAULT 5; "
        "INSERT INTO orders (id, amount, note, extra) VALUES (4, 'after', 2, 6)"
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
    """As when the table's changes came further than the stream: a row of the new shape, and then the command."""
    commands = followed.alter("ALTER TABLE orders ADD COLUMN extra integer DEFAULT 5")
    with psycopg.connect(followed.source) as connection:
        connection.execute("UPDATE orders SET extra = 6 WHERE id = 1")
    followed.deliver(followed.updates_of("orders", "id = 1"))
    followed.deliver(commands=tuple(command.later_than(lambda _oid: followed.end) for command in commands))
    assert followed.query("SELECT extra FROM public.orders WHERE id = 1") == [(6,)]


def test_a_changed_key_is_the_key_of_what_comes_after(followed: Followed) -> None:
    commands = followed.alter("ALTER TABLE people DROP CONSTRAINT people_pkey, ADD PRIMARY KEY (email)")
    with psycopg.connect(followed.source) as connection:
        connection.execute("UPDATE people SET id = 7, age = 70 WHERE email = 'x'")
    followed.deliver(followed.updates_of("people", "email = 'x'"), commands=commands)
    assert followed.differences("people") == []


def test_a_dropped_column_stays_gives_way_to_a_new_one_of_its_name_and_is_told_of(
    keeping: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        keeping.follow("ALTER TABLE orders DROP COLUMN note")
    assert [record.levelname for record in caplog.records if "It stays in the file" in record.message] == ["INFO"]
    assert keeping.query("SELECT note FROM public.orders ORDER BY id") == [("a",), ("b",)]
    keeping.alter("INSERT INTO orders VALUES (3, 30); UPDATE orders SET amount = 21 WHERE id = 2")
    keeping.deliver(keeping.rows_of("orders", "id = 3"))
    keeping.deliver(keeping.updates_of("orders", "id = 2"))
    assert keeping.query("SELECT id, amount, note FROM public.orders ORDER BY id") == [
        (1, 10, "a"), (2, 21, "b"), (3, 30, None),
    ]  # fmt: skip
    keeping.follow("ALTER TABLE orders ADD COLUMN note integer DEFAULT 5")
    assert keeping.query("SELECT id, note, note__before_1 FROM public.orders ORDER BY id") == [
        (1, 5, "a"), (2, 5, "b"), (3, 5, None),
    ]  # fmt: skip


def test_a_column_that_a_kept_one_gave_way_to_may_go_and_come_as_well(keeping: Followed) -> None:
    keeping.follow("ALTER TABLE orders DROP COLUMN note")
    keeping.follow("ALTER TABLE orders RENAME COLUMN amount TO note")
    keeping.follow("ALTER TABLE orders DROP COLUMN note")
    keeping.follow('ALTER TABLE orders ADD COLUMN "Note" text')
    kept = keeping.query('SELECT "Note", note__before_1, "Note__before_2" FROM public.orders ORDER BY id')
    assert kept == [(None, "a", 10), (None, "b", 20)]


def test_the_only_column_of_a_table_stays_when_it_is_dropped(followed: Followed) -> None:
    followed.alter("CREATE TABLE single (v int PRIMARY KEY); INSERT INTO single VALUES (1)")
    followed.deliver(followed.rows_of("single"))
    followed.follow("ALTER TABLE single DROP COLUMN v")
    followed.follow("ALTER TABLE single ADD COLUMN w text DEFAULT 'x'")
    assert followed.query("SELECT v, w FROM public.single") == [(1, "x")]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("float8", "100"),
        ("timestamptz", "2026-11-15 00:00:00+00"),
        ("jsonb", '{"a": 1}'),
        ("integer[]", "{1,2}"),
        ("bytea", "\\x0141"),
        ("interval", "1 mon"),
    ],
)
def test_others_can_open_the_file_after_a_column_became_text_and_back(
    followed: Followed, kind: str, value: str
) -> None:
    """DuckDB's log beside the file has what was done: whoever opens the file does it again."""
    followed.alter(
        f"CREATE TABLE typed (id int PRIMARY KEY, v {kind}, w int); INSERT INTO typed VALUES (1, '{value}', 5)"
    )
    followed.deliver(followed.rows_of("typed"))
    before = followed.columns("typed")
    followed.follow("ALTER TABLE typed ALTER v TYPE text")
    assert followed.differences("typed") == []
    followed.follow(f"ALTER TABLE typed ALTER v TYPE {kind} USING v::{kind}")
    assert followed.columns("typed") == before
    assert list(followed.columns("typed")) == ["id", "v", "w"]
    assert followed.query("SELECT id, w FROM public.typed") == [(1, 5)]


def test_values_that_no_cast_gives_are_told_of_and_the_column_has_its_type(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.follow("ALTER TABLE orders ALTER COLUMN note TYPE integer USING length(note)")
    assert followed.columns("orders")["note"] == "INTEGER"
    assert ["which 2 values of it do not have" in record.message for record in caplog.records].count(True) == 1


def test_a_dropped_table_goes(followed: Followed) -> None:
    followed.follow("DROP TABLE orders")
    assert followed.columns("orders") == {}
    assert followed.query("SELECT source_table FROM penstock.tables") == [("people",)]


def test_a_dropped_table_stays_and_goes_aside_for_a_new_one_of_its_name(keeping: Followed) -> None:
    keeping.follow("DROP TABLE orders")
    assert keeping.query("SELECT count(*) FROM public.orders") == [(2,)]
    commands = keeping.alter(
        "CREATE TABLE orders (id integer PRIMARY KEY, fresh text); INSERT INTO orders VALUES (9, 'f')"
    )
    keeping.deliver(keeping.rows_of("orders"), commands=commands)
    assert keeping.differences("orders") == []
    kept = keeping.query("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'orders!_!_before%' ESCAPE '!'")
    assert len(kept) == 1
    assert keeping.query(f"SELECT count(*) FROM public.{kept[0][0]}") == [(2,)]


def test_a_table_that_is_dropped_and_made_again_in_one_batch_has_the_new_rows(followed: Followed) -> None:
    followed.alter("INSERT INTO orders VALUES (3, 'before', 1)")
    before = followed.rows_of("orders", "id = 3", followed.end - 0x900)
    commands = followed.alter(
        "DROP TABLE orders; CREATE TABLE orders (id integer PRIMARY KEY, fresh text); INSERT INTO orders VALUES (9, 'f')"
    )
    followed.deliver(before, followed.rows_of("orders"), commands=commands)
    assert followed.differences("orders") == []
    assert followed.query("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'public'") == [(2,)]


def test_a_sink_that_is_told_not_to_follow_does_not(database: str, tmp_path: Path) -> None:
    found = Followed(database, tmp_path, schema_changes="ignore")
    found.follow(
        "ALTER TABLE orders RENAME COLUMN note TO other; ALTER TABLE orders ADD COLUMN extra integer DEFAULT 1"
    )
    assert list(found.columns("orders")) == ["id", "note", "amount", "how"]
    found.sink.close()
