"""A Postgres replica by Penstock against one by the server's own subscription, and against pg_dump and pg_restore.

Source and targets are databases of one server. A backlog is made while neither reads; then one drains it, then the other.
Both are done when the last row of the backlog, a mark, is in the target. Neither the start of Penstock's processes nor Spark's
first batches are timed: capture is stopped (SIGSTOP) while a backlog is made, as the subscription is disabled.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.backlog import SERVER, create_table, fill
from bench.parts import Part
from penstock.config.model import Config
from penstock.pipeline import Pipeline
from penstock.testing.embedded_postgres import EmbeddedPostgres

_PGBENCH = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")


@dataclass
class Replicas:
    """``subscriber`` is fed by CREATE SUBSCRIPTION, ``ours`` by Penstock's sink; both from the server's first database."""

    postgres: EmbeddedPostgres
    subscriber: str
    ours: str
    pipeline: Pipeline
    capture: Part
    marks: int = 0

    def mark(self) -> int:
        self.marks += 1
        self.postgres.execute(f"INSERT INTO marks VALUES ({self.marks})")
        return self.marks

    def subscription_seconds(self, mark: int) -> float:
        begun = time.monotonic()
        _execute(self.subscriber, "ALTER SUBSCRIPTION bench ENABLE")
        wait_for(self.subscriber, mark)
        seconds = time.monotonic() - begun
        _execute(self.subscriber, "ALTER SUBSCRIPTION bench DISABLE")
        with psycopg.connect(self.subscriber, autocommit=True) as connection:
            while connection.execute("SELECT 1 FROM pg_stat_subscription WHERE pid IS NOT NULL").fetchone():
                time.sleep(0.01)
        return seconds

    def our_seconds(self, mark: int) -> float:
        begun = time.monotonic()
        self.capture.resume()
        wait_for(self.ours, mark)
        seconds = time.monotonic() - begun
        self.capture.pause()
        return seconds


def wait_for(url: str, mark: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute("SELECT 1 FROM public.marks WHERE id = %s", [mark]).fetchone():
            time.sleep(0.01)


@contextmanager
def replicas(directory: Path, scale: int = 0) -> Iterator[Replicas]:
    """With tables ``events`` and ``marks``, and pgbench's of this scale; all of them empty in the targets at first."""
    with EmbeddedPostgres(settings={**SERVER, "wal_sender_timeout": "1h"}) as postgres:
        subscriber, ours = postgres.create_database("subscriber"), postgres.create_database("ours")
        create_table(postgres, "events")
        postgres.execute("CREATE TABLE marks (id int PRIMARY KEY)")
        if scale:
            _run(postgres, "pgbench", "-i", "-q", "-s", str(scale), postgres.url)
            # Its history has no key, and nothing in it ever changes.
        postgres.execute("CREATE PUBLICATION builtin FOR TABLES IN SCHEMA public")
        postgres.execute("SELECT pg_create_logical_replication_slot('builtin', 'pgoutput')")
        dump = _run(postgres, "pg_dump", "--no-publications", postgres.url)
        for target in (subscriber, ours):
            subprocess.run([str(postgres.binary("psql")), "-q", target], input=dump, check=True, capture_output=True)
        _execute(
            subscriber,
            f"CREATE SUBSCRIPTION bench CONNECTION '{postgres.url}' PUBLICATION builtin "
            "WITH (create_slot = false, slot_name = builtin, copy_data = false, enabled = false)",
        )
        pipeline = _pipeline(postgres, ours, directory, scale > 0)
        pipeline.init()
        with Part("deliver", pipeline), Part("capture", pipeline) as capture:
            yield Replicas(postgres, subscriber, ours, pipeline, capture)


def _pipeline(postgres: EmbeddedPostgres, target: str, directory: Path, copies: bool) -> Pipeline:
    return Pipeline(
        Config.model_validate(
            {
                "name": "bench",
                "state_dir": str(directory / "state"),
                "source": {
                    "url": postgres.url,
                    "tables": {"include": ["public.*"]},
                    "mode": "copy_and_stream" if copies else "stream",
                },
                "sinks": [{"name": "replica", "type": "postgres", "url": target}],
            }
        )
    )


def warm_up(replicas: Replicas) -> None:
    """Spark's first batches are slow, and so are the first ones of an apply worker."""
    for start in range(5):
        fill(replicas.postgres, "events", 2000, first=-10_000 * (start + 1))
        replicas.our_seconds(mark := replicas.mark())
        replicas.subscription_seconds(mark)


def inserts(replicas: Replicas, rows: int, first: int) -> int:
    fill(replicas.postgres, "events", rows, first)
    return replicas.mark()


def updates(replicas: Replicas, rows: int) -> int:
    """Each of so many rows once, in transactions of 1,000."""
    _in_transactions(replicas, rows, "UPDATE events SET quantity = quantity + 1 WHERE id BETWEEN {start} AND {end}")
    return replicas.mark()


def hot_updates(replicas: Replicas, updates: int) -> int:
    """Of 1,000 rows, again and again."""
    _in_transactions(replicas, updates, "UPDATE events SET quantity = quantity + 1 WHERE id BETWEEN 1 AND 1000")
    return replicas.mark()


def _in_transactions(replicas: Replicas, rows: int, statement: str) -> None:
    with replicas.postgres.connect() as connection:
        for start in range(1, rows + 1, 1000):
            connection.execute(statement.format(start=start, end=start + 999).encode())


def transactions(replicas: Replicas, seconds: float) -> tuple[int, int]:
    """pgbench's own, as many as the server does in that time; how many, and the mark behind them."""
    before = _history(replicas)
    _run(replicas.postgres, "pgbench", "-n", "-c", "2", "-T", str(int(seconds)), replicas.postgres.url)
    return _history(replicas) - before, replicas.mark()


def lags(replicas: Replicas, rate: float, seconds: float) -> list[float]:
    """Seconds from a commit until it is in our target, three times while pgbench goes on at this rate."""
    command = ["-n", "-c", "2", "-T", str(int(seconds)), "-R", str(int(rate)), replicas.postgres.url]
    load = subprocess.Popen(
        [str(replicas.postgres.binary("pgbench")), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    found = []
    try:
        for _ in range(3):
            time.sleep(seconds / 4)
            begun = time.monotonic()
            wait_for(replicas.ours, replicas.mark())
            found.append(time.monotonic() - begun)
    finally:
        load.wait()
    return found


def _history(replicas: Replicas) -> int:
    return int(replicas.postgres.execute("SELECT count(*) FROM pgbench_history")[0][0])


def dump_and_restore_seconds(postgres: EmbeddedPostgres, directory: Path) -> float:
    target = postgres.create_database("restored")
    dump = directory / "dump"
    begun = time.monotonic()
    _run(postgres, "pg_dump", "-Fd", "-j2", "-t", "public.large", "-f", str(dump), postgres.url)
    _run(postgres, "pg_restore", "-j2", "-d", target, str(dump))
    return time.monotonic() - begun


def _run(postgres: EmbeddedPostgres, program: str, *arguments: str) -> bytes:
    done = subprocess.run([str(postgres.binary(program)), *arguments], check=True, capture_output=True)
    return done.stdout


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
