"""A small pipeline in this process: capture in a thread, delivery on the shared Spark session, one table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import psycopg
from pyspark.sql import SparkSession

from penstock.capture.capture import Capture
from penstock.changelog.log import ChangeLog
from penstock.config.load import load_config
from penstock.errors import PenstockError
from penstock.lsn import LSN, ZERO
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.rules.passage import Passage
from penstock.spark.deliveries import Deliveries
from penstock.testing.conditions import wait_until
from tests.recovery.comparison import Replay, differences, duckdb_rows, source_rows
from tests.recovery.workload import Table

ITEMS = Table("public", "items", ("id", "value"), ("id",))

_CONFIG = """
name: broken
state_dir: state
source: {{url: "{url}"{source}}}
log: {{{log}}}
spark: {{conf: {{spark.sql.streaming.pollingDelay: 25ms}}}}  # an idle query leaves the processor to others
sinks:
  - {{name: lake, type: duckdb, path: lake.duckdb}}
  - {{name: events, type: file, path: events}}
"""
_REPLICA = '  - {{name: replica, type: postgres, url: "{url}"{settings}}}\n'


class PipelineUnderTest:
    """Its table is ``items (id int primary key, value text)``; ``log`` is the inside of the config's log section.

    ``target``: a database for a replica, whose sink has ``target_settings`` besides, after a comma. ``rules``: lines of the
    config; those with which the sinks still hold what the source does. ``source``: more settings of the source, after a comma.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        log: str = "",
        target: str | None = None,
        target_settings: str = "",
        rules: str = "",
        source: str = "",
    ) -> None:
        self.url, self.directory, self.target = url, directory, target
        self.file = directory / "penstock.yaml"
        replica = _REPLICA.format(url=target, settings=target_settings) if target else ""
        self.file.write_text(_CONFIG.format(url=url, log=log, source=source) + replica + rules)
        self.config = load_config(self.file)
        self.pipeline = Pipeline(self.config)
        self.state = self.pipeline.state
        self.log = ChangeLog(self.state.log_uri)
        self.lake = directory / "lake.duckdb"

    def begin(self) -> None:
        self.execute("create table items (id int primary key, value text)")
        self.pipeline.init()
        self.state.create()

    def execute(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def insert(self, first: int, last: int, size: int = 10) -> None:
        """One transaction with these rows, ``size`` bytes each."""
        query = "insert into items select n, rpad(n::text, %s, 'x') from generate_series(%s::int, %s::int) n"
        self.execute(query, size, first, last)

    def insert_one_by_one(self, first: int, last: int, size: int = 10) -> None:
        for number in range(first, last + 1):
            self.insert(number, number, size)

    @property
    def slot(self) -> str:
        """The name of the slot."""
        with connect(self.url) as connection:
            return str(connection.execute("select slot_name from pg_replication_slots where slot_name like 'broken_%'"
                                          " and database = current_database()").fetchone()[0])  # type: ignore[index]  # fmt: skip

    def confirmed(self) -> LSN:
        found = self.execute("select confirmed_flush_lsn from pg_replication_slots where slot_name = %s", self.slot)
        return LSN.parse(str(found[0][0]))

    def position(self) -> LSN:
        captured = self.state.capture()
        return captured.position if captured else ZERO

    def committed_now(self) -> LSN:
        with connect(self.url) as connection:
            return catalog.wal_marker(connection)

    @contextmanager
    def capturing(self) -> Iterator[CaptureThread]:
        with CaptureThread(self) as thread:
            yield thread

    def capture_all(self) -> None:
        """Until the log has all that is committed now."""
        with self.capturing() as thread:
            thread.reach(self.committed_now())

    def why_capture_stops(self) -> PenstockError:
        with CaptureThread(self) as thread:
            error = wait_until(lambda: thread.error, what="capture to stop by itself")
            thread.error = None
            return error

    def deliver(self, spark: SparkSession, *sinks: str) -> None:
        """All that the log has now, to both sinks or to these."""
        self.state.create()
        deliveries = Deliveries(spark, self.pipeline.sinks(sinks), self.state, rules=Passage(self.config.rules))
        deliveries.run(threading.Event(), available_now=True)

    @contextmanager
    def delivering(self, spark: SparkSession) -> Iterator[None]:
        """Delivery in the background, for as long as the block runs."""
        stop, errors = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                Deliveries(spark, self.pipeline.sinks(), self.state).run(stop)
            except BaseException as error:  # noqa: BLE001  carried to the test
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if errors:
            raise errors[0]

    def sink_lsn(self, name: str) -> LSN:
        known = self.state.sink(name)
        return known.lsn or ZERO if known else ZERO

    def staged(self) -> list[str]:
        """What batches have left under the state directory."""
        staging = self.state.root.child("staging")
        return [f"{sink}/{name}" for sink in staging.directories() for name in staging.child(sink).directories()]

    def wrong(self) -> list[str]:
        """How the sinks differ from the source; and what came twice in the events."""
        replay = Replay([ITEMS])
        replay.read(self.directory / "events")
        with psycopg.connect(self.url) as connection:
            rows = source_rows(connection, ITEMS)
        in_lake = differences("DuckDB", ITEMS, rows, duckdb_rows(self.lake, [ITEMS])[ITEMS])
        in_events = replay.faults + differences("replayed events", ITEMS, rows, replay.rows(ITEMS))
        return in_lake + in_events + (self.wrong_in_replica() if self.target else [])

    def wrong_in_replica(self) -> list[str]:
        """How its rows differ from the source's, and its position from where delivery says that it is."""
        assert self.target is not None
        with psycopg.connect(self.url) as connection, psycopg.connect(self.target) as target:
            wrong = differences("the replica", ITEMS, source_rows(connection, ITEMS), source_rows(target, ITEMS))
            held = target.execute("select lsn from penstock.progress where sink = 'replica'").fetchone()
        known = self.sink_lsn("replica")
        return wrong if held and LSN.parse(held[0]) == known else [*wrong, f"The replica holds {held}, not {known}."]


class CaptureThread:
    """Capture in a thread. An error that stopped it is raised at the end of the block, unless the test took it."""

    def __init__(self, pipeline: PipelineUnderTest) -> None:
        self._pipeline = pipeline
        self._stop = threading.Event()
        self.error: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            Capture(self._pipeline.config, self._stop).run()
        except PenstockError as error:
            self.error = error

    def reach(self, lsn: LSN) -> None:
        wait_until(lambda: self.error or self._pipeline.position() >= lsn, what=f"capture to reach {lsn}")

    def __enter__(self) -> CaptureThread:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "capture does not stop"
        if self.error is not None and error is None:
            raise self.error


def flip_a_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
