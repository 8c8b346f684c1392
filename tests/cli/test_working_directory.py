"""Files of the working directory are not modules of Penstock: no process that it starts runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.postgres.connection import connect
from penstock.spark.startup.worker_python import worker_python
from tests.cli.command import write_config

# Of the standard library, of libraries, and Penstock itself.
NAMES = (
    "types",
    "random",
    "json",
    "select",
    "socket",
    "pyarrow",
    "numpy",
    "duckdb",
    "psycopg",
    "pyspark",
    "penstock",
    "rules",
)

OWN_SINK = """
from penstock.sinks.file.sink import FileSink, FileSettings

class OwnSettings(FileSettings):
    type: str = "own_sink:OwnSink"

class OwnSink(FileSink):
    Settings = OwnSettings
"""
OWN_RULE = """
import random

def marked(table):
    return table
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory whose modules leave a mark beside them when they are run."""
    directory = tmp_path / "working"
    directory.mkdir()
    for name in NAMES:
        (directory / f"{name}.py").write_text("open(__file__ + '.ran', 'w').close()\nraise SystemExit('hostile')\n")
    return directory


def were_run(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.ran"))


@pytest.mark.spark
@pytest.mark.parametrize("beside", [False, True], ids=["elsewhere", "beside the config"])
def test_run_imports_nothing_from_the_working_directory(
    database: str, tmp_path: Path, hostile: Path, beside: bool
) -> None:
    """But modules that the config names are found beside it, in all processes."""
    with connect(database) as connection:
        connection.execute("create table public.orders (id int primary key); insert into public.orders values (1)")
    directory = hostile if beside else tmp_path
    (directory / "own_sink.py").write_text(OWN_SINK)
    (directory / "own_rule.py").write_text(OWN_RULE)
    file = write_config(
        directory, database, [{"name": "own", "type": "own_sink:OwnSink", "path": "events"}],
        source={"url": database, "mode": "copy_and_stream"},
        rules=[{"tables": ["orders"], "python": "own_rule:marked"}],
    )  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", "-m", "penstock", "run", str(file), "--once"]
    done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, timeout=240)
    assert (done.returncode, were_run(hostile)) == (0, []), done.stderr
    events = [
        json.loads(line) for path in (directory / "events").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert [event["after"] for event in events if event["op"] == "read"] == [{"id": 1}]


@pytest.mark.process
@pytest.mark.parametrize("python_path", ["", ":", "::/nowhere"])
def test_sparks_python_processes_look_elsewhere(hostile: Path, python_path: str) -> None:
    command = [worker_python(), "-c", "import random, types; print(random.__file__)"]
    done = subprocess.run(
        command, cwd=hostile, env={**os.environ, "PYTHONPATH": python_path}, capture_output=True, text=True
    )
    assert (done.returncode, were_run(hostile)) == (0, []), done.stderr
