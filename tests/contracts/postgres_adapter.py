"""The Postgres sink for the contract suite: its state is the tables of a database."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg import conninfo, sql
from pydantic import SecretStr

from penstock.changes.batch import Relation
from penstock.sinks.contract import Sink
from penstock.sinks.postgres.sink import PostgresSink
from tests.contracts.sink_under_test import Row, SinkUnderTest


class PostgresUnderTest(SinkUnderTest):
    name: ClassVar[str] = "postgres"
    keeps_progress: ClassVar[bool] = True
    keeps_messages: ClassVar[bool] = False
    fixtures: ClassVar[tuple[str, ...]] = ("database",)
    rows_go_straight_in: ClassVar[bool] = True

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url
        self._databases: list[str] = []  # made here

    def beside(self, directory: Path) -> SinkUnderTest:
        name = f"beside_{uuid.uuid4().hex[:12]}"
        self._databases.append(name)
        self._execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return PostgresUnderTest(directory, conninfo.make_conninfo(self.url, dbname=name))

    def dispose(self) -> None:
        super().dispose()
        while self._databases:
            name = sql.Identifier(self._databases.pop())
            self._execute(sql.SQL("drop database {} (force)").format(name))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def execute(self, statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statements.encode())

    def new_sink(self) -> Sink[Any, Any]:
        url = SecretStr(self.url)
        return PostgresSink(PostgresSink.Settings(name="replica", type="postgres", url=url, **self.settings))

    def rows(self, relation: Relation) -> list[Row]:
        columns = [column.name for column in relation.columns]
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in columns)
        table = sql.Identifier(relation.schema, relation.table)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("set datestyle = 'ISO'; set timezone = 'UTC'")
            there = connection.execute("select to_regclass(%s)", [table.as_string(connection)]).fetchone()
            if there is None or there[0] is None:
                return []
            query = sql.SQL("select {} from {}").format(texts, table)
            return [dict(zip(columns, row, strict=True)) for row in connection.execute(query)]

    def messages(self) -> list[tuple[str, bytes]]:
        return []
