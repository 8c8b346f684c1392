"""What is shown while a pipeline works, from its files alone."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from penstock.cli.watching import Lines, render, render_copy, watched_copy
from penstock.config.load import load_config
from penstock.config.model import Config
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.state.pipeline_state import CaptureState, PipelineState, SinkState, SourceState, now
from penstock.testing.conditions import wait_until
from tests.cli.command import write_config

NOWHERE = "postgresql://me@127.0.0.1:1/shop"
SINKS = [{"name": name, "type": "file", "path": name} for name in ("files", "others")]
COPYING = {"url": NOWHERE, "mode": "copy_and_stream"}


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    state = PipelineState(load_config(write_config(tmp_path, NOWHERE, SINKS)).state_dir)
    state.create()
    state.save(SourceState("shop", "1", "shop_12345678"))
    state.save(CaptureState(LSN(0x10), LSN(0x20), LSN(0x30), now()))
    return state


def drawn(tmp_path: Path, *names: str) -> str:
    return printed(tmp_path, render(load_config(write_config(tmp_path, NOWHERE, SINKS)), names))


def printed(tmp_path: Path, view: RenderableType) -> str:
    console = Console(width=120, record=True, file=(tmp_path / "screen").open("w"))
    console.print(view)
    console.file.close()
    return console.export_text()


def test_the_view_shows_position_speed_lag_state_and_error_of_each_sink(state: PipelineState, tmp_path: Path) -> None:
    state.save(SinkState(LSN(0x20), now(), "running", None, 0, 12345, 678.0), "files")
    state.save(SinkState(LSN(0x18), now(), "failed", "no room on [the] disk"), "others")
    with state.exclusive(["files"]):
        text = drawn(tmp_path)
    source, _log, _heading, files, others = text.splitlines()
    assert "shop_12345678" in source
    assert files.split() == ["files", "file", "running", "0/20", "0", "B", "0.0", "s", "12,345", "678"]
    assert others.split()[:4] == ["others", "file", "failed", "0/18"]
    assert others.rstrip().endswith("no room on [the] disk")


def test_the_view_is_of_the_sinks_that_were_asked_for(state: PipelineState, tmp_path: Path) -> None:
    assert "others" not in drawn(tmp_path, "files")


def test_before_anything_happened_there_is_a_view_too(tmp_path: Path) -> None:
    assert "files" in drawn(tmp_path)


def test_damaged_state_is_shown_in_the_views_place(state: PipelineState, tmp_path: Path) -> None:
    Path(state.root.path, "parts", "capture.json").write_text("{")
    assert "capture.json is damaged" in drawn(tmp_path)


def test_lines_tell_of_sinks_that_moved_and_of_no_other(
    state: PipelineState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    state.save(SinkState(LSN(0x18), now(), "running", changes_total=100), "files")
    lines = Lines(load_config(write_config(tmp_path, NOWHERE, SINKS)), [])
    lines.say_what_moved()
    assert caplog.messages == []
    state.save(SinkState(LSN(0x20), now(), "running", changes_total=350), "files")
    lines.say_what_moved()
    lines.say_what_moved()
    assert caplog.messages == ['Sink "files": 250 more changes, at 0/20, 0.0 s behind.']


# Imports, by the file that copiers write.


@pytest.fixture
def copying(state: PipelineState, tmp_path: Path) -> Config:
    return load_config(write_config(tmp_path, NOWHERE, SINKS, source=COPYING))


def write(state: PipelineState, *tables: dict[str, Any]) -> None:
    known = [{"schema": "public", "sink": "files", "state": "copying", **table} for table in tables]
    Path(state.parts.path, "copying.json").write_text(json.dumps({"updated_at": now(), "tables": known}))


def test_the_view_has_bars_below_the_sinks_while_tables_are_copied(
    state: PipelineState, copying: Config, tmp_path: Path
) -> None:
    write(state, {"table": "orders", "rows_copied": 250, "rows_estimated": 1000, "rows_per_second": 50.0,
                  "seconds_left": 15.0}, {"table": "users", "sink": "others"})  # fmt: skip
    *above, orders, users = printed(tmp_path, render(copying)).splitlines()
    assert [line.split()[0] for line in above] == ["source", "log", "sink", "files", "others"]
    assert orders.startswith("public.orders → files")
    assert "250 of about 1,000 rows" in orders
    assert orders.rstrip().endswith("50 rows/s  15 s left")
    assert users.startswith("public.users → others")
    assert "public.users" not in printed(tmp_path, render(copying, ["files"]))


def test_the_view_of_copy_shows_imports_alone(state: PipelineState, copying: Config, tmp_path: Path) -> None:
    assert printed(tmp_path, render_copy(copying)).strip() == ""
    write(state, {"table": "orders"}, {"table": "users", "state": "pending", "waiting_for": "pid 7"})
    orders, pending, waiting = printed(tmp_path, render_copy(copying)).splitlines()
    assert orders.startswith("public.orders → files")
    assert (pending.strip(), waiting.strip()) == ("and 1 pending", "waiting for pid 7")
    Path(state.parts.path, "copying.json").write_text("{")
    assert "copying.json is damaged" in printed(tmp_path, render_copy(copying))


def test_lines_tell_of_tables_whose_copy_moved_and_of_no_other(
    state: PipelineState, copying: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    write(state, {"table": "orders", "rows_copied": 10}, {"table": "users", "state": "pending"})
    lines = Lines(copying)
    lines.say_what_was_copied()
    assert caplog.messages == []
    pace = {"rows_estimated": 100, "rows_per_second": 10.0, "seconds_left": 7.0}
    write(state, {"table": "orders", "rows_copied": 30, **pace}, {"table": "users", "rows_copied": 0})
    lines.say_what_moved()
    lines.say_what_moved()
    assert caplog.messages == [
        "public.orders → files: 30 of about 100 rows, 10 rows/s, 7 s left.",
        "public.users → files: 0 rows.",
    ]


def test_lines_of_very_many_tables_are_cut_short(
    state: PipelineState, copying: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    lines = Lines(copying, ["files"])
    write(state, *({"table": f"t{number}"} for number in range(20)), {"table": "x", "sink": "others"})
    lines.say_what_was_copied()
    assert len(caplog.messages) == 9
    assert caplog.messages[-1] == "And 12 more tables are being copied."


def test_lines_of_copy_do_not_speak_of_sinks(
    state: PipelineState, copying: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    monkeypatch.setattr("penstock.cli.watching.LINE_SECONDS", 0.01)
    with watched_copy(Pipeline(copying), as_lines=True):
        state.save(SinkState(LSN(0x20), now(), "running", changes_total=350), "files")
        write(state, {"table": "orders", "rows_copied": 1})
        wait_until(lambda: caplog.messages, what="a line")
    assert caplog.messages == ["public.orders → files: 1 row."]
    assert [thread.name for thread in threading.enumerate() if thread.name == "progress"] == []
