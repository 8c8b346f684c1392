"""A DuckDB sink over a file, driven without Spark: what goes in as changes, what comes out as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from penstock.changes.batch import ChangeBatch
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.duckdb.sink import DuckDBSink


class Lake:
    """``deliver`` is one micro-batch; its changes must have commit LSNs below 0x1000 times its number."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.path = directory / "lake.duckdb"
        self._staging = directory / "staging"
        self._settings = settings
        self.sink = self.named("lake")
        self.sink.prepare()
        self._number = 0

    def named(self, name: str) -> DuckDBSink:
        return DuckDBSink(DuckDBSink.Settings(name=name, type="duckdb", path=self.path, **self._settings))

    def deliver(self, *changes: ChangeBatch) -> None:
        start = LSN(0x1000 * self._number)
        batch = Batch(self._number, start, LSN(start + 0x1000), str(self._staging))
        self.sink.commit(batch, [self.sink.write(batch, iter(changes))])
        self._number += 1

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.path, read_only=True) as connection:
            return connection.execute(query).fetchall()

    def execute(self, statement: str) -> None:
        """As somebody else who has the file open for a moment."""
        with duckdb.connect(self.path) as connection:
            connection.execute(statement)
