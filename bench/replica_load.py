"""pgbench's small transactions while a replica follows: how many a second it keeps up with."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass

from bench.replica import Replicas, execute, run, wait_for


@dataclass(frozen=True)
class Followed:
    """``rate``: transactions a second, counted until the replica had the last of them."""

    transactions: int
    rate: float
    behind: float  # seconds that it took to catch up at the end


def by_subscription(replicas: Replicas, seconds: float) -> Followed:
    replicas.capture.pause()
    replicas.deliver.pause()
    execute(replicas.subscriber, "ALTER SUBSCRIPTION bench ENABLE")
    try:
        return _followed(replicas, replicas.subscriber, seconds)
    finally:
        execute(replicas.subscriber, "ALTER SUBSCRIPTION bench DISABLE")
        replicas.deliver.resume()
        replicas.capture.resume()


def by_penstock(replicas: Replicas, seconds: float) -> Followed:
    replicas.capture.resume()
    return _followed(replicas, replicas.ours, seconds)


def _followed(replicas: Replicas, target: str, seconds: float) -> Followed:
    """As many transactions as the machine does beside the replica."""
    before, begun = _history(replicas), time.monotonic()
    run(replicas.postgres, "pgbench", "-n", "-c", "8", "-j", "2", "-T", str(int(seconds)), replicas.postgres.url)
    ended = time.monotonic()
    wait_for(target, replicas.mark())
    caught_up = time.monotonic()
    count = _history(replicas) - before
    return Followed(count, count / (caught_up - begun), caught_up - ended)


def lags(replicas: Replicas, rate: float, seconds: float, looks: int = 6) -> list[float]:
    """Seconds from a commit until it is in our target, now and again while pgbench goes on at this rate."""
    command = ["-n", "-c", "8", "-j", "2", "-T", str(int(seconds)), "-R", str(int(rate)), replicas.postgres.url]
    load = subprocess.Popen(
        [str(replicas.postgres.binary("pgbench")), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    found = []
    try:
        for _ in range(looks):
            time.sleep(seconds / (looks + 1))
            begun = time.monotonic()
            wait_for(replicas.ours, replicas.mark())
            found.append(time.monotonic() - begun)
    finally:
        load.wait()
    return found


def _history(replicas: Replicas) -> int:
    return int(replicas.postgres.execute("SELECT count(*) FROM pgbench_history")[0][0])
