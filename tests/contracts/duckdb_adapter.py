"""The DuckDB sink for the contract suite: its state is the tables of its file."""

from __future__ import annotations

from typing import Any, ClassVar

import duckdb

from penstock.changes.batch import Relation
from penstock.sinks.contract import Sink
from penstock.sinks.duckdb.sink import DuckDBSink
from tests.contracts.sink_under_test import Row, SinkUnderTest


class DuckDBUnderTest(SinkUnderTest):
    name: ClassVar[str] = "duckdb"
    keeps_progress: ClassVar[bool] = True
    keeps_messages: ClassVar[bool] = False

    def new_sink(self) -> Sink[Any, Any]:
        path = self.directory / "lake.duckdb"
        return DuckDBSink(DuckDBSink.Settings(name="lake", type="duckdb", path=path, **self.settings))

    def execute(self, statements: str) -> None:
        with duckdb.connect(self.directory / "lake.duckdb") as connection:
            connection.execute(statements)

    def rows(self, relation: Relation) -> list[Row]:
        with duckdb.connect(self.directory / "lake.duckdb", read_only=True) as connection:
            if not _exists(connection, relation):
                return []
            columns = [column.name for column in relation.columns]
            texts = ", ".join(f"{_quoted(column)}::varchar" for column in columns)
            query = f"select {texts or 'true'} from {_quoted(relation.schema)}.{_quoted(relation.table)}"
            found = connection.execute(query).fetchall()
            return [dict(zip(columns, row, strict=True)) for row in found] if columns else [{} for _ in found]

    def messages(self) -> list[tuple[str, bytes]]:
        return []


def _exists(connection: duckdb.DuckDBPyConnection, relation: Relation) -> bool:
    query = "select 1 from duckdb_tables() where schema_name = ? and table_name = ?"
    return bool(connection.execute(query, [relation.schema, relation.table]).fetchall())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
