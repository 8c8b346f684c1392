"""A pipeline with rules whose two sinks, a DuckDB file and a Postgres, were filled through them, without Spark."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import yaml

from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import Connection
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.read_chunk import ChunkReader
from penstock.rules.compiled import CompiledRules
from penstock.sinks.contract import Batch, Sink
from penstock.verify.report import TableReport
from tests.verify.duckdb_mirror import layout_of, said

PUBLICATIONS = ("shop", "shop_inserts")


class RuledShop:
    def __init__(self, pipeline: Pipeline, source: Connection, replica: Connection, directory: Path) -> None:
        self.pipeline, self.source, self.replica = pipeline, source, replica
        self.file = directory / "penstock.yaml"
        self.lake, self._staging = directory / "lake.duckdb", directory / "staging"
        self._batches, self._position = 0, LSN(0)

    def begin(self, tables: str, *rules: dict[str, Any]) -> None:
        """Makes the tables, and fills the sinks with what the rules make of them."""
        self.source.execute(tables.encode())
        self.configure(rules=list(rules))
        self.pipeline.init()
        self.fill()

    def configure(self, **keys: Any) -> None:
        """These keys of the config file."""
        self.file.write_text(yaml.safe_dump({**yaml.safe_load(self.file.read_text()), **keys}))
        self.pipeline = Pipeline.from_file(self.file)

    def fill(self) -> None:
        end = catalog.wal_marker(self.source)
        batch = Batch(self._batches, self._position, end, str(self._staging / str(self._batches)))
        for sink in self.pipeline.sinks():
            with closing(sink):
                sink.prepare()
                sink.commit(batch, self._written(sink, batch, LSN(end - 1)))
        self._batches, self._position = self._batches + 1, end

    def _written(self, sink: Sink[Any, Any], batch: Batch, at: LSN) -> list[Any]:
        rules = CompiledRules(self.pipeline.config.rules)
        tables = self.source.execute(
            "select schemaname, tablename from pg_tables where schemaname !~ '^(pg_|penstock|information)' order by 1, 2"
        ).fetchall()
        layouts = [layout_of(self.source, table, schema, PUBLICATIONS) for schema, table in tables]
        url = self.source.info.dsn
        readers = [ChunkReader(url, each, Chunk(1, "whole"), at, PUBLICATIONS) for each in layouts]
        ruled = [rules.apply(rows) for reader in readers for rows in reader.batches()]
        return [sink.write(batch, iter([rows])) for rows in ruled if rows is not None]

    def sinks(self, *statements: str) -> None:
        """As somebody who has no business there, in both of them."""
        for statement in statements:
            self.replica.execute(statement.encode())
            with duckdb.connect(self.lake) as file:
                file.execute(statement)

    def verified(self, *tables: str, most: int = 20) -> list[TableReport]:
        return list(self.pipeline.verify(tables, most=most))

    def verify(self, *tables: str, most: int = 20) -> list[tuple[str, str, list[str]]]:
        """Table, state and differences of each report. Both sinks have to say the same."""
        found = self.verified(*tables, most=most)
        by_sink: list[list[tuple[str, str, list[str]]]] = [
            [(report.qualified_name, report.state, said(report)) for report in found if report.sink == sink]
            for sink in ("lake", "replica")
        ]
        assert by_sink[0] == by_sink[1]
        return by_sink[0]
