"""``verify`` of a pipeline: which tables of which sinks are compared, and by what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import sql

from penstock.changelog.admission import Ready, read_admission
from penstock.config.model import Config
from penstock.control.tables import Tables
from penstock.error_policy import policy_for
from penstock.errors import ConfigError, SourceRefused, UnrepresentableValue
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.chunks import Chunk, chunk_query, plan_chunks
from penstock.postgres.reading.layout import TableLayout, table_layout
from penstock.sinks.contract import Sink, SinkContext
from penstock.sinks.verifying import Expected, TablePair, VerifiableTarget
from penstock.state.pipeline_state import PipelineState
from penstock.subscription import subscription
from penstock.subscription.publication import PublishedTable, published_tables
from penstock.subscription.subscription import Subscription
from penstock.verify.comparison import TableComparison
from penstock.verify.judging import Standing
from penstock.verify.report import Progress, TableReport, unwatched
from penstock.verify.ruled_tables import RuledTables, ruled_tables

_NO_TABLE = "it is a part of another published table, or was dropped"
_INCOMPLETE = "is not complete; `penstock tables FILE list` shows how far it is"
_IMPORTED_AGAIN = "it was imported again while it was compared; verify it again"
_KEYS_AT_ONCE, _KEYS_PER_SCAN = 2_000, 20_000


@dataclass(frozen=True)
class Verification:
    """Over one connection to the source, in autocommit."""

    connection: Connection
    config: Config
    sinks: Sequence[Sink[Any, Any]]
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
        ruled = self._ruled(found)
        groups = list(dict.fromkeys(ruled.get(table.oid, table) for table in wanted))
        context = SinkContext(self.config.name, self._url, found.publications)
        for sink in sinks:
            name, target = sink.settings.name, sink.verification(context)
            if target is None:
                continue
            with closing(target):
                standing = Standing(self.connection, found, self.state, name, target.position)
                for table in groups:
                    if isinstance(table, RuledTables):
                        with_rules = partial(self._ruled_tables, name, target, standing, table)
                        yield _if_comparable(name, table.members[0].table, with_rules, table.described)
                    else:
                        as_it_is = partial(self._table, name, target, standing, found, table)
                        yield _if_comparable(name, table, as_it_is)

    @property
    def _url(self) -> str:
        return self.config.source.url.get_secret_value()

    def _verifiable(self, chosen: bool) -> list[Sink[Any, Any]]:
        verifiable = [sink for sink in self.sinks if sink.capabilities.verifiable]
        others = [
            f"{sink.settings.name} (type {sink.settings.type})"
            for sink in self.sinks
            if not sink.capabilities.verifiable
        ]
        if not verifiable or (chosen and others):
            raise ConfigError(
                f"There is nothing to compare in {', '.join(others)}: only sinks of type duckdb and postgres, and your own "
                "that hold tables, can be compared with the source.",
                "Name one of those with --sink.",
            )
        return verifiable

    def _tables(self, found: Subscription, names: Sequence[str]) -> list[PublishedTable]:
        if names:
            return Tables(self.connection, self.config, self.sinks, self.state).find(names)
        return published_tables(self.connection, found.publications)

    def _table(
        self, sink: str, target: VerifiableTarget, standing: Standing, found: Subscription, table: PublishedTable
    ) -> TableReport:
        layout = table_layout(self.connection, table.oid, found.publications)
        if layout is None:
            return _left_out(sink, table, _NO_TABLE)
        if not layout.relation.columns:
            return _left_out(sink, table, "it has no columns that could be compared")
        imports = self._imports(sink, [table.oid])
        if imports is None:
            return _left_out(sink, table, f"its import {_INCOMPLETE}")
        pair = target.pair(layout)
        if pair is None:
            report = _absent(
                sink, table, standing, lambda: target.pair(layout) is not None, lambda: self._has_rows(layout)
            )
        else:
            shared = target.has_rows_of_others(layout.relation)
            report = self._compared(sink, table, layout, pair, self._chunks(layout), standing, shared)
        return self._unless_imported_again(report, table, [table.oid], imports)

    def _ruled(self, found: Subscription) -> dict[int, RuledTables]:
        """By the oids of the tables that the rules are for."""
        if not self.config.rules:
            return {}
        published = published_tables(self.connection, found.publications)
        return ruled_tables(self.connection, self._url, self.config.rules, found.publications, published)

    def _ruled_tables(
        self, sink: str, target: VerifiableTarget, standing: Standing, planned: RuledTables
    ) -> TableReport:
        table = planned.members[0].table
        tables = planned.refreshed(self.connection)
        if tables is None:
            return planned.described(_left_out(sink, table, _NO_TABLE))
        if tables.obstacle is not None:
            return tables.described(_left_out(sink, table, tables.obstacle))
        oids = [member.table.oid for member in tables.members]
        imports = self._imports(sink, oids)
        if imports is None:
            awaited = [member.name for member in tables.members if self._imports(sink, [member.table.oid]) is None]
            which = f"the import of {', '.join(awaited)}" if len(tables.members) > 1 else "its import"
            return tables.described(_left_out(sink, table, f"{which} {_INCOMPLETE}"))
        rows = tables.rows([self._chunks(member.layout) for member in tables.members])
        expected = Expected(rows, tables.origins, tables.transformed)
        pair = target.ruled_pair(expected)
        if pair is None:
            report = _absent(sink, table, standing, lambda: target.ruled_pair(expected) is not None, rows.any)
        else:
            # Where a key cannot be looked up, all rows are read to judge some.
            keys_at_once = _KEYS_PER_SCAN if tables.transforms_key else _KEYS_AT_ONCE
            shared = target.has_rows_of_others(rows.relation)
            report = self._compared(sink, table, tables.layout, pair, rows.chunks, standing, shared, keys_at_once)
        return tables.described(self._unless_imported_again(report, table, oids, imports))

    def _compared(
        self, sink: str, table: PublishedTable, layout: TableLayout, pair: TablePair, chunks: Sequence[Chunk],
        standing: Standing, shared: bool, keys_at_once: int = _KEYS_AT_ONCE,
    ) -> TableReport:  # fmt: skip
        def moved(rows: int) -> None:
            self.progress(sink, table.qualified_name, rows, layout.rows_estimated)

        return TableComparison(
            sink, layout, pair, chunks, standing.catch_up, workers=min(4, self.config.source.copying.connections),
            most=self.most, keys_at_once=keys_at_once, shared=shared, progress=moved,
        ).run()  # fmt: skip

    def _chunks(self, layout: TableLayout) -> list[Chunk]:
        return plan_chunks(self.connection, layout, self.config.source.copying.chunk_bytes)

    def _imports(self, sink: str, oids: Sequence[int]) -> list[Ready] | None:
        """The imports that the sink holds these tables by; None: one of them is not complete. Empty without imports."""
        if not self.config.source.copies:
            return []
        admission = read_admission(self.state.parts, sink)
        complete = [ready for oid in oids if (ready := admission.complete(oid)) is not None]
        return complete if len(complete) == len(oids) else None

    def _unless_imported_again(
        self, report: TableReport, table: PublishedTable, oids: Sequence[int], imports: list[Ready]
    ) -> TableReport:
        """While a table waits for another import, its changes do not reach the sink: a difference says nothing then."""
        if report.state == "differs" and self._imports(report.sink, oids) != imports:
            return _left_out(report.sink, table, _IMPORTED_AGAIN)
        return report

    def _has_rows(self, layout: TableLayout) -> bool:
        query = sql.SQL("select exists ({})").format(chunk_query(layout, Chunk(1, "whole")))
        with translated_errors(f"Reading table {layout.relation.qualified_name}"):
            return self.connection.execute(query).fetchone() == (True,)


def _if_comparable(
    sink: str, table: PublishedTable, compare: Callable[[], TableReport],
    described: Callable[[TableReport], TableReport] = lambda report: report,
) -> TableReport:  # fmt: skip
    """A value that the sink cannot hold concerns its table alone: all others are compared."""
    try:
        return compare()
    except UnrepresentableValue as error:
        because = f"{error} {policy_for(error).advice}"
        return described(TableReport(sink, table.schema, table.table, "not_comparable", because=because))


def _absent(
    sink: str, table: PublishedTable, standing: Standing, has_come: Callable[[], bool], has_rows: Callable[[], bool]
) -> TableReport:
    """A sink may make a table only when its first row comes, so without rows in the source nothing is lacking."""
    before = has_rows()
    standing.catch_up()
    if has_come():
        return _left_out(sink, table, "it came into the sink at this moment; verify it again")
    if not (before and has_rows()):
        return TableReport(sink, table.schema, table.table, "equal", because="neither side has rows")
    return TableReport(sink, table.schema, table.table, "differs", because="the sink has no such table")


def _left_out(sink: str, table: PublishedTable, because: str) -> TableReport:
    return TableReport(sink, table.schema, table.table, "left_out", because=because)
