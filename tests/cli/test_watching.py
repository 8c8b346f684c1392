"""What is shown while a pipeline works, from its files alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.watching import Lines, render
from penstock.config.load import load_config
from penstock.lsn import LSN
from penstock.state import CaptureState, PipelineState, SinkState, SourceState, now
from tests.cli.command import write_config

NOWHERE = "postgresql://me@127.0.0.1:1/shop"
SINKS = [{"name": name, "type": "file", "path": name} for name in ("files", "others")]


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    state = PipelineState(load_config(write_config(tmp_path, NOWHERE, SINKS)).state_dir)
    state.create()
    state.save(SourceState("shop", "1", "shop_12345678"))
    state.save(CaptureState(LSN(0x10), LSN(0x20), LSN(0x30), now()))
    return state


def drawn(tmp_path: Path, *names: str) -> str:
    console = Console(width=120, record=True, file=(tmp_path / "screen").open("w"))
    console.print(render(load_config(write_config(tmp_path, NOWHERE, SINKS)), names))
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
