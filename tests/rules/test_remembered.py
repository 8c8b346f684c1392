"""Rules that are others than those by which sinks were filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lsn import LSN
from penstock.rules.checks.earlier_rules import tell_of_other_rules
from penstock.rules.model import RuleSettings
from penstock.state.pipeline_state import PipelineState, SinkState

HIDDEN = RuleSettings.model_validate({"tables": ["public.users"], "columns": {"email": {"transform": "mask"}}})
DROPPED = RuleSettings.model_validate({"tables": ["public.users"], "columns": {"email": {"exclude": True}}})


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    made = PipelineState(str(tmp_path))
    made.create()
    return made


def told(caplog: pytest.LogCaptureFixture, state: PipelineState, *rules: RuleSettings) -> bool:
    caplog.clear()
    tell_of_other_rules(rules, state, ["lake"])
    return "The rules are others" in caplog.text


def test_a_first_start_says_nothing(state: PipelineState, caplog: pytest.LogCaptureFixture) -> None:
    assert not told(caplog, state, HIDDEN)
    assert not told(caplog, state, HIDDEN)


def test_other_rules_are_told_of_once(state: PipelineState, caplog: pytest.LogCaptureFixture) -> None:
    tell_of_other_rules((HIDDEN,), state, ["lake"])
    assert told(caplog, state, DROPPED)
    assert not told(caplog, state, DROPPED)
    assert told(caplog, state)


def test_rules_for_a_sink_that_was_filled_without_any_are_told_of(
    state: PipelineState, caplog: pytest.LogCaptureFixture
) -> None:
    state.save(SinkState(LSN(7), 0.0), "lake")
    assert not told(caplog, state)
    state.parts.delete("rules.json")
    assert told(caplog, state, HIDDEN)
