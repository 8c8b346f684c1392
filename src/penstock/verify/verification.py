"""``verify`` of a pipeline: which tables of which sinks are compared, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.changelog.admission import read_admission
from penstock.config.model import Config
from penstock.config.sink import SinkSettings
from penstock.errors import ConfigError, SourceRefused
from penstock.imports.layout import TableLayout, table_layout
from penstock.imports.plan import Chunk, chunk_query, plan_chunks
from penstock.postgres import subscription
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.publication import PublishedTable, published_tables
from penstock.postgres.subscription import Subscription
from penstock.sinks.contract import Sink
from penstock.sinks.duckdb import DuckDBSettings
from penstock.sinks.postgres import PostgresSettings
from penstock.state import PipelineState
from penstock.tables import Tables
from penstock.verify.comparison import TableComparison
from penstock.verify.duckdb_target import DuckDBTarget
from penstock.verify.postgres_target import PostgresTarget
from penstock.verify.report import Progress, TableReport, unwatched
from penstock.verify.standing import Standing
from penstock.verify.target import VerifiableTarget

VERIFIABLE = ("duckdb", "postgres")


@dataclass(frozen=True)
class Verification:
    """Over one connection to the source, in autocommit."""

    connection: Connection
    config: Config
    sinks: Sequence[Sink[Any]]
    state: PipelineState
    most: int = 20
    progress: Progress = unwatched

    def reports(self, tables: Sequence[str] = (), chosen: bool = False) -> Iterator[TableReport]:
        """Of each sink and table in turn. ``chosen``: these sinks were named, so each of them must be verifiable."""
        found = subscription.find(self.connection, self.config.name, self.config.source.publications)
        if found is None:
            raise SourceRefused(
                f'The subscription "{self.config.name}" does not exist on the source, so there is nothing to compare.',
                "Run `penstock init` first.",
            )
        sinks = self._verifiable(chosen)
        wanted = self._tables(found, tables)
        for settings in sinks:
            with closing(_target(settings, self._url, found.publications)) as target:
                standing = Standing(self.connection, found, self.state, settings.name, target.position)
                for table in wanted:
                    yield self._table(settings.name, target, standing, found, table)

    @property
    def _url(self) -> str:
        return self.config.source.url.get_secret_value()

    def _verifiable(self, chosen: bool) -> list[SinkSettings]:
        found = [sink.settings for sink in self.sinks if sink.settings.type in VERIFIABLE]
        others = [sink.settings.name for sink in self.sinks if sink.settings.type not in VERIFIABLE]
        if not found or (chosen and others):
            raise ConfigError(
                f"There is nothing to compare in {', '.join(others)}: only sinks of type {' and '.join(VERIFIABLE)} hold "
                "tables.",
                "Name one of those with --sink.",
            )
        return found

    def _tables(self, found: Subscription, names: Sequence[str]) -> list[PublishedTable]:
        if names:
            return Tables(self.connection, self.config, self.sinks, self.state).find(names)
        return published_tables(self.connection, found.publications)

    def _table(
        self, sink: str, target: VerifiableTarget, standing: Standing, found: Subscription, table: PublishedTable
    ) -> TableReport:
        layout = table_layout(self.connection, table.oid, found.publications)
        if layout is None:
            return _left_out(sink, table, "it is a part of another published table, or was dropped")
        if self.config.source.copies and read_admission(self.state.parts, sink).after(table.oid) is None:
            return _left_out(sink, table, "its import is not complete; `penstock tables FILE list` shows how far it is")
        pair = target.pair(layout)
        if pair is None:
            return self._absent(sink, target, standing, layout, table)
        chunks = plan_chunks(self.connection, layout, self.config.source.copying.chunk_bytes)
        workers = min(4, self.config.source.copying.connections)

        def moved(rows: int) -> None:
            self.progress(sink, table.qualified_name, rows, layout.rows_estimated)

        return TableComparison(
            sink, layout, pair, chunks, standing.catch_up, workers=workers, most=self.most, progress=moved
        ).run()

    def _absent(
        self, sink: str, target: VerifiableTarget, standing: Standing, layout: TableLayout, table: PublishedTable
    ) -> TableReport:
        """A sink may make a table only when its first row comes, so without rows in the source nothing is lacking."""
        before = self._has_rows(layout)
        standing.catch_up()
        if target.pair(layout) is not None:
            return _left_out(sink, table, "it came into the sink at this moment; verify it again")
        if not (before and self._has_rows(layout)):
            return TableReport(sink, table.schema, table.table, "equal", because="neither side has rows")
        return TableReport(sink, table.schema, table.table, "differs", because="the sink has no such table")

    def _has_rows(self, layout: TableLayout) -> bool:
        query = sql.SQL("select exists ({})").format(chunk_query(layout, Chunk(1, "whole")))
        with translated_errors(f"Reading table {layout.relation.qualified_name}"):
            return self.connection.execute(query).fetchone() == (True,)


def _left_out(sink: str, table: PublishedTable, because: str) -> TableReport:
    return TableReport(sink, table.schema, table.table, "left_out", because=because)


def _target(settings: SinkSettings, source_url: str, publications: Sequence[str]) -> DuckDBTarget | PostgresTarget:
    if isinstance(settings, DuckDBSettings):
        return DuckDBTarget(settings, source_url, publications)
    assert isinstance(settings, PostgresSettings)
    return PostgresTarget(settings.name, settings.url.get_secret_value(), source_url)
