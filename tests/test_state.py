from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError, LogError, SinkUnavailable, SlotBusy
from penstock.lsn import LSN
from penstock.state.pipeline_state import CaptureState, PipelineState, SinkState, SourceState, staged_batch_uri
from penstock.storage import Directory


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    made = PipelineState(str(tmp_path / "state"))
    made.create()
    return made


def test_a_fresh_state_knows_nothing(state: PipelineState) -> None:
    assert (state.source(), state.capture(), state.sink("lake")) == (None, None, None)


def test_every_part_comes_back_as_it_was_saved(state: PipelineState) -> None:
    source = SourceState("shop", "7301", "shop_abc")
    capture = CaptureState(LSN(1), LSN(0xFFFFFFFF00000001), LSN(3), 12.5, "failed", "no")
    lake, fresh = SinkState(LSN(7), 1.0, "retrying", "why", 99, 5, 0.5), SinkState(None, 2.0)
    state.save(source)
    state.save(capture)
    state.save(lake, "lake")
    state.save(fresh, "other")
    assert (state.source(), state.capture(), state.sink("lake"), state.sink("other")) == (source, capture, lake, fresh)
    assert isinstance(state.capture().position, LSN)  # type: ignore[union-attr]


def test_a_key_of_a_later_version_is_ignored(state: PipelineState) -> None:
    state.root.child("parts").write_json(
        "source.json", {"pipeline": "shop", "system_identifier": "1", "slot": "s", "novelty": True}
    )
    assert state.source() == SourceState("shop", "1", "s")


def test_a_damaged_part_is_an_error_and_not_a_fresh_start(state: PipelineState) -> None:
    Path(state.root.path, "parts", "capture.json").write_text("{")
    with pytest.raises(LogError, match=r"capture\.json is damaged"):
        state.capture()


@pytest.mark.parametrize("content", ["{}", '{"begin": "0/1"}', '{"begin": 5, "log_end": "x", "position": "0/1"}'])
def test_a_part_that_lacks_what_it_must_say_is_an_error(state: PipelineState, content: str) -> None:
    Path(state.root.path, "parts", "capture.json").write_text(content)
    with pytest.raises(LogError, match=r"capture\.json is damaged"):
        state.capture()


def test_a_sink_is_delivered_to_by_one_process_at_a_time(state: PipelineState) -> None:
    with state.exclusive(["lake", "out"]):
        with pytest.raises(SinkUnavailable, match='"out"'), state.exclusive(["out"]):
            pass
        with state.exclusive(["third"]):
            pass
    with state.exclusive(["out"]):
        pass


def test_removing_says_what_was_there(state: PipelineState) -> None:
    assert [removed.split()[0] for removed in state.remove()] == ["log", "checkpoints", "staging", "imports", "parts"]
    assert state.remove() == []


def test_places_of_a_sink_are_its_own(state: PipelineState) -> None:
    places = {state.checkpoint_uri(name) for name in "ab"} | {state.staging_uri(name) for name in "ab"}
    assert len(places) == 4


def test_staged_batches_of_a_sink_go_and_what_its_imports_and_other_sinks_have_staged_stays(
    state: PipelineState,
) -> None:
    left = [staged_batch_uri(state.staging_uri("out"), LSN.parse(lsn)) for lsn in ("0/15F0", "A/0")]
    kept = [f"{state.staging_uri('out')}/import-7", staged_batch_uri(state.staging_uri("other"), LSN(0x15F0))]
    for uri in (*left, *kept):
        Directory(uri).create()
        Directory(uri).write_json("staged", {})
    state.remove_staged_batches("out")
    assert [Directory(uri).exists() for uri in (*left, *kept)] == [False, False, True, True]
    state.remove_staged_batches("never ran")


def test_a_state_dir_belongs_to_one_pipeline(tmp_path: Path) -> None:
    state = PipelineState(str(tmp_path))
    state.claim("shop")
    state.claim("shop")
    with pytest.raises(ConfigError, match='belongs to pipeline "shop", not to "depot"'):
        state.claim("depot")
    with pytest.raises(ConfigError, match='belongs to pipeline "shop"'):
        state.require_owner("depot")


def test_a_state_dir_that_nobody_claimed_is_anybodys(tmp_path: Path) -> None:
    PipelineState(str(tmp_path / "new")).require_owner("shop")


def test_a_second_capture_into_the_same_log_is_refused(tmp_path: Path) -> None:
    state = PipelineState(str(tmp_path))
    state.create()
    with state.exclusive_capture(), pytest.raises(SlotBusy), PipelineState(str(tmp_path)).exclusive_capture():
        pass
    with state.exclusive_capture():
        pass
