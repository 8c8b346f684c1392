"""The soak with imports: tables are copied at the beginning, and some of them again in every round, while things are killed.

What is compared is what the tables come to. That each change comes once is what the soak without imports watches: here, a
reader of events gets rows twice by design.
"""

from __future__ import annotations

import psycopg

from penstock.config.load import load_config
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.testing.conditions import wait_until
from tests.imports.replay import ImportReplay
from tests.recovery.comparison import differences, duckdb_rows, replica_rows, source_rows
from tests.recovery.soak import Soak
from tests.recovery.workload import ROUNDS, TABLES

_COPIED_AGAIN = 3  # tables, before each kill


class ImportSoak(Soak):
    """``source``: chunks so small that every table has several."""

    source = ", mode: copy_and_stream, copy: {workers: 2, chunk_bytes: 16KiB}"

    def _fill_tables(self) -> None:
        self._load.run(60)

    def _watch(self) -> None:
        """There is nobody to ask what was read; the tables are the truth."""

    def _load_with_a_kill(self) -> None:
        tables = self._random.sample([table for table in TABLES if table is not ROUNDS], _COPIED_AGAIN)
        pipeline = Pipeline(load_config(self._directory / "penstock.yaml"))
        pipeline.resync_tables([str(table) for table in tables])
        super()._load_with_a_kill()

    def _await_arrival(self, number: int) -> None:
        with connect(self._server.url) as connection:
            end = catalog.wal_marker(connection)
            wait_until(lambda: self._complete(connection), timeout=300, what=f"the imports of round {number}")
        wait_until(lambda: min(self._positions()) >= end, timeout=180, what=f"round {number} to arrive in all sinks")

    def _complete(self, connection: psycopg.Connection) -> bool:
        assert self._pipeline.alive, self.said()
        query = "select 1 from penstock.import_jobs where state not in ('streaming', 'expired') limit 1"
        return connection.execute(query).fetchone() is None

    def _read_events(self) -> None:
        """All of them at the comparison, and not before."""

    def compare(self) -> list[str]:
        replay = ImportReplay(TABLES)
        replay.read(self._directory / "events")
        wrong = replay.faults[:5]
        lake = duckdb_rows(self._directory / "lake.duckdb", TABLES)
        with psycopg.connect(self._server.url) as connection, psycopg.connect(self._target) as replica:
            for table in TABLES:
                rows = source_rows(connection, table)
                wrong += differences("DuckDB", table, rows, lake[table])
                wrong += differences("replayed events", table, rows, replay.rows(table))
                wrong += differences("the replica", table, rows, replica_rows(replica, table))
        return wrong
