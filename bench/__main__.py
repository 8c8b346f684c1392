"""``make bench``: every figure in one table, ratios measured within the run. Takes some half an hour.

``python -m bench --only replica`` for a part, ``--rows 100000`` for a quick look.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench import capture_run, decode, latency, replica, replica_copy, replica_load, ruled, rules, segments, triggers
from bench.backlog import SERVER, create_table, fill, pg_recvlogical_seconds, pipeline
from bench.imports import import_seconds, latency_during_copy, psql_copy_seconds, watched
from bench.parts import Part, wait_for_sink
from penstock.changelog.log import ChangeLog
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.testing.embedded_postgres import EmbeddedPostgres

_ROUNDS = 3


@dataclass(frozen=True)
class Figure:
    what: str
    measured: str
    bar: str
    stretch: str
    reached: bool


@contextmanager
def _source(tables: str = "public.events") -> Iterator[tuple[EmbeddedPostgres, Pipeline, Path]]:
    with EmbeddedPostgres(settings=SERVER) as postgres, tempfile.TemporaryDirectory() as directory:
        create_table(postgres, "events")
        yield postgres, pipeline(postgres, Path(directory), "bench", tables), Path(directory)


def capture_and_decode(rows: int) -> Iterator[Figure]:
    """One backlog, read alternately by pg_recvlogical and by capture."""
    with _source() as (postgres, bench, directory):
        subscription = bench.init()
        end = fill(postgres, "events", rows)
        ratios = []
        for number in range(_ROUNDS):
            server = pg_recvlogical_seconds(postgres, subscription.slot, subscription.publications, end)
            state = str(directory / f"round-{number}")
            ours, _ = capture_run.measure(bench.config.model_copy(update={"state_dir": state}), end)
            ratios.append(server / ours)
            _say(f"pg_recvlogical {server:.2f} s, capture {ours:.2f} s")
        ratio = median(ratios)
        yield Figure("capture against pg_recvlogical", f"{ratio:.2f}", "≥ 0.85", "0.95", ratio >= 0.85)
        speed = decode.rows_per_second(f"{state}/log")
        yield Figure(
            "decode to typed columns, one core", f"{speed:,.0f} rows/s", "≥ 1,000,000", "2,000,000", speed >= 1e6
        )


def end_to_end(rows: int) -> Iterator[Figure]:
    """Backlogs drained from zero into DuckDB, Spark warm: three of one size for the ratio, one of ten times that size."""
    with _source() as (postgres, bench, _):
        subscription = bench.init()
        first = 1
        with Part("deliver", bench):
            with Part("capture", bench):
                for _warm_up in range(5):
                    wait_for_sink(bench, _below(fill(postgres, "events", 2000, first)))
                    first += 2000
            ratios, seconds = [], []
            for _ in range(_ROUNDS):
                end = fill(postgres, "events", rows, first)
                first += rows
                server = pg_recvlogical_seconds(postgres, subscription.slot, subscription.publications, end)
                seconds.append(_drain(bench, end))
                ratios.append(server / seconds[-1])
                _say(f"pg_recvlogical {server:.2f} s, into DuckDB {seconds[-1]:.2f} s")
            ratio = median(ratios)
            yield Figure(
                "end to end into DuckDB against pg_recvlogical", f"{ratio:.2f}", "≥ 0.45", "0.75", ratio >= 0.45
            )
            large = _drain(bench, fill(postgres, "events", rows * 10, first))
        growth = large / median(seconds)
        _say(f"{rows:,} rows {median(seconds):.2f} s, {rows * 10:,} rows {large:.2f} s")
        yield Figure(
            "ten times the backlog takes so many times as long", f"{growth:.1f}", "8 … 12", "", 8 <= growth <= 12
        )


def _drain(bench: Pipeline, end: LSN) -> float:
    """From the start of capture's process until the sink holds everything: like pg_recvlogical's, with its start-up."""
    begun = time.monotonic()
    with Part("capture", bench):
        return wait_for_sink(bench, _below(end)) - begun


def _below(mark: LSN) -> LSN:
    """The mark is a transaction of our own that is not delivered; what counts lies below it."""
    return LSN(mark - 4096)


def latencies(seconds: float) -> Iterator[Figure]:
    with _source("public.*") as (postgres, bench, _):
        for number in range(100):
            postgres.execute(f"CREATE TABLE t{number} (id bigint PRIMARY KEY, value text)")
        bench.init()
        with Part("deliver", bench), Part("capture", bench):
            for start in range(1, 10_001, 2000):
                wait_for_sink(bench, _below(fill(postgres, "events", 2000, start)))
            small = latency.measure(postgres, bench, _one_row, 200, seconds)
            shown = f"{small.p50:.2f} s / {small.p99:.2f} s"
            reached = small.p50 <= 0.5 and small.p99 <= 1.5
            yield Figure("commit to visible at 200 tx/s, p50 / p99", shown, "≤ 0.5 / ≤ 1.5 s", "0.25 / 0.6", reached)
            one = latency.measure(postgres, bench, _hundred_rows, 10, seconds)
            many = latency.measure(postgres, bench, _hundred_tables, 10, seconds)
        ratio = many.p50 / one.p50
        _say(f"100 rows in 1 table {one.p50:.2f} s, in 100 tables {many.p50:.2f} s")
        yield Figure("100 tables in every batch against 1, p50", f"{ratio:.2f} x", "≤ 2.5 x", "1.3 x", ratio <= 2.5)


def _one_row(number: int) -> str:
    return f"INSERT INTO events VALUES ({10_000_000 + number}, 1, 'somebody', 9.99, now(), true, '{{}}')"


def _hundred_rows(number: int) -> str:
    return f"INSERT INTO t0 SELECT {1000 * number} + g, 'value' FROM generate_series(101, 200) g"


def _hundred_tables(number: int) -> str:
    return ";".join(
        ["BEGIN", *(f"INSERT INTO t{table} VALUES ({-1 - number}, 'value')" for table in range(100)), "COMMIT"]
    )


def one_large_transaction(rows: int) -> Iterator[Figure]:
    with _source() as (postgres, bench, _):
        bench.init()
        end = fill(postgres, "events", rows, per_transaction=rows)
        seconds, peak = capture_run.measure(bench.config, end)
        _say(f"{rows:,} rows in one transaction: {seconds:.1f} s")
        assert ChangeLog(bench.state.log_uri).contents().end is not None
        what = f"one transaction of {rows:,} rows: peak memory of capture"
        yield Figure(what, f"{peak:.0f} MiB", "≤ 300 MiB", "150 MiB", peak <= 300)


def imports(rows: int, seconds: float) -> Iterator[Figure]:
    """Spark warm. A table of ``rows``, one of a tenth of it for the memory, and one that streams meanwhile."""
    with EmbeddedPostgres(settings=SERVER) as postgres, tempfile.TemporaryDirectory() as directory:
        for name, count in (("large", rows), ("small", rows // 10)):
            create_table(postgres, name)
            fill(postgres, name, count, per_transaction=100_000)
            postgres.execute(f"VACUUM ANALYZE {name}")
        postgres.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, value text)")
        postgres.execute("CHECKPOINT")
        os.sync()  # what filling the tables has left to write is not written while the copy is measured
        bench = pipeline(postgres, Path(directory), "bench", "public.ticks", copies=True)
        bench.init()
        bench.reconcile()
        with Part("deliver", bench) as deliver, Part("capture", bench) as capture:
            for start in range(5):
                wait_for_sink(bench, _below(_ticks(postgres, start)))
            with watched(postgres, deliver, capture) as with_small:
                import_seconds(postgres, bench, "small")
            ratios = []  # unwatched: looking through the memory of all processes takes a good part of a core
            for number in range(_ROUNDS):
                server = psql_copy_seconds(postgres, "large")
                ours = import_seconds(postgres, bench, "large", again=number > 0)
                ratios.append(server / ours)
                _say(f"psql \\copy {server:.2f} s, into DuckDB {ours:.2f} s")
            with watched(postgres, deliver, capture) as with_large:
                import_seconds(postgres, bench, "large", again=True)
            quiet, busy = latency_during_copy(postgres, bench, "large", seconds)
        ratio, growth = median(ratios), with_large.peak_memory / with_small.peak_memory
        _say(f"memory {with_small.peak_memory:.0f} MiB / {with_large.peak_memory:.0f} MiB")
        _say(
            f"latency p50/p99 without {quiet.p50:.2f}/{quiet.p99:.2f} s, during a copy {busy.p50:.2f}/{busy.p99:.2f} s"
        )
        what = f"copy of {rows:,} rows into DuckDB against psql \\copy"
        yield Figure(what, f"{ratio:.2f}", "≥ 0.5", "1.0", ratio >= 0.5)
        oldest = with_large.oldest_transaction
        yield Figure("oldest transaction that the copy holds open", f"{oldest:.1f} s", "≤ 10 s", "2 s", oldest <= 10)
        what = "peak memory of all Python processes, ten times the rows"
        yield Figure(what, f"{growth:.2f} x", "≤ 1.2 x", "1.0 x", growth <= 1.2)
        slower = busy.p99 / quiet.p99
        yield Figure("latency of other tables during a copy, p99", f"{slower:.2f} x", "≤ 2 x", "1.3 x", slower <= 2)


def postgres_replica(rows: int) -> Iterator[Figure]:
    """Backlogs drained by the server's own subscription and by our sink, alternately."""
    with tempfile.TemporaryDirectory() as directory, replica.replicas(Path(directory)) as targets:
        replica.warm_up(targets)
        ratios = []
        for number in range(_ROUNDS):
            ratios.append(_against_subscription(targets, replica.inserts(targets, rows, 1 + number * rows)))
        yield _times(f"{rows:,} inserts into Postgres against its own subscription", median(ratios), 0.8, "1.2")
        ratios = [_against_subscription(targets, replica.updates(targets, rows // 5)) for _ in range(_ROUNDS)]
        yield _times(f"{rows // 5:,} updates of as many rows, likewise", median(ratios), 0.8, "1.5")
        ratios = [_against_subscription(targets, replica.hot_updates(targets, rows // 2)) for _ in range(_ROUNDS)]
        yield _times(f"{rows // 2:,} updates of 1,000 rows, likewise", median(ratios), 3, "10")


def replica_under_load(seconds: float) -> Iterator[Figure]:
    """pgbench as fast as it goes, followed by the one and then by the other; then at a rate that both should hold."""
    with tempfile.TemporaryDirectory() as directory, replica.replicas(Path(directory), scale=10) as targets:
        replica.warm_up(targets)
        theirs = replica_load.by_subscription(targets, seconds)
        ours = replica_load.by_penstock(targets, seconds)
        for who, followed in (("subscription", theirs), ("Penstock", ours)):
            _say(f"{who}: {followed.transactions:,} transactions, {followed.behind:.1f} s behind at their end")
        lags = replica_load.lags(targets, 0.8 * theirs.rate, seconds)
        _say("lags at 0.8 of that rate: " + ", ".join(f"{lag:.2f}" for lag in lags) + " s")
        yield _times(
            f"pgbench for {seconds:.0f} s, rate against its own subscription", ours.rate / theirs.rate, 0.8, "1.5"
        )
        shown, grows = f"{lags[0]:.2f} … {lags[-1]:.2f} s", max(lags[-2:]) > 2 * max(lags[:2]) + 0.5
        yield Figure(
            "lag at 0.8 of the subscription's rate, at first and at last", shown, "does not grow", "", not grows
        )


def replica_initial_copy(rows: int) -> Iterator[Figure]:
    with EmbeddedPostgres(settings=SERVER) as postgres, tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        create_table(postgres, "large")
        fill(postgres, "large", rows, per_transaction=100_000)
        postgres.execute("CREATE INDEX ON large (at); CREATE INDEX ON large (name)")
        postgres.execute("VACUUM ANALYZE large")
        postgres.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, value text)")
        postgres.execute("CHECKPOINT")
        os.sync()
        target = postgres.create_database("ours")
        bench = pipeline(postgres, Path(directory), "bench", "public.ticks", copies=True, target=target)
        bench.init()
        bench.reconcile()
        ratios = []
        with Part("deliver", bench), Part("capture", bench):
            for start in range(5):
                wait_for_sink(bench, _below(_ticks(postgres, start)))
            for number in range(_ROUNDS):
                theirs = replica_copy.dump_and_restore_seconds(postgres, "public.large", Path(directory))
                ours = import_seconds(postgres, bench, "large", again=number > 0)
                ratios.append(theirs / ours)
                _say(f"pg_dump and pg_restore {theirs:.2f} s, Penstock {ours:.2f} s")
        what = f"copy of {rows:,} rows and three indexes against pg_dump -Fd -j2, pg_restore -j2"
        yield _times(what, median(ratios), 0.8, "1.3")


def small_segments(transactions: int) -> Iterator[Figure]:
    """The same changes in as many segments as transactions, or nearly, and in a few."""
    with EmbeddedPostgres(settings=SERVER) as postgres, tempfile.TemporaryDirectory() as directory:
        segments.create_tables(postgres, 50_000)
        catch_up, made = {}, {}
        # The large ones last: what comes after its changes would be in its log and not in the copy of it.
        for number, (name, linger) in enumerate((("small", "1ms"), ("large", "5s")), 1):
            made[name] = segments.trickled(postgres, Path(directory) / name, name, linger)
            catch_up[name] = segments.catch_up_seconds(made[name], transactions, number * 10_000_000)
            _say(f"{name} segments: caught up in {catch_up[name]:.1f} s, {made[name].files} files in the log")
        spark, large = segments.spark_session(), made["large"]
        yield from _read_again(made["small"], large, "as capture left them", spark)
        raw = segments.cut_small(large, Path(directory) / "raw")
        yield from _read_again(raw, large, "none merged", spark)
        start = raw.capture_start_seconds()
        yield Figure(f"start of capture with {raw.files:,} segments", f"{start:.1f} s", "≤ 2 s", "1 s", start <= 2)
        with Part("capture", raw.pipeline):
            time.sleep(60)
        yield from _read_again(raw, large, "a quiet minute later", spark)
        yield Figure("files in the log after a quiet minute", f"{raw.files}", "≤ 50", "20", raw.files <= 50)
        ratio = catch_up["small"] / catch_up["large"]
        yield Figure("catch-up of an import, small segments", f"{ratio:.2f} x", "≤ 1.5 x", "1.0 x", ratio <= 1.5)


def _read_again(small: segments.Trickled, large: segments.Trickled, when: str, spark: SparkSession) -> Iterator[Figure]:
    """What reading the log takes against reading a few large segments."""
    ratios = {
        "log query": _median_ratio(small.query_seconds, large.query_seconds),
        "typed Spark stream": _median_ratio(lambda: small.stream_seconds(spark), lambda: large.stream_seconds(spark)),
    }
    for what, ratio in ratios.items():
        _say(f"{what}: {small.files:,} segments ({when}) against {large.files}: {ratio:.2f}")
        files = f"{small.files:,} small segments, {when}, against {large.files}"
        yield Figure(f"{what}: {files}", f"{ratio:.2f} x", "≤ 1.5 x", "1.0 x", ratio <= 1.5)


def event_triggers(count: int) -> Iterator[Figure]:
    """What the event triggers of the schema log add to a command."""
    with EmbeddedPostgres(settings=SERVER) as postgres:
        for cost in triggers.costs(postgres, count):
            _say(f"{cost.what}: {cost.without:.2f} ms without triggers, {cost.having:.2f} ms with them")
            added = cost.having - cost.without
            yield Figure(f"event triggers: added to {cost.what}", f"{added:.2f} ms", "≤ 5 ms", "2 ms", added <= 5)


def rules_on_one_core(rows: int) -> Iterator[Figure]:
    rate = rules.filter_and_mask_rate(rows)
    what = "filter on a number, mask of a text: rows/s on one core"
    yield Figure(what, f"{rate:,.0f}", "≥ 1,500,000", "4,000,000", rate >= 1_500_000)
    rate = rules.fake_person_rate(rows)
    what = "full name, e-mail and phone by hash of distinct values: rows/s on one core"
    yield Figure(what, f"{rate:,.0f}", "≥ 500,000", "1,500,000", rate >= 500_000)


def rules_end_to_end(rows: int) -> Iterator[Figure]:
    with EmbeddedPostgres(settings=SERVER) as postgres, tempfile.TemporaryDirectory() as directory:
        with ruled.pipelines(postgres, Path(directory)) as (without, having):
            ratios = []
            for number in range(_ROUNDS):
                end = ruled.fill(postgres, rows, 100_000 + number * rows)
                plain, with_rules = ruled.drain(without, end), ruled.drain(having, end)
                ratios.append(plain / with_rules)
                _say(f"into DuckDB {plain:.2f} s, with five rules {with_rules:.2f} s")
        yield _times("end to end into DuckDB, five rules against none", median(ratios), 0.8, "0.95")


def _against_subscription(targets: replica.Replicas, mark: int) -> float:
    theirs, ours = targets.subscription_seconds(mark), targets.our_seconds(mark)
    _say(f"subscription {theirs:.2f} s, Penstock {ours:.2f} s")
    return theirs / ours


def _median_ratio(one: Callable[[], float], other: Callable[[], float]) -> float:
    """The median of ``one`` over the median of ``other``, measured in turn after an unmeasured run of each."""
    one(), other()
    pairs = [(one(), other()) for _ in range(_ROUNDS)]
    return median(first for first, _ in pairs) / median(second for _, second in pairs)


def _times(what: str, ratio: float, bar: float, stretch: str) -> Figure:
    return Figure(what, f"{ratio:.2f}", f"≥ {bar:g}", stretch, ratio >= bar)


def _ticks(postgres: EmbeddedPostgres, batch: int) -> LSN:
    postgres.execute(f"INSERT INTO ticks SELECT -{batch} * 1000 - g, 'value' FROM generate_series(1, 1000) g")
    with connect(postgres.url) as connection:
        return catalog.wal_marker(connection)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20)
    names = [
        "capture",
        "end-to-end",
        "latency",
        "memory",
        "imports",
        "replica",
        "replica-load",
        "replica-copy",
        "triggers",
        "rules",
        "ruled",
        "segments",
    ]
    parser.add_argument("--only", choices=names)
    arguments = parser.parse_args()
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "capture": lambda: capture_and_decode(arguments.rows),
        "end-to-end": lambda: end_to_end(arguments.rows),
        "latency": lambda: latencies(arguments.seconds),
        "memory": lambda: one_large_transaction(arguments.rows * 5),
        "imports": lambda: imports(arguments.rows * 10, arguments.seconds),
        "replica": lambda: postgres_replica(arguments.rows),
        "replica-load": lambda: replica_under_load(3 * arguments.seconds),
        "replica-copy": lambda: replica_initial_copy(arguments.rows * 10),
        "triggers": lambda: event_triggers(300),
        "rules": lambda: rules_on_one_core(arguments.rows),
        "ruled": lambda: rules_end_to_end(arguments.rows),
        "segments": lambda: small_segments(arguments.rows // 100),
    }
    figures = [f for name, part in parts.items() if arguments.only in (None, name) for f in part()]
    table = Table(
        "what", "measured", "bar", "stretch", "reached", title=f"Penstock, {arguments.rows:,} rows of 7 columns"
    )
    for figure in figures:
        table.add_row(figure.what, figure.measured, figure.bar, figure.stretch, "yes" if figure.reached else "no")
    Console(width=130).print(table)
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
