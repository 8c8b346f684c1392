"""Copying a table into DuckDB: how fast, for how long the source feels it, how much memory, and what the stream notices."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import psycopg

from bench import latency
from bench.parts import Part
from penstock.changelog.admission import read_admission
from penstock.pipeline import Pipeline
from penstock.testing.embedded_postgres import EmbeddedPostgres

_OLDEST = """
select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float from pg_stat_activity
where application_name like 'penstock%' and state <> 'idle' and pid <> pg_backend_pid()
  and backend_type = 'client backend'
"""


def psql_copy_seconds(postgres: EmbeddedPostgres, table: str) -> float:
    """One client that reads the whole table and throws it away."""
    begun = time.monotonic()
    subprocess.run(
        [str(postgres.binary("psql")), postgres.url, "-qc", rf"\copy {table} to /dev/null"],
        check=True,
        capture_output=True,
    )
    return time.monotonic() - begun


@dataclass
class Watched:
    """What was seen while a copy ran."""

    oldest_transaction: float = 0.0
    peak_memory: float = 0.0  # MiB, all Python processes
    _done: threading.Event = field(default_factory=threading.Event)

    def watch(self, url: str, pids: list[int]) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not self._done.wait(0.1):
                row = connection.execute(_OLDEST).fetchone()
                self.oldest_transaction = max(self.oldest_transaction, row[0] if row else 0.0)
                self.peak_memory = max(self.peak_memory, _python_memory(pids))


@contextmanager
def watched(postgres: EmbeddedPostgres, *parts: Part) -> Iterator[Watched]:
    seen = Watched()
    thread = threading.Thread(target=seen.watch, args=[postgres.url, [part.pid for part in parts]])
    thread.start()
    try:
        yield seen
    finally:
        seen._done.set()
        thread.join()


def _python_memory(pids: list[int]) -> float:
    """MiB. What forked processes share is counted once."""
    total = 0
    for pid in pids:
        try:
            members = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for member in members:
            try:
                if "python" in member.name():
                    total += member.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
    return total / (1 << 20)


def import_seconds(postgres: EmbeddedPostgres, pipeline: Pipeline, table: str, again: bool = False) -> float:
    """From the request until the table is complete in the sink and streams with the others."""
    sink = pipeline.config.sinks[0].name
    oid = int(postgres.execute(f"select '{table}'::regclass::oid::int")[0][0])
    before = read_admission(pipeline.state.parts, sink).ready.get(oid)
    begun = time.monotonic()
    if again:
        pipeline.resync_tables([table])
    else:
        pipeline.add_tables([table])
    while (ready := read_admission(pipeline.state.parts, sink).ready.get(oid)) is None or ready == before:
        time.sleep(0.01)
    return time.monotonic() - begun


def latency_during_copy(
    postgres: EmbeddedPostgres, pipeline: Pipeline, table: str, seconds: float
) -> tuple[latency.Latency, latency.Latency]:
    """Of another table's changes: without a copy, and while one runs, again and again if it is done too soon."""
    quiet = latency.measure(postgres, pipeline, _tick(1), 200, seconds)
    stop = threading.Event()

    def copy() -> None:
        while not stop.is_set():
            import_seconds(postgres, pipeline, table, again=True)

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        busy = latency.measure(postgres, pipeline, _tick(2), 200, seconds)
    finally:
        stop.set()
        thread.join()
    return quiet, busy


def _tick(series: int) -> Callable[[int], str]:
    return lambda number: f"INSERT INTO ticks VALUES ({series * 100_000_000 + number}, 'value')"
