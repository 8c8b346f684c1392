"""``run``, ``capture`` and ``deliver`` as processes. Each test that delivers starts one JVM."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.postgres.connection import connect
from penstock.testing.conditions import wait_until
from tests.cli.command import PENSTOCK, Here, run_to_end, started, stopped_by, write_config

PASSWORD = "open-sesame"
NOISE = re.compile(r"log4j|incubator|NativeCodeLoader|setLogLevel|default log level|loopback|py4j|WARN", re.IGNORECASE)
FILES = {"name": "files", "type": "file", "path": "events"}


NAMES = ("InWrite", "InCommit", "Refusing")
BROKEN_SINKS = """
from penstock import Sink
from penstock.errors import SinkRefused


class InWrite(Sink):
    def write(self, batch, changes):
        raise ValueError("write")


class Refusing(Sink):
    def write(self, batch, changes):
        return None

    def commit(self, batch, receipts):
        raise SinkRefused("Not this row.")


class InCommit(Refusing):
    def commit(self, batch, receipts):
        raise ValueError("commit")
"""


def execute(url: str, *statements: str) -> None:
    with connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def delivered(directory: Path) -> list[dict[str, Any]]:
    """The changes in the files of the sink, without the tables' definitions."""
    lines = [line for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["op"] != "schema"]


@pytest.mark.spark
def test_once_delivers_all_there_is_and_only_data_is_on_standard_output(
    database: str, tmp_path: Path, penstock: Here
) -> None:
    execute(database, "create table public.t (id int primary key, v text)")
    url = database.replace("postgres@", f"postgres:{PASSWORD}@")
    sinks = [{"name": "lake", "type": "duckdb", "path": "shop.duckdb"}, FILES, {"name": "out", "type": "stdout"}]
    file = write_config(tmp_path, url, sinks)
    assert penstock("init", file).code == 0
    execute(database, "insert into public.t select g, 'v' || g from generate_series(1, 500) g")

    outcome = run_to_end("run", file, "--once")

    assert outcome.code == 0, outcome.err
    assert [json.loads(line)["op"] for line in outcome.out.splitlines()] == ["schema"] + ["insert"] * 500
    assert len(delivered(tmp_path / "events")) == 500
    with duckdb.connect(str(tmp_path / "shop.duckdb"), read_only=True) as lake:
        assert lake.execute("select count(*), max(v) from public.t").fetchone() == (500, "v99")
    for name in ("lake", "files", "out"):
        assert f'Sink "{name}": 500 changes delivered' in outcome.err
    assert NOISE.findall(outcome.err) == []
    assert PASSWORD not in outcome.err + outcome.out
    found = penstock.json("status", file, "--json")
    assert [(sink["state"], sink["changes_total"], sink["error"]) for sink in found["sinks"]] == [
        ("stopped", 500, None)
    ] * 3
    assert PASSWORD not in json.dumps(found)


@pytest.mark.spark
def test_sigterm_ends_a_run_with_0_and_leaves_no_process(database: str, tmp_path: Path, penstock: Here) -> None:
    execute(database, "create table public.t (id int primary key)")
    file, messages = write_config(tmp_path, database, [FILES]), tmp_path / "messages"
    with started("run", file, stderr=messages) as process:
        wait_until(lambda: penstock("status", file).code == 0, what="the subscription")
        execute(database, "insert into public.t values (1)")
        wait_until(lambda: delivered(tmp_path / "events"), timeout=120, what="the change to arrive")
        found = penstock.json("status", file, "--json")
        assert (found["healthy"], found["source"]["active"]) == (True, True)
        (sink,) = found["sinks"]
        assert (sink["state"], sink["changes_total"], sink["error"]) == ("running", 1, None)
        assert stopped_by(signal.SIGTERM, process) == 0
    assert messages.read_text().splitlines()[-1].endswith("info: Stopped.")
    assert [line for line in messages.read_text().splitlines() if "error:" in line] == []
    found = penstock.json("status", file, "--json")
    assert (found["sinks"][0]["state"], found["source"]["active"]) == ("stopped", False)


class Screen:
    """A terminal of 120 columns, and everything that was written to it."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._written += os.read(self.ours, 65536)
            except OSError:  # the last process has closed its end
                return

    @property
    def text(self) -> str:
        return self._written.decode(errors="replace")

    def close(self) -> None:
        self._reader.join(10)
        os.close(self.ours)


@contextmanager
def on_a_terminal(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], Screen]]:
    screen = Screen()
    process = subprocess.Popen(
        [*PENSTOCK, *map(str, arguments)], stdin=screen.theirs, stderr=screen.theirs, stdout=subprocess.DEVNULL,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(screen.theirs)
    try:
        yield process, screen
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        screen.close()


@pytest.mark.spark
def test_a_person_at_a_terminal_sees_the_sinks_and_ends_it_with_ctrl_c(database: str, tmp_path: Path) -> None:
    execute(database, "create table public.t (id int primary key)")
    file = write_config(tmp_path, database, [FILES])
    with on_a_terminal("run", file) as (process, screen):
        wait_until(lambda: "info: Reading slot" in screen.text, timeout=120, what="capture to say that it reads")
        execute(database, "insert into public.t select generate_series(1, 1234)")
        wait_until(lambda: "1,234" in screen.text, timeout=120, what="the view to count the changes")
        os.write(screen.ours, b"\x03")
        assert process.wait(120) == 0
    assert "running" in screen.text
    assert screen.text.rstrip().endswith("info: Stopped.")
    assert len(delivered(tmp_path / "events")) == 1234


@pytest.mark.spark
def test_capture_and_deliver_apart_do_what_run_does(database: str, tmp_path: Path, penstock: Here) -> None:
    execute(database, "create table public.t (id int primary key)")
    sinks = [FILES, {"name": "left_out", "type": "file", "path": "nothing"}]
    file, messages = write_config(tmp_path, database, sinks), tmp_path / "messages"
    assert penstock("init", file).code == 0
    execute(database, "insert into public.t values (1), (2)")
    with started("capture", file, stderr=messages) as process:
        wait_until(lambda: penstock.json("status", file, "--json")["log"]["segments"], what="the log")
        assert stopped_by(signal.SIGINT, process) == 0
    assert messages.read_text().splitlines()[-1].endswith("info: Stopped.")

    outcome = run_to_end("deliver", file, "--once", "--sink", "files", "--log-format", "json")

    assert outcome.code == 0, outcome.err
    assert [event["key"] for event in delivered(tmp_path / "events")] == [{"id": 1}, {"id": 2}]
    assert not (tmp_path / "nothing").exists()
    said = [json.loads(line)["message"] for line in outcome.err.splitlines()]
    assert said[:2] == ["Starting Spark (local[*]).", "Delivering to files."]
    # Where it took long, how far it is was said in between.
    assert said[-2].startswith('Sink "files": 2 changes delivered, up to ')
    assert said[-1] == "Done."


@pytest.mark.spark
def test_sinks_that_fail_are_told_once_each_without_a_stack_trace(database: str, tmp_path: Path) -> None:
    """Their module lies beside the config: here, in the children and in the executors."""
    execute(database, "create table public.t (id int primary key)")
    (tmp_path / "broken_sinks.py").write_text(BROKEN_SINKS)
    sinks = [{"name": name, "type": f"broken_sinks:{name}"} for name in NAMES]
    file = write_config(tmp_path, database, [*sinks, FILES])
    assert run_to_end("init", file).code == 0
    execute(database, "insert into public.t values (1)")

    outcome = run_to_end("run", file, "--once")

    assert outcome.code == 1
    assert sorted(line.partition("error: ")[2].split(".")[0] for line in outcome.errors) == [
        "Sink \"InCommit\" stopped: Sink InCommit failed: ValueError('commit')",
        "Sink \"InWrite\" stopped: Sink InWrite failed: ValueError('write')",
        'Sink "Refusing" stopped: Not this row',
    ]
    assert "Traceback" not in outcome.err
    assert NOISE.findall(outcome.err) == []
    assert len(delivered(tmp_path / "events")) == 1
    shown = run_to_end("status", file, "--json")
    assert shown.code == 1
    told = {sink["name"]: (sink["state"], sink["error"]) for sink in json.loads(shown.out)["sinks"]}
    assert {name: state for name, (state, _) in told.items()} == {**dict.fromkeys(NAMES, "failed"), "files": "stopped"}
    assert told["Refusing"][1] == "Not this row."


def test_a_signal_interrupts_the_wait_for_a_slot(database: str, tmp_path: Path) -> None:
    """Postgres makes a slot only when the transactions that were running have ended."""
    file, messages = write_config(tmp_path, database), tmp_path / "messages"
    with connect(database, autocommit=False) as holding:
        holding.execute("select pg_current_xact_id()")
        with started("run", file, stderr=messages) as process:
            wait_until(lambda: messages.exists() and "is waiting for" in messages.read_text(), what="the wait")
            assert stopped_by(signal.SIGINT, process) == 0
    with connect(database) as connection:
        wait_until(
            lambda: connection.execute(
                "select count(*) from pg_replication_slots where database = current_database()"
            ).fetchone() == (0,), what="the slot to be gone"
        )  # fmt: skip
    said = messages.read_text()
    assert "Traceback" not in said
    assert "The set-up of the source ended halfway." in said
    assert "`penstock destroy` removes it." in said
