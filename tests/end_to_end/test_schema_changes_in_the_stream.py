"""Tables that are altered while they are written to: the log of schema changes comes with the stream, and the sinks follow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from tests.imports.pipeline_with_imports import PipelineWithImports

TABLES = """
CREATE TABLE red (id int PRIMARY KEY, a text, b int);
CREATE TABLE blue (id int PRIMARY KEY, x text, y int);
INSERT INTO red SELECT n, 'red ' || n, n FROM generate_series(1, 50) n;
INSERT INTO blue SELECT n, 'blue ' || n, n FROM generate_series(1, 50) n;
"""


class Source:
    """What its two tables and their columns are called now. Each statement is legal when it comes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tables = {"red": ["a", "b"], "blue": ["x", "y"]}
        self._number, self._id = 0, 1000

    @property
    def tables(self) -> list[str]:
        return sorted(self._tables)

    def transactions(self, count: int) -> Iterator[list[str]]:
        for _ in range(count):
            yield [statement for _ in range(self._random.randint(1, 5)) for statement in self._statements()]

    def _statements(self) -> list[str]:
        kinds = (self._insert, self._insert, self._update, self._delete)
        altering = (
            self._rename_column,
            self._swap_columns,
            self._add,
            self._drop,
            self._rename_table,
            self._swap_tables,
        )
        return self._random.choice(kinds if self._random.random() < 0.6 else altering)()

    def _name(self) -> str:
        self._number += 1
        return f"n{self._number}"

    def _table(self) -> tuple[str, list[str]]:
        name = self._random.choice(self.tables)
        return name, self._tables[name]

    def _insert(self) -> list[str]:
        self._id += 1
        name, columns = self._table()
        values = ", ".join(f"'{self._random.randint(0, 99)}'" for _ in columns)
        return [f"INSERT INTO {name} (id, {', '.join(columns)}) VALUES ({self._id}, {values})"]

    def _update(self) -> list[str]:
        name, columns = self._table()
        column, value = self._random.choice(columns), self._random.randint(100, 999)
        return [f"UPDATE {name} SET {column} = '{value}' WHERE mod(id, 7) = {self._random.randint(0, 6)}"]

    def _delete(self) -> list[str]:
        return [f"DELETE FROM {self._table()[0]} WHERE mod(id, 23) = {self._random.randint(0, 22)}"]

    def _rename_column(self) -> list[str]:
        name, columns = self._table()
        place, new = self._random.randrange(len(columns)), self._name()
        old, columns[place] = columns[place], new
        return [f"ALTER TABLE {name} RENAME COLUMN {old} TO {new}"]

    def _swap_columns(self) -> list[str]:
        name, columns = self._table()
        if len(columns) < 2:
            return self._add()
        one, other = self._random.sample(columns, 2)
        columns[:] = [{one: other, other: one}.get(column, column) for column in columns]
        rename = f"ALTER TABLE {name} RENAME COLUMN"
        return [f"{rename} {one} TO aside", f"{rename} {other} TO {one}", f"{rename} aside TO {other}"]

    def _add(self) -> list[str]:
        name, columns = self._table()
        new = self._name()
        columns.append(new)
        return [f"ALTER TABLE {name} ADD COLUMN {new} {self._random.choice(['int', 'text', 'bigint'])}"]

    def _drop(self) -> list[str]:
        name, columns = self._table()
        if len(columns) < 2:
            return self._add()
        return [f"ALTER TABLE {name} DROP COLUMN {columns.pop(self._random.randrange(len(columns)))}"]

    def _rename_table(self) -> list[str]:
        name, new = self._table()[0], self._name()
        self._tables[new] = self._tables.pop(name)
        return [f"ALTER TABLE {name} RENAME TO {new}"]

    def _swap_tables(self) -> list[str]:
        one, other = self.tables
        self._tables = {one: self._tables[other], other: self._tables[one]}
        rename = "ALTER TABLE {} RENAME TO {}"
        return [rename.format(one, "aside"), rename.format(other, one), rename.format("aside", other)]


def rows(connection: psycopg.Connection[Any], table: str) -> list[str]:
    query = sql.SQL("SELECT to_jsonb(t)::text FROM {} t ORDER BY id").format(sql.Identifier("public", table))
    return [row for (row,) in connection.execute(query)]


def columns(connection: psycopg.Connection[Any], table: str) -> set[tuple[str, str]]:
    query = (
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    )
    return set(connection.execute(query, [f"public.{table}"]))


def texts(connection: psycopg.Connection[Any] | duckdb.DuckDBPyConnection, table: str, names: list[str]) -> list[str]:
    query = f"SELECT {', '.join(f'CAST({name} AS varchar)' for name in names)} FROM public.{table}"
    found = (
        connection.execute(query.encode()) if isinstance(connection, psycopg.Connection) else connection.execute(query)
    )
    return sorted(map(repr, found.fetchall()))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_targets_equal_the_source_in_data_and_in_shape(
    seed: int, database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database, target_settings=", on_drop: drop")
    pipeline.execute(TABLES)
    source = Source(seed)
    with pipeline.running(spark):
        pipeline.await_streaming()
        for statements in source.transactions(40):
            with psycopg.connect(database) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
        for table in source.tables:  # DuckDB hears of new columns with the next change
            pipeline.execute(f"UPDATE {table} SET id = id")
        pipeline.await_arrival()
    with (
        psycopg.connect(database) as ours,
        psycopg.connect(target_database) as theirs,
        duckdb.connect(str(tmp_path / "p" / "lake.duckdb"), read_only=True) as lake,
    ):
        for table in source.tables:
            assert columns(theirs, table) == columns(ours, table)
            assert rows(theirs, table) == rows(ours, table)
            names = sorted(name for name, _ in columns(ours, table))
            assert texts(lake, table, names) == texts(ours, table, names)


def test_what_was_rolled_back_arrives_nowhere(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database)
    pipeline.execute(TABLES)
    with pipeline.running(spark):
        pipeline.await_streaming()
        with psycopg.connect(database) as connection:
            connection.execute("ALTER TABLE red RENAME COLUMN a TO gone")
            connection.rollback()
            connection.execute("SAVEPOINT s; ALTER TABLE blue RENAME TO green; ROLLBACK TO SAVEPOINT s")
            connection.execute(
                "INSERT INTO red VALUES (100, 'still a', 1); INSERT INTO blue VALUES (100, 'still blue', 1)"
            )
        pipeline.await_arrival()
    with psycopg.connect(database) as ours, psycopg.connect(target_database) as theirs:
        for table in ("red", "blue"):
            assert columns(theirs, table) == columns(ours, table)
            assert rows(theirs, table) == rows(ours, table)
