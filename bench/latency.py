"""From commit to visible in DuckDB, under a steady load of small transactions."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.lsn import LSN, ZERO
from penstock.pipeline import Pipeline
from penstock.testing.embedded_postgres import EmbeddedPostgres


@dataclass(frozen=True)
class Latency:
    p50: float
    p99: float


def measure(
    postgres: EmbeddedPostgres, pipeline: Pipeline, statements: Callable[[int], str], per_second: float, seconds: float
) -> Latency:
    """``statements(i)`` is transaction i. The sink's position is noted right after its DuckDB transaction committed."""
    seen: list[tuple[LSN, float]] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(pipeline, seen, done))
    watcher.start()
    try:
        committed = _load(postgres, statements, per_second, int(per_second * seconds))
        deadline = time.monotonic() + 60
        while (seen[-1][0] if seen else ZERO) < committed[-1][0] and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        done.set()
        watcher.join()
    return _percentiles(committed[len(committed) // 5 :], seen)  # the first fifth warms up


def _load(
    postgres: EmbeddedPostgres, statements: Callable[[int], str], per_second: float, count: int
) -> list[tuple[LSN, float]]:
    committed = []
    with postgres.connect() as connection:
        connection.execute("SET synchronous_commit = on")
        begun = time.monotonic()
        for number in range(count):
            time.sleep(max(0, begun + number / per_second - time.monotonic()))
            connection.execute(statements(number).encode())
            at = time.monotonic()
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            committed.append((LSN.parse(row[0]), at))
    return committed


def _watch(pipeline: Pipeline, seen: list[tuple[LSN, float]], done: threading.Event) -> None:
    while not done.wait(0.002):
        known = pipeline.state.sink("lake")
        lsn = (known.lsn if known else None) or ZERO
        if not seen or lsn > seen[-1][0]:
            seen.append((lsn, time.monotonic()))


def _percentiles(committed: Sequence[tuple[LSN, float]], seen: Sequence[tuple[LSN, float]]) -> Latency:
    positions = [lsn for lsn, _ in seen]
    # The insert position read after the commit may lie past other records; the commit itself is below it.
    waits = [seen[min(bisect_left(positions, lsn - 64), len(seen) - 1)][1] - at for lsn, at in committed]
    return Latency(float(np.percentile(waits, 50)), float(np.percentile(waits, 99)))
