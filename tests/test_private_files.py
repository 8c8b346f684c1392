"""What Penstock keeps on a local disk holds rows of the source: it is for its owner alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.imports.handover import ChunkReceipt, Committed, Handover, Manifest
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.staging import stage
from penstock.state.pipeline_state import PipelineState, SinkState
from penstock.storage import Directory
from penstock.testing.change_batches import relation
from tests.changelog.log_scripts import LogScript, write_log

LARGE = pa.table({"n": pa.array(range(100_000))})


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> list[str]:
    """Everything that others than the owner have any right to; there must be something to look at."""
    found = [root, *root.rglob("*")]
    assert any(path.is_file() for path in found)
    return [str(path) for path in found if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)]


@pytest.mark.parametrize("form", [str, Path.as_uri])
def test_directories_are_private_with_all_that_was_missing_above_them(
    tmp_path: Path, form: Callable[[Path], str]
) -> None:
    directory = Directory(form(tmp_path / "a" / "b"))
    directory.create()
    directory.create()
    directory.write("file", lambda stream: stream.write(b"x"))
    directory.write("file", lambda stream: stream.write(b"y"))
    directory.write_json("state.json", {})
    assert open_to_others(tmp_path / "a") == []


def test_a_directory_that_was_there_keeps_the_rights_that_somebody_gave_it(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(0o750)
    directory = Directory(str(tmp_path / "shared"))
    directory.create()
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o750


def test_the_state_of_a_pipeline_and_its_locks_are_private(tmp_path: Path) -> None:
    state = PipelineState(str(tmp_path / "state"))
    state.claim("shop")
    state.save(SinkState(None, 1.0), "lake")
    with state.exclusive(["lake"]), state.exclusive_capture():
        pass
    assert {path.name for path in (tmp_path / "state" / "parts").iterdir()} == {
        "pipeline.json", "sink-lake.json", "sink-lake.lock", "capture.lock",
    }  # fmt: skip
    assert open_to_others(tmp_path / "state") == []


def test_segments_of_the_log_are_private(tmp_path: Path) -> None:
    script = LogScript()
    script.transaction([("insert", 0, "x")], 1)
    write_log(tmp_path / "log", script.stream.messages, 1 << 20)
    assert open_to_others(tmp_path / "log") == []


def test_what_executors_stage_is_private(tmp_path: Path) -> None:
    staged = stage(Batch(7, LSN(1), LSN(2), str(tmp_path / "staging" / "lake" / "7")), "public.users", LARGE)
    assert staged.open().equals(LARGE)
    assert open_to_others(tmp_path / "staging") == []


def test_what_an_import_hands_over_is_private(tmp_path: Path) -> None:
    handover = Handover(Directory(str(tmp_path / "state")), "lake")
    handover.write_manifest(Manifest(3, relation("public", "t", id="int8", key=("id",)), LSN(1)))
    handover.write_receipt(3, ChunkReceipt(1, 10, 100, "outcome", handover.new_staging(3, 1)))
    handover.write_committed(3, Committed((1,)))
    assert open_to_others(tmp_path / "state") == []
