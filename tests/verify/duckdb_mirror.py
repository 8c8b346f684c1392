"""A source and a DuckDB file that holds what it does, filled by the sink itself, without Spark; and how they compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
from psycopg import sql

from penstock.lsn import LSN
from penstock.postgres import catalog
from penstock.postgres.connection import Connection
from penstock.postgres.reading.chunks import Chunk, plan_chunks
from penstock.postgres.reading.layout import TableLayout, table_layout
from penstock.postgres.reading.read_chunk import ChunkReader
from penstock.sinks.contract import Batch
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.sinks.duckdb.verify import DuckDBPair, DuckDBTarget
from penstock.verify.comparison import TableComparison
from penstock.verify.report import TableReport

PUBLICATION = "verified"
PIPELINE = "shop"


def layout_of(
    connection: Connection, table: str, schema: str = "public", publications: Sequence[str] = (PUBLICATION,)
) -> TableLayout:
    name = sql.Identifier(schema, table).as_string(connection)
    row = connection.execute("select %s::regclass::oid", [name]).fetchone()
    assert row is not None
    layout = table_layout(connection, row[0], publications)
    assert layout is not None
    return layout


class Mirror:
    """``fill`` takes all rows that the table has now to the file, as an import of them would."""

    def __init__(
        self,
        connection: Connection,
        url: str,
        directory: Path,
        publications: Sequence[str] = (PUBLICATION,),
        **settings: Any,
    ) -> None:
        self._publications = publications
        self.connection, self.url, self.path = connection, url, directory / "lake.duckdb"
        self._staging = directory / "staging"
        self.settings = DuckDBSink.Settings(name="lake", type="duckdb", path=self.path, **settings)
        self.sink = DuckDBSink(self.settings)
        self.sink.pipeline = PIPELINE
        self.sink.prepare()
        self.target = DuckDBTarget(self.settings, url, publications, PIPELINE)
        self._batches = 0
        self._position = LSN(0)

    def source(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def lake(self, statement: str) -> None:
        """As somebody who has the file open for a moment, and no business there."""
        with duckdb.connect(self.path) as connection:
            connection.execute(statement)

    def fill(self, *tables: str, schema: str = "public") -> LSN:
        layouts = [layout_of(self.connection, table, schema, self._publications) for table in tables]
        end = catalog.wal_marker(self.connection)
        batch = Batch(self._batches, self._position, end, str(self._staging / str(self._batches)))
        receipts = []
        for layout in layouts:
            reader = ChunkReader(self.url, layout, Chunk(1, "whole"), LSN(end - 1), self._publications)
            receipts.append(self.sink.write(batch, reader.batches()))
        self.sink.commit(batch, receipts)
        self._batches, self._position = self._batches + 1, end
        return end

    def pair(self, table: str, schema: str = "public") -> DuckDBPair:
        found = self.target.pair(layout_of(self.connection, table, schema))
        assert found is not None
        return found

    def compare(
        self, table: str, schema: str = "public", catch_up: Callable[[], object] = lambda: None, **more: Any
    ) -> TableReport:
        layout = layout_of(self.connection, table, schema)
        chunks = plan_chunks(self.connection, layout, 1 << 16)
        return TableComparison("lake", layout, self.pair(table, schema), chunks, catch_up, **more).run()

    def close(self) -> None:
        self.target.close()
        self.sink.close()


def said(report: TableReport) -> list[str]:
    return [str(difference) for difference in report.differences]
