"""A Postgres replica by Penstock against one by the server's own subscription.

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

from bench.backlog import SERVER, create_table, fill, pipeline
from bench.parts import Part
from penstock.testing.embedded_postgres import EmbeddedPostgres


@dataclass
class Replicas:
    """``subscriber`` is fed by CREATE SUBSCRIPTION, ``ours`` by Penstock's sink; both from the server's first database."""

    postgres: EmbeddedPostgres
    subscriber: str
    ours: str
    capture: Part
    deliver: Part
    marks: int = 0

    def mark(self) -> int:
        self.marks += 1
        self.postgres.execute(f"INSERT INTO marks VALUES ({self.marks})")
        return self.marks

    def subscription_seconds(self, mark: int) -> float:
        begun = time.monotonic()
        execute(self.subscriber, "ALTER SUBSCRIPTION bench ENABLE")
        wait_for(self.subscriber, mark)
        seconds = time.monotonic() - begun
        execute(self.subscriber, "ALTER SUBSCRIPTION bench DISABLE")
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
    """With tables ``events`` and ``marks``, empty, and pgbench's of this scale; the targets hold the same to begin with."""
    with EmbeddedPostgres(settings={**SERVER, "wal_sender_timeout": "1h"}) as postgres:
        subscriber, ours = postgres.create_database("subscriber"), postgres.create_database("ours")
        create_table(postgres, "events")
        postgres.execute("CREATE TABLE marks (id int PRIMARY KEY)")
        if scale:
            run(postgres, "pgbench", "-i", "-q", "-s", str(scale), postgres.url)
        postgres.execute("CREATE PUBLICATION builtin FOR TABLES IN SCHEMA public")
        postgres.execute("SELECT pg_create_logical_replication_slot('builtin', 'pgoutput')")
        dump = run(postgres, "pg_dump", "--no-publications", postgres.url)
        for target in (subscriber, ours):
            subprocess.run([str(postgres.binary("psql")), "-q", target], input=dump, check=True, capture_output=True)
        execute(
            subscriber,
            f"CREATE SUBSCRIPTION bench CONNECTION '{postgres.url}' PUBLICATION builtin "
            "WITH (create_slot = false, slot_name = builtin, copy_data = false, enabled = false)",
        )
        bench = pipeline(postgres, directory, "bench", "public.*", target=ours)
        bench.init()
        with Part("deliver", bench) as deliver, Part("capture", bench) as capture:
            yield Replicas(postgres, subscriber, ours, capture, deliver)


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


def run(postgres: EmbeddedPostgres, program: str, *arguments: str) -> bytes:
    done = subprocess.run([str(postgres.binary(program)), *arguments], check=True, capture_output=True)
    return done.stdout


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
