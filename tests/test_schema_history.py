"""``penstock log FILE schema``, and a table as of a position."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.errors import ConfigError
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.schema.kinds import RenameTable
from penstock.schema.log.history import definition_at, versions
from tests.cli.command import Here, write_config
from tests.cli.conftest import penstock

__all__ = ["penstock"]  # a fixture


@pytest.fixture
def source(database: str, tmp_path: Path) -> Iterator[tuple[Path, psycopg.Connection]]:
    """A pipeline's config, and a session of a user."""
    file = write_config(tmp_path, database)
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("create table still (a int)")
        session.execute("create table orders (id int primary key)")
        Pipeline.from_file(file).init()
        session.execute("alter table orders add price numeric(10,2) default 0")
        session.execute("create table other (id int)")
        session.execute("alter table orders rename to sales")
        session.execute("create table orders (id int)")
        yield file, session
    Pipeline.from_file(file).destroy()


Source = tuple[Path, psycopg.Connection]


def test_a_tables_history_goes_on_under_its_new_name(source: Source, database: str) -> None:
    with connect(database) as connection:
        found = list(versions(connection, "sales"))
    assert [(one.tag, one.tables, one.role) for one in found] == [
        ("ALTER TABLE", ("public.orders",), "postgres"), ("ALTER TABLE", ("public.sales",), "postgres"),
    ]  # fmt: skip
    assert isinstance(found[1].changes[0], RenameTable)
    assert found[0].lsn < found[1].lsn


def test_a_name_stands_for_every_table_that_had_it(source: Source, penstock: Here) -> None:
    shown = penstock("log", source[0], "schema", "orders")
    assert shown.code == 0
    assert [line.strip() for line in shown.out.splitlines() if line.startswith("    ")] == [
        "public.orders: add column price numeric(10,2) default 0",
        "public.orders: rename table orders to sales",
        "public.orders: create table (id integer)",
    ]


def test_everything_is_shown_for_machines_too(source: Source, penstock: Here) -> None:
    shown = penstock("log", source[0], "schema", "--json")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [(row["command"], row["tables"]) for row in rows] == [
        ("ALTER TABLE", ["public.orders"]), ("CREATE TABLE", ["public.other"]), ("ALTER TABLE", ["public.sales"]),
        ("CREATE TABLE", ["public.orders"]),
    ]  # fmt: skip
    assert rows[0]["statement"] == "alter table orders add price numeric(10,2) default 0"
    assert rows[0]["changes"] == [{"kind": "AddColumn", "text": "add column price numeric(10,2) default 0"}]


def test_a_table_nobody_knows_is_an_error(source: Source, penstock: Here) -> None:
    refused = penstock("log", source[0], "schema", "absent")
    assert refused.code == 2
    assert 'knows no table "public.absent"' in refused.err


def test_a_source_without_a_log_is_said_to_have_none(database: str) -> None:
    with connect(database) as connection, pytest.raises(ConfigError, match="has no schema log"):
        list(versions(connection))


def test_the_definition_at_a_position_is_what_was_in_force_then(source: Source, database: str) -> None:
    with connect(database) as connection:
        added, _, renamed, made = (one.lsn for one in versions(connection))

        def columns(table: str, lsn: int) -> list[str] | None:
            found = definition_at(connection, table, LSN(lsn))
            return [column.name for column in found.columns] if found else None

        assert columns("orders", added - 1) == ["id"]
        assert columns("orders", added) == ["id", "price"]
        assert columns("orders", renamed) is None
        assert columns("public.sales", renamed - 1) is None
        assert columns("public.sales", renamed) == ["id", "price"]
        assert columns("orders", made) == ["id"]
        assert columns("still", added) == ["a"]
        assert columns("absent", made) is None
