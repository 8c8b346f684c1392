"""Kill things at random moments under a mixed load, again and again; nothing may be lost and nothing come twice.

    python -m tests.recovery.soak --rounds 20 --seed 1 [--imports]

A seed stands for a load and a schedule of kills: "jvm at transaction 57". What exactly a process was doing when it was
killed is up to the machine, which is the point of doing it often. With ``--imports`` the tables are copied first, and some
of them again all the time: ``import_soak.py``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg

from penstock.state.pipeline_state import PipelineState
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.comparison import Replay, Witness, differences, duckdb_rows, replica_rows, source_rows
from tests.recovery.process_under_test import RunningPipeline
from tests.recovery.workload import ROUNDS, TABLES, Load, create_tables

SINKS = ("lake", "events", "replica")
KILLS = ("tree", "capture", "jvm", "deliver", "postgres")
TRANSACTIONS = 160  # around each kill

_CONFIG = """
name: soak
state_dir: state
source: {{url: "{url}", tables: {{include: ["*.*"]}}{source}}}
log: {{acknowledge: {acknowledge}, segment_bytes: 64KiB}}
sinks:
  - {{name: lake, type: duckdb, path: lake.duckdb}}
  - {{name: events, type: file, path: events}}
  - {{name: replica, type: postgres, url: "{target}"}}
spark: {{master: "local[2]"}}
"""


class Soak:
    """One server, one pipeline, one load; ``round`` as often as you like."""

    source = ""  # more of the config's source section, after a comma

    def __init__(self, server: EmbeddedPostgres, directory: Path, seed: int) -> None:
        self._server, self._directory = server, directory
        self._random = Random(f"kills of {seed}")
        self._kinds = self._kill_kinds()
        self._target = server.create_database("replica")
        self._load = Load(server.url, seed)
        self._state = PipelineState(str(directory / "state"))
        self._replay = Replay(TABLES)
        with server.connect() as connection:
            create_tables(connection)
        self._fill_tables()
        self._pipeline = self._start()
        wait_until(self._begun, timeout=180, what="the pipeline to begin")
        self._watch()

    def _fill_tables(self) -> None:
        """Nothing but changes is delivered, so there is nothing to fill them with."""

    def _watch(self) -> None:
        self._witness = Witness(self._server.url, "soak,soak_inserts")

    def _kill_kinds(self) -> Iterator[str]:
        """Every kind comes once before any comes again."""
        while True:
            yield from self._random.sample(KILLS, len(KILLS))

    def _begun(self) -> bool:
        assert self._pipeline.alive, self.said()
        return all(self._state.sink(name) is not None for name in SINKS)

    def round(self, number: int, kills: int = 2) -> list[str]:
        """Load with kills in it, then a look at everything: what was wrong, one line each."""
        try:
            for _ in range(kills):
                self._load_with_a_kill()
            self._load.mark(number)
            self._await_arrival(number)
        except AssertionError as error:
            return [f"{error}\n{self.said()}"]
        return self.compare()

    def _await_arrival(self, number: int) -> None:
        wait_until(lambda: self._arrived(number), timeout=180, what=f"round {number} to arrive in all sinks")

    def _load_with_a_kill(self) -> None:
        kind, at = next(self._kinds), self._random.randrange(5, TRANSACTIONS - 5)
        # Only what works can be interrupted: a few transactions first, to be seen at the other end.
        before = self._positions()
        self._load.run(3)
        wait_until(lambda: self._moved(before), timeout=180, what=f"all sinks to move before the kill of {kind}")
        begun_at = self._load.done
        loading = threading.Thread(target=self._load.run, args=(TRANSACTIONS,))
        loading.start()
        wait_until(lambda: self._load.done >= begun_at + at or not loading.is_alive())
        self._kill(kind)
        loading.join()

    def _kill(self, kind: str) -> None:
        if kind == "postgres":
            self._server.kill()
            self._server.start()
        elif kind == "tree":
            self._pipeline.kill_tree()
            self._pipeline = self._start()
        else:
            getattr(self._pipeline, f"kill_{kind}")()

    def _start(self, *arguments: str) -> RunningPipeline:
        """With either policy of acknowledgement: both must hold whatever was killed, also after a change from one."""
        file = self._directory / "penstock.yaml"
        acknowledge = self._random.choice(["sinks", "log"])
        config = _CONFIG.format(url=self._server.url, target=self._target, acknowledge=acknowledge, source=self.source)
        file.write_text(config)
        return RunningPipeline(file, self._directory / "pipeline.log", *arguments)

    def _positions(self) -> list[int]:
        states = [self._state.sink(name) for name in SINKS]
        return [int(state.lsn) if state and state.lsn else 0 for state in states]

    def _moved(self, before: list[int]) -> bool:
        assert self._pipeline.alive, self.said()
        return all(now > then for now, then in zip(self._positions(), before, strict=True))

    def _arrived(self, number: int) -> bool:
        """The position of the mark is in the events; what the others hold, their state says, without a look at them."""
        assert self._pipeline.alive, self.said()
        self._read_events()
        marked = self._replay.place_of(ROUNDS, (str(number),))
        lake, _, replica = self._positions()
        return marked is not None and min(lake, replica) > marked

    def compare(self) -> list[str]:
        self._witness.read()
        wrong = self._replay.faults[:5]
        lake = duckdb_rows(self._directory / "lake.duckdb", TABLES)
        with psycopg.connect(self._server.url) as connection, psycopg.connect(self._target) as replica:
            for table in TABLES:
                rows = source_rows(connection, table)
                wrong += differences("DuckDB", table, rows, lake[table])
                wrong += differences("replayed events", table, rows, self._replay.rows(table))
                wrong += differences("the replica", table, rows, replica_rows(replica, table))
        lost = self._witness.seen.items() - self._replay.seen.items()
        made_up = self._replay.seen.items() - self._witness.seen.items()
        if lost or made_up:
            wrong.append(
                f"events: {len(lost)} changes lost {sorted(lost)[:3]}, {len(made_up)} too many {sorted(made_up)[:3]}"
            )
        return wrong

    def finish(self) -> list[str]:
        """Stops it in good order, then lets ``--once`` bring the rest."""
        wrong = [f"exit code {code}: {self.said()}"] if (code := self._pipeline.stop()) else []
        self._load.run(20)
        self._pipeline = self._start("--once")
        if (code := self._pipeline.wait(180)) != 0:
            wrong.append(f"--once: exit code {code}: {self.said()}")
        self._read_events()
        return wrong + self.compare()

    def _read_events(self) -> None:
        self._replay.read(self._directory / "events")

    def said(self) -> str:
        lines = (self._directory / "pipeline.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-15:])

    def close(self) -> None:
        self._load.close()
        if self._pipeline.alive:
            self._pipeline.kill_tree()


def soak(rounds: int, seed: int, directory: Path, kind: type[Soak] = Soak) -> Iterator[tuple[str, list[str]]]:
    """What was wrong after each round and at the end; stops at the first round with a fault, to keep its traces."""
    with EmbeddedPostgres(version=18) as server:
        soak = kind(server, directory, seed)
        try:
            for number in range(1, rounds + 1):
                wrong = soak.round(number)
                yield f"round {number}", wrong
                if wrong:
                    return
            yield "the end", soak.finish()
        finally:
            soak.close()


def _with_imports() -> type[Soak]:
    from tests.recovery.import_soak import ImportSoak  # which is a kind of this one

    return ImportSoak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recovery.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--imports", action="store_true", help="copy the tables, and again all the time")
    chosen = parser.parse_args()
    kind = _with_imports() if chosen.imports else Soak
    directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    print(f"seed {chosen.seed}, {chosen.rounds} rounds", flush=True)
    passed = failed = 0
    begun = time.monotonic()
    for what, wrong in soak(chosen.rounds, chosen.seed, directory, kind):
        print(f"{what}: {'; '.join(wrong) or 'equal'} ({time.monotonic() - begun:.0f} s)", flush=True)
        passed, failed = passed + (not wrong and what != "the end"), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed", flush=True)
    if failed:
        print(f"Traces are in {directory}", flush=True)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
