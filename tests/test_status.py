"""The status of a pipeline, from its files and its source: no JVM, no pipeline that runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.log import ChangeLog
from penstock.config.model import Config
from penstock.control.status import capture_problem, status
from penstock.errors import LogFull
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.state.pipeline_state import CaptureState, SinkState, SourceState, now
from penstock.storage import Directory
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.cli.conftest import capture_until


def a_pipeline(url: str, directory: Path) -> Pipeline:
    pipeline = Pipeline(
        Config.model_validate(
            {
                "name": "shop",
                "state_dir": str(directory / "state"),
                "source": {"url": url},
                "sinks": [
                    {"name": "files", "type": "file", "path": str(directory / "events")},
                    {"name": "out", "type": "stdout"},
                ],
            }
        )
    )
    pipeline.state.create()
    return pipeline


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> Pipeline:
    with connect(database) as connection:
        connection.execute('create table public."T 1" (id int primary key); create table public.t2 (id int)')
    return a_pipeline(database, tmp_path)


def test_the_json_has_the_documented_names(pipeline: Pipeline) -> None:
    pipeline.init()
    found = json.loads(json.dumps(status(pipeline.config).to_json()))
    assert set(found) >= {"name", "source", "log", "sinks", "tables"}
    assert set(found["source"]) >= {
        "slot", "confirmed_lsn", "current_lsn", "retained_bytes", "wal_status", "active"
    }  # fmt: skip
    assert set(found["log"]) >= {"start_lsn", "end_lsn", "segments", "bytes"}
    assert set(found["sinks"][0]) == {
        "name", "type", "state", "lsn", "lag_bytes", "lag_seconds", "changes_total", "changes_per_second", "error",
        "dead_letters",
    }  # fmt: skip
    assert found["tables"][0] == {
        "schema": "public", "table": "T 1", "sink": "files", "state": "streaming",
        "rows_copied": None, "rows_estimated": None, "bytes_copied": None, "bytes_estimated": None,
        "rows_per_second": None, "seconds_left": None, "phase": None, "waiting_for": None, "error": None,
    }  # fmt: skip
    assert len(found["tables"]) == 4
    LSN.parse(found["source"]["confirmed_lsn"])
    assert found["source"]["wal_status"] == "reserved"
    assert found["source"]["active"] is False


def test_before_init_the_subscription_is_missing(pipeline: Pipeline) -> None:
    found = status(pipeline.config)
    assert not found.healthy
    assert found.source.slot is None
    assert "does not exist" in (found.source.error or "")
    assert [(sink.state, sink.lsn, sink.lag_bytes) for sink in found.sinks] == [("stopped", None, None)] * 2
    assert (found.log.segments, found.log.bytes, found.tables) == (0, 0, [])


def test_a_slot_that_was_dropped_is_told(pipeline: Pipeline, database: str) -> None:
    made = pipeline.init()
    assert status(pipeline.config).healthy
    with connect(database) as connection:
        connection.execute("select pg_drop_replication_slot(%s)", [made.slot])
    found = status(pipeline.config)
    assert (found.healthy, found.source.slot) == (False, made.slot)


def test_a_source_that_is_down_is_told_and_the_rest_is_still_known(tmp_path: Path) -> None:
    pipeline = a_pipeline("postgresql://me:s3cret@127.0.0.1:1/shop", tmp_path)
    pipeline.state.save(SourceState("shop", "1", "shop_12345678"))
    pipeline.state.save(CaptureState(LSN(100), LSN(500), LSN(700), now()))
    pipeline.state.save(SinkState(LSN(300), now(), "stopped", changes_total=5), "files")
    pipeline.state.save(SinkState(LSN(500), now(), "stopped", changes_total=9), "out")
    found = status(pipeline.config)
    assert not found.healthy
    assert found.source.slot == "shop_12345678"
    assert "127.0.0.1:1" in (found.source.error or "")
    assert "s3cret" not in json.dumps(found.to_json())
    assert [(sink.lsn, sink.lag_bytes, sink.changes_total) for sink in found.sinks] == [(300, 400, 5), (500, 0, 9)]


def test_a_sink_is_running_only_while_somebody_holds_its_lock(pipeline: Pipeline) -> None:
    pipeline.init()
    pipeline.state.save(SinkState(LSN(1), now(), "running", changes_per_second=12.0), "files")
    pipeline.state.save(SinkState(LSN(1), now(), "stopped"), "out")
    with pipeline.state.exclusive(["files", "out"]):
        held = status(pipeline.config).sinks
    let_go = status(pipeline.config).sinks
    assert [(sink.state, sink.changes_per_second) for sink in held] == [("running", 12.0), ("starting", 0.0)]
    assert [(sink.state, sink.changes_per_second) for sink in let_go] == [("stopped", 0.0), ("stopped", 0.0)]


def test_a_look_at_the_lock_does_not_keep_a_delivery_from_taking_it(pipeline: Pipeline) -> None:
    with pipeline.state.exclusive(["files"]):
        pass
    assert pipeline.state.delivering("files") is False
    with pipeline.state.exclusive(["files"]):
        assert pipeline.state.delivering("files") is True
    assert pipeline.state.delivering("never_started") is False


@pytest.mark.parametrize("state", ["failed", "retrying"])
def test_a_sink_in_trouble_is_not_healthy_and_says_why(state: str, pipeline: Pipeline) -> None:
    pipeline.init()
    pipeline.state.save(SinkState(LSN(1), now(), state, "no room"), "files")
    with pipeline.state.exclusive(["files"]):
        found = status(pipeline.config)
    assert (found.healthy, found.sinks[0].state, found.sinks[0].error) == (False, state, "no room")


def test_a_capture_that_gave_up_is_not_healthy(pipeline: Pipeline) -> None:
    pipeline.init()
    pipeline.state.save(CaptureState(LSN(1), LSN(1), LSN(1), now(), "failed", "a gap"))
    found = status(pipeline.config)
    assert (found.healthy, found.source.error) == (False, "a gap")


def test_lag_is_that_of_what_a_sink_lacks(pipeline: Pipeline, database: str) -> None:
    pipeline.init()
    with connect(database) as connection:
        connection.execute("insert into public.t2 values (1)")
        (upto,) = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone() or ("",)
    capture_until(pipeline, LSN.parse(upto))
    captured, log = pipeline.state.capture(), ChangeLog(pipeline.state.log_uri)
    assert captured is not None
    pipeline.state.save(SinkState(captured.begin, now(), "stopped"), "files")
    pipeline.state.save(SinkState(captured.log_end, now(), "stopped"), "out")

    behind, caught_up = status(pipeline.config, ask_source=False).sinks

    (stretch,) = log.contents().stretches
    age = now() - log.open(stretch.segments[0]).last_commit_time / 1_000_000
    assert behind.lag_bytes == captured.position - captured.begin
    assert behind.lag_seconds == pytest.approx(age, abs=1)
    assert (caught_up.lag_bytes, caught_up.lag_seconds) == (0, 0.0)
    asked = status(pipeline.config)
    assert asked.source.current_lsn is not None
    assert asked.sinks[0].lag_bytes == asked.source.current_lsn - captured.begin


def test_tables_of_a_publication_for_all_tables_are_told(
    postgres18: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    name = database.rpartition("/")[2]
    postgres18.execute("create table public.t (id int primary key)", dbname=name)
    postgres18.execute("create publication everything for all tables", dbname=name)
    config = Config.model_validate(
        {
            "name": "shop",
            "state_dir": str(tmp_path),
            "source": {"url": database, "publication": "everything"},
            "sinks": [{"name": "out", "type": "stdout"}],
        }
    )
    Pipeline(config).init()
    assert [table.table for table in status(config).tables] == ["t"]


def test_a_damaged_log_is_told(pipeline: Pipeline) -> None:
    pipeline.init()
    directory = ChangeLog(pipeline.state.log_uri).directory
    for name in ("0000000000000001-0000000000000002", "0000000000000005-0000000000000006"):
        directory.write(f"{name}-000000-c.arrow", lambda stream: stream.write(b"x"))
    found = status(pipeline.config)
    assert not found.healthy
    assert "hole" in (found.log.error or "")


def capture_state(state: str, age: float = 0.0) -> CaptureState:
    return CaptureState(LSN(1), LSN(1), LSN(1), now() - age, state, None if state == "running" else "No space left.")


@pytest.mark.parametrize("state", ["waiting", "retrying", "failed"])
def test_a_capture_that_does_not_get_on_is_not_healthy_and_says_why(state: str, pipeline: Pipeline) -> None:
    pipeline.init()
    pipeline.state.save(capture_state(state))
    for found in (status(pipeline.config), status(pipeline.config, ask_source=False)):
        assert (found.healthy, found.source.error) == (False, "No space left.")
    (finding,) = [finding for finding in pipeline.check() if finding.name == "capture"]
    assert (finding.ok, finding.message) == (False, "No space left.")
    pipeline.state.save(capture_state("running"))
    assert status(pipeline.config).healthy


def test_what_a_killed_capture_waited_for_is_forgotten() -> None:
    assert capture_problem(capture_state("waiting", age=3600)) is None
    assert capture_problem(capture_state("failed", age=3600)) == "No space left."


def test_a_capture_that_reads_and_records_nothing_is_in_trouble() -> None:
    assert capture_problem(capture_state("running", age=3600)) is None
    assert "recorded no position for 3,600 s" in str(capture_problem(capture_state("running", age=3600), reads=True))
    assert capture_problem(capture_state("running", age=5), reads=True) is None


def test_capture_records_that_it_waits_for_room_and_that_it_got_some(
    pipeline: Pipeline, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.init()
    really_write, stop = Directory.write, threading.Event()

    def write(directory: Directory, name: str, *arguments: Any, **named: Any) -> int:
        if name.endswith(".arrow"):
            raise LogFull("No space left on the disk of the log.")
        return really_write(directory, name, *arguments, **named)

    capturing = threading.Thread(target=pipeline.capture, args=[stop])
    with monkeypatch.context() as full:
        full.setattr(Directory, "write", write)
        capturing.start()
        with connect(database) as connection:
            connection.execute("insert into public.t2 values (1)")
        try:
            wait_until(lambda: not status(pipeline.config).healthy, what="status to tell")
            said = status(pipeline.config).source.error
            assert said is not None
            assert "No space left on the disk of the log." in said
            assert "Make room" in said
        except BaseException:
            stop.set()
            raise
    try:
        wait_until(lambda: status(pipeline.config).healthy, what="capture to get on")
    finally:
        stop.set()
        capturing.join()
