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
CREATE TABLE red (id int PRIMARY KEY, code int NOT NULL UNIQUE, a text, b int);
CREATE TABLE blue (id int PRIMARY KEY, code int NOT NULL UNIQUE, x text, y int);
INSERT INTO red SELECT n, n + 5000, 'red ' || n, n FROM generate_series(1, 50) n;
INSERT INTO blue SELECT n, n + 5000, 'blue ' || n, n FROM generate_series(1, 50) n;
"""
IN_DUCKDB = {
    "integer": "INTEGER", "bigint": "BIGINT", "text": "VARCHAR", "timestamp without time zone": "TIMESTAMP",
}  # fmt: skip


class Source:
    """What its two tables and their columns are called now. Each statement is legal when it comes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tables = {"red": {"a": "text", "b": "int"}, "blue": {"x": "text", "y": "int"}}
        self._keys = {"red": ("red_pkey", "id"), "blue": ("blue_pkey", "id")}
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
            self._add_with_default,
            self._drop,
            self._retype,
            self._change_key,
            self._rename_table,
            self._swap_tables,
        )
        return self._random.choice(kinds if self._random.random() < 0.6 else altering)()

    def _name(self) -> str:
        self._number += 1
        return f"n{self._number}"

    def _table(self) -> tuple[str, dict[str, str]]:
        name = self._random.choice(self.tables)
        return name, self._tables[name]

    def _value(self, type_: str) -> str:
        number = self._random.randint(0, 999)
        return f"timestamp '2026-01-01' + interval '{number} hours'" if type_ == "timestamp" else f"'{number}'"

    def _insert(self) -> list[str]:
        self._id += 1
        name, columns = self._table()
        values = ", ".join(map(self._value, columns.values()))
        return [f"INSERT INTO {name} (id, code, {', '.join(columns)}) VALUES ({self._id}, {self._id + 5000}, {values})"]

    def _update(self) -> list[str]:
        name, columns = self._table()
        column = self._random.choice(list(columns))
        value = self._value(columns[column])
        return [f"UPDATE {name} SET {column} = {value} WHERE mod(id, 7) = {self._random.randint(0, 6)}"]

    def _delete(self) -> list[str]:
        return [f"DELETE FROM {self._table()[0]} WHERE mod(id, 23) = {self._random.randint(0, 22)}"]

    def _rename_column(self) -> list[str]:
        name, columns = self._table()
        old, new = self._random.choice(list(columns)), self._name()
        columns[new] = columns.pop(old)
        return [f"ALTER TABLE {name} RENAME COLUMN {old} TO {new}"]

    def _swap_columns(self) -> list[str]:
        name, columns = self._table()
        if len(columns) < 2:
            return self._add()
        one, other = self._random.sample(list(columns), 2)
        columns[one], columns[other] = columns[other], columns[one]
        rename = f"ALTER TABLE {name} RENAME COLUMN"
        return [f"{rename} {one} TO aside", f"{rename} {other} TO {one}", f"{rename} aside TO {other}"]

    def _add(self) -> list[str]:
        name, columns = self._table()
        new, type_ = self._name(), self._random.choice(["int", "text", "bigint", "timestamp"])
        columns[new] = type_
        return [f"ALTER TABLE {name} ADD COLUMN {new} {type_}"]

    def _add_with_default(self) -> list[str]:
        """Old rows have its value, without being written."""
        name, columns = self._table()
        new = self._name()
        type_, default = self._random.choice([("int", "7"), ("text", "'it''s {so}'"), ("timestamp", "now()")])
        columns[new] = type_
        not_null = self._random.choice(["", " NOT NULL"])
        return [f"ALTER TABLE {name} ADD COLUMN {new} {type_}{not_null} DEFAULT {default}"]

    def _drop(self) -> list[str]:
        name, columns = self._table()
        if len(columns) < 2:
            return self._add()
        gone = self._random.choice(list(columns))
        del columns[gone]
        return [f"ALTER TABLE {name} DROP COLUMN {gone}"]

    def _retype(self) -> list[str]:
        name, columns = self._table()
        column = self._random.choice(list(columns))
        columns[column] = "bigint" if columns[column] == "int" and self._random.random() < 0.5 else "text"
        return [
            f"ALTER TABLE {name} ALTER COLUMN {column} DROP DEFAULT",
            f"ALTER TABLE {name} ALTER COLUMN {column} TYPE {columns[column]}",
        ]

    def _change_key(self) -> list[str]:
        name, _ = self._table()
        constraint, column = self._keys[name]
        self._keys[name] = (f"{self._name()}_key", "code" if column == "id" else "id")
        new = "ADD CONSTRAINT {} PRIMARY KEY ({})".format(*self._keys[name])
        return [f"ALTER TABLE {name} DROP CONSTRAINT {constraint}, {new}"]

    def _rename_table(self) -> list[str]:
        name, new = self._table()[0], self._name()
        self._tables[new], self._keys[new] = self._tables.pop(name), self._keys.pop(name)
        return [f"ALTER TABLE {name} RENAME TO {new}"]

    def _swap_tables(self) -> list[str]:
        one, other = self.tables
        self._tables = {one: self._tables[other], other: self._tables[one]}
        self._keys = {one: self._keys[other], other: self._keys[one]}
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


def lake_columns(lake: duckdb.DuckDBPyConnection, table: str) -> set[tuple[str, str]]:
    query = "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = 'public' AND table_name = ?"
    return set(lake.execute(query, [table]).fetchall())


def wrong(database: str, target_database: str, path: Path, tables: list[str]) -> list[str]:
    """How the replica and the file differ from the source, in columns and in rows."""
    found = []
    with (
        psycopg.connect(database) as ours,
        psycopg.connect(target_database) as theirs,
        duckdb.connect(str(path), read_only=True) as lake,
    ):
        for table in tables:
            wanted = columns(ours, table)
            names = sorted(name for name, _ in wanted)
            if columns(theirs, table) != wanted or rows(theirs, table) != rows(ours, table):
                found.append(f"{table} of the replica")
            in_duckdb = {(name, IN_DUCKDB[kind]) for name, kind in wanted}
            if lake_columns(lake, table) != in_duckdb or texts(lake, table, names) != texts(ours, table, names):
                found.append(f"{table} of the file")
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_targets_equal_the_source_in_data_and_in_shape(
    seed: int, database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database, settings=", on_drop: drop")
    pipeline.execute(TABLES)
    source = Source(seed)
    with pipeline.running(spark):
        pipeline.await_streaming()
        for statements in source.transactions(40):
            with psycopg.connect(database) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
        pipeline.await_arrival()
    assert wrong(database, target_database, tmp_path / "p" / "lake.duckdb", source.tables) == []


def test_a_table_made_again_and_two_that_swap_their_names_are_the_sources(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database, settings=", on_drop: drop")
    pipeline.execute(TABLES)
    pipeline.execute("CREATE TABLE green (id int PRIMARY KEY, c text); INSERT INTO green VALUES (1, 'old'), (2, 'old')")
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.execute(
            "DELETE FROM green WHERE id = 1; DROP TABLE green; CREATE TABLE green (id bigint PRIMARY KEY, d timestamp); "
            "INSERT INTO green VALUES (1, '2026-01-01'), (9, NULL)"
        )
        pipeline.execute(
            "ALTER TABLE red RENAME TO aside; ALTER TABLE blue RENAME TO red; ALTER TABLE aside RENAME TO blue; "
            "INSERT INTO red VALUES (100, 100, 'was blue', 1); UPDATE blue SET b = -b WHERE id < 5"
        )
        pipeline.pipeline.reconcile()  # as it does by itself every few seconds
        pipeline.await_streaming()
        pipeline.execute("UPDATE green SET d = '2026-02-02' WHERE id = 9")
        pipeline.await_arrival()
    assert wrong(database, target_database, tmp_path / "p" / "lake.duckdb", ["red", "blue", "green"]) == []


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
                "INSERT INTO red VALUES (100, 100, 'still a', 1); INSERT INTO blue VALUES (100, 100, 'still blue', 1)"
            )
        pipeline.await_arrival()
    with psycopg.connect(database) as ours, psycopg.connect(target_database) as theirs:
        for table in ("red", "blue"):
            assert columns(theirs, table) == columns(ours, table)
            assert rows(theirs, table) == rows(ours, table)
