"""A pipeline in this process that copies and streams: capture, copier and delivery in threads, on a shared Spark session."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from penstock.config.load import load_config
from penstock.imports.copying import CopierTask
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.rules.passage import Passage
from penstock.spark.deliveries import Deliveries
from penstock.spark.imports import copied
from penstock.testing.conditions import wait_until
from tests.imports.replay import ImportReplay
from tests.recovery.comparison import differences, duckdb_rows, source_rows
from tests.recovery.workload import Table

_CONFIG = """
name: {name}
state_dir: state
source: {{url: "{url}", mode: {mode}, tables: {{include: ["*.*"]}}, copy: {{{copy}}}}}
log: {{segment_bytes: 1MiB{log}}}
spark: {{conf: {{spark.sql.streaming.pollingDelay: 25ms}}}}  # an idle query leaves the processor to others
sinks:
  - {{name: lake, type: duckdb, path: lake.duckdb{settings}}}
  - {{name: events, type: file, path: events}}
"""
_REPLICA = '  - {{name: replica, type: postgres, url: "{url}"{settings}}}\n'


class PipelineWithImports:
    """``copy`` and ``log`` are the insides of the config's sections. ``target``: a database for a replica, whose sink has
    ``target_settings`` besides, after a comma; ``settings`` are those of both sinks that have tables. ``sinks``: lines of the
    config with more of them."""

    def __init__(
        self,
        url: str,
        directory: Path,
        copy: str = "workers: 2, chunk_bytes: 1MiB",
        log: str = "",
        name: str = "imports",
        mode: str = "copy_and_stream",
        target: str | None = None,
        target_settings: str = "",
        settings: str = "",
        sinks: str = "",
    ) -> None:
        self.url, self.directory, self.target = url, directory, target
        directory.mkdir(exist_ok=True)
        self.file = directory / "penstock.yaml"
        more_log = f", {log}" if log else ""
        config = _CONFIG.format(url=url, copy=copy, log=more_log, name=name, mode=mode, settings=settings)
        replica = _REPLICA.format(url=target, settings=settings + target_settings) if target else ""
        self.file.write_text(config + replica + sinks)
        self.pipeline = Pipeline(load_config(self.file))
        self.state = self.pipeline.state

    def execute(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def running(self, spark: SparkSession, sinks: Sequence[str] = ()) -> Iterator[None]:
        """For as long as the block runs. What stops one of its threads is raised at the end of the block."""
        self.pipeline.init()
        self.pipeline.reconcile()
        stop, errors = threading.Event(), list[BaseException]()

        def run(action: object) -> None:
            try:
                assert callable(action)
                action()
            except BaseException as error:  # noqa: BLE001  carried to the test
                errors.append(error)

        def deliver() -> None:
            chosen, config = self.pipeline.sinks(sinks), self.pipeline.config
            with copied(spark, config, chosen, self.state, CopierTask()) as unfinished:
                Deliveries(spark, chosen, self.state, True, Passage(config.rules)).run(stop, None, False, unfinished)

        threads = [
            threading.Thread(target=run, args=[action]) for action in (lambda: self.pipeline.capture(stop), deliver)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "it does not stop"
        if errors:
            raise errors[0]

    def states(self) -> dict[tuple[str, str], str]:
        """By qualified name and sink."""
        return {(table.qualified_name, table.sink): table.state for table in self.pipeline.tables()}

    def all_streaming(self) -> bool:
        return set(self.states().values()) == {"streaming"}

    def await_streaming(self, timeout: float = 240) -> None:
        wait_until(self.all_streaming, timeout=timeout, what="all tables to stream")

    def await_arrival(self, timeout: float = 120) -> None:
        """Until all sinks hold what is committed now."""
        self.await_arrival_in([sink.name for sink in self.pipeline.config.sinks], timeout)

    def await_arrival_in(self, names: Sequence[str], timeout: float = 120) -> None:
        """Until these sinks hold what is committed now."""
        with connect(self.url) as connection:
            now = catalog.wal_marker(connection)
        known = self.state.sink
        wait_until(
            lambda: all((state := known(name)) and state.lsn and state.lsn >= now for name in names),
            timeout=timeout,
            what=f"the sinks to reach {now}",
        )

    def wrong(self, tables: Sequence[Table]) -> list[str]:
        """How the sinks differ from the source."""
        replay = ImportReplay(tables)
        replay.read(self.directory / "events")
        lake = duckdb_rows(self.directory / "lake.duckdb", tables)
        wrong = list(replay.faults)
        with psycopg.connect(self.url) as connection:
            for table in tables:
                rows = source_rows(connection, table)
                wrong += differences("DuckDB", table, rows, lake[table])
                wrong += differences("replayed events", table, rows, replay.rows(table))
                if self.target is not None:
                    with psycopg.connect(self.target) as replica:
                        wrong += differences("the replica", table, rows, source_rows(replica, table))
        return wrong
