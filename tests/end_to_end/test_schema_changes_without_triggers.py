"""Where there are no event triggers, what a table's changes show of its definition is followed: columns and their types."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pyspark.sql import SparkSession

from penstock.postgres.connection import connect
from penstock.schema.log import triggers as schema_log
from tests.imports.pipeline_with_imports import PipelineWithImports

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text, amount int);
INSERT INTO orders SELECT n, 'note ' || n, n FROM generate_series(1, 100) n;
"""


@contextmanager
def load(url: str) -> Iterator[None]:
    """Rows of orders come and change meanwhile, in small transactions, whatever its columns are."""
    stop, errors = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                for number in count(1000):
                    if stop.wait(0.01):
                        return
                    connection.execute("INSERT INTO orders (id) VALUES (%s)", [number])
                    connection.execute("UPDATE orders SET id = id WHERE mod(id, 10) = %s", [number % 10])
        except BaseException as error:  # noqa: BLE001  carried to the test
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


def columns(url: str) -> dict[str, str]:
    query = (
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'public.orders'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    with psycopg.connect(url) as connection:
        return dict(connection.execute(query).fetchall())


def rows(connection: psycopg.Connection[Any] | duckdb.DuckDBPyConnection, names: list[str]) -> list[Any]:
    query = f"SELECT {', '.join(f'CAST({name} AS varchar)' for name in names)} FROM public.orders"
    if isinstance(connection, psycopg.Connection):
        return sorted(connection.execute(query.encode()).fetchall(), key=repr)
    return sorted(connection.execute(query).fetchall(), key=repr)


ALTERED = [
    "ADD COLUMN extra int",
    "ADD COLUMN more text DEFAULT 'new'",
    "ALTER COLUMN amount TYPE bigint",
    "DROP COLUMN note",
    "ALTER COLUMN amount TYPE text",
    "ALTER COLUMN extra TYPE numeric(12,2), DROP COLUMN more",
]


def test_columns_that_come_go_and_change_their_type_are_followed_under_load(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database)
    pipeline.execute(TABLES)
    pipeline.pipeline.init(triggers=False)
    with connect(database) as connection:
        assert not schema_log.installed(connection)
    with pipeline.running(spark):
        pipeline.await_streaming()
        with load(database):
            for statement in ALTERED:
                pipeline.execute(f"ALTER TABLE orders {statement}")
                pipeline.await_arrival(240)
        pipeline.execute(
            "UPDATE orders SET id = id"
        )  # rows that are there get a new column's default with their next change
        pipeline.await_arrival(240)
    with connect(database) as connection:
        assert not schema_log.installed(connection)
    shape = columns(database)
    assert shape == {"id": "integer", "amount": "text", "extra": "numeric(12,2)"}
    assert columns(target_database) == {**shape, "note": "text", "more": "text"}  # what went stays
    names = sorted(shape)
    with (
        psycopg.connect(database) as ours,
        psycopg.connect(target_database) as theirs,
        duckdb.connect(str(tmp_path / "p" / "lake.duckdb"), read_only=True) as lake,
    ):
        expected = rows(ours, names)
        assert rows(theirs, names) == expected
        assert rows(lake, names) == expected


def test_a_rename_is_a_column_that_went_and_one_that_came(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    """What `check` says of it: rows that do not change have nothing in the new one, and nothing is lost of the old one."""
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database)
    pipeline.execute(TABLES)
    pipeline.pipeline.init(triggers=False)
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.execute("ALTER TABLE orders RENAME COLUMN note TO remark")
        pipeline.execute("UPDATE orders SET remark = 'new' WHERE id = 1")
        pipeline.await_arrival(240)
    with psycopg.connect(target_database) as connection:
        found = connection.execute("SELECT id, remark, note FROM orders WHERE id <= 2 ORDER BY id").fetchall()
    assert found == [(1, "new", "note 1"), (2, None, "note 2")]


def test_a_composite_type_and_a_domain_that_are_altered_are_noticed(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(
        database, tmp_path / "p", target=target_database, target_settings=", on_error: dead_letter"
    )
    pipeline.execute("CREATE TYPE part AS (a int, b text); CREATE DOMAIN small AS int CHECK (VALUE > 0)")
    pipeline.execute("CREATE TABLE orders (id int PRIMARY KEY, p part, n small)")
    pipeline.execute("INSERT INTO orders VALUES (1, '(1,x)', 1)")
    pipeline.pipeline.init(triggers=False)
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.execute("ALTER TYPE part ADD ATTRIBUTE c int")
        pipeline.execute("ALTER DOMAIN small DROP CONSTRAINT small_check")
        pipeline.execute("INSERT INTO orders VALUES (2, '(2,y,2)', -2)")
        pipeline.await_arrival(240)
        pipeline.pipeline.reconcile()
        pipeline.await_streaming()
    with (
        psycopg.connect(database) as ours,
        psycopg.connect(target_database) as theirs,
        duckdb.connect(str(tmp_path / "p" / "lake.duckdb"), read_only=True) as lake,
    ):
        expected = rows(ours, ["id", "p", "n"])
        assert rows(theirs, ["id", "p", "n"]) == expected
        assert rows(lake, ["id", "p", "n"]) == expected
        assert theirs.execute("SELECT reason FROM penstock.dead_letters").fetchall() == []
