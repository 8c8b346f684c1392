from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.registry import sink_class
from penstock.sinks.stdout import StdoutSettings, StdoutSink
from penstock.testing.change_batches import changes, relation

USERS = relation("public", "users", id="int8", key=("id",))
BATCH = Batch(0, LSN(0), LSN(0x10), "unused")

# Prints batches until nobody listens, then says what it got.
PRINTER = """
import sys
from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.stdout import StdoutSettings, StdoutSink
from penstock.testing.change_batches import changes, relation

users = relation("public", "users", id="int8", key=("id",))
sink = StdoutSink(StdoutSettings(name="out"))
batch = Batch(0, LSN(0), LSN(16), "unused")
receipt = sink.write(batch, iter([changes(users, [("insert", {"id": 1})])]))
try:
    while True:
        sink.commit(batch, [receipt])
except SinkRefused as error:
    print(f"refused: {error}", file=sys.stderr)
"""


def test_the_registry_knows_it() -> None:
    assert sink_class("stdout") is StdoutSink


def test_events_are_printed_in_commit_order(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sink = StdoutSink(StdoutSettings(name="out"))
    late = sink.write(BATCH, iter([changes(USERS, [("insert", {"id": 2})], lsn=9)]))
    early = sink.write(BATCH, iter([changes(USERS, [("insert", {"id": 1})], lsn=8)]))
    sink.commit(BATCH, [late, early])
    events = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [(event["op"], event["lsn"]) for event in events] == [
        ("schema", "0/8"), ("insert", "0/8"), ("insert", "0/9"),
    ]  # fmt: skip


def test_a_definition_is_printed_once_per_run(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sink = StdoutSink(StdoutSettings(name="out", format="pgsink"))
    assert sink.prepare() is None
    for lsn in (1, 2):
        sink.commit(BATCH, [sink.write(BATCH, iter([changes(USERS, [("insert", {"id": lsn})], lsn=lsn)]))])
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert ["schema" in line for line in lines] == [True, False, False]


def test_the_parts_of_an_import_are_printed_as_they_come(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sink = StdoutSink(StdoutSettings(name="out"))
    read = changes(USERS, [("read", {"id": 1}), ("read", {"id": 2})], lsn=3)
    late = changes(USERS, [("delete", None, {"id": 1})], lsn=4)
    for job in (1, 2):
        for phase, some in (("begin", None), ("rows", read), ("changes", late), ("end", None)):
            batch = replace(BATCH, part=ImportPart(job, USERS, phase, 1, upto=LSN(8)))  # type: ignore[arg-type]
            sink.commit(batch, [sink.write(batch, iter([some]))] if some is not None else [])
    assert sink.imported() is None
    events = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [event["op"] for event in events] == [
        "schema", "read", "read", "delete", "truncate", "read", "read", "delete",
    ]  # fmt: skip


@pytest.mark.process
def test_a_reader_that_went_away_is_a_plain_refusal(tmp_path: Path) -> None:
    printer = subprocess.Popen(
        [sys.executable, "-c", PRINTER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    with printer:
        assert printer.stdout is not None
        assert printer.stderr is not None
        assert json.loads(printer.stdout.readline())["op"] == "schema"
        printer.stdout.close()
        errors = printer.stderr.read().decode()
    assert errors == "refused: Nobody reads standard output any more.\n"
    assert printer.returncode == 0
