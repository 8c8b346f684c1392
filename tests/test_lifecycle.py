"""The life of a table, as one table: every event in every state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.state.lifecycle import ChunkState, Event, TableState, claimed, moves, next_state
from penstock.subscription import migrations

STATES = ("pending", "copying", "catching_up", "streaming", "failed", "removed", "expired")
# Per event, the state that follows each of STATES. A dot: the event means nothing there, and nothing changes.
LIFE = {
    Event.POSITION_TAKEN: "pending . . . . . .",
    Event.PLANNED: "copying copying . . . . .",
    Event.COPIED: ". catching_up catching_up . catching_up . .",
    Event.JOINED: "streaming streaming streaming streaming streaming . .",
    Event.FAILED: "failed failed failed . failed . .",
    Event.CLAIMED_UNPLANNED: "pending copying catching_up . pending . .",
    Event.CLAIMED_PLANNED: "pending copying catching_up . copying . .",
    Event.CLAIMED_COPIED: "pending copying catching_up . catching_up . .",
    Event.STARTED_OVER: "pending pending pending pending pending . .",
    Event.REMOVED: "removed removed removed removed removed . .",
    Event.REPLACED: "expired expired expired expired expired expired .",
    Event.PART_BEGIN: "copying copying . . . . .",
    Event.PART_ROWS: "copying copying catching_up . . . .",
    Event.PART_CHANGES: ". catching_up catching_up . . . .",
    Event.PART_END: ". streaming streaming streaming . . .",
    Event.ROWS_LOST: "failed failed failed . failed . .",
    Event.SEEN_PUBLISHED: "pending copying catching_up streaming failed pending .",
    Event.SEEN_UNPUBLISHED: "pending copying catching_up removed failed removed .",
}
CASES = [
    (event, before, after) for event, row in LIFE.items() for before, after in zip(STATES, row.split(), strict=True)
]


def test_the_table_has_every_state_and_every_event() -> None:
    assert list(STATES) == [state.value for state in TableState]
    assert list(LIFE) == list(Event)


@pytest.mark.parametrize(("event", "before", "after"), CASES, ids=lambda value: getattr(value, "name", value))
def test_what_an_event_makes_of_a_state(event: Event, before: str, after: str) -> None:
    assert next_state(TableState(before), event) == (None if after == "." else TableState(after))
    assert moves(event).get(before, ".") == after


def test_an_import_goes_from_pending_to_streaming_for_the_copier_and_for_the_sink() -> None:
    copier = [Event.POSITION_TAKEN, Event.PLANNED, Event.COPIED, Event.JOINED]
    sink = [Event.PART_BEGIN, Event.PART_ROWS, Event.PART_ROWS, Event.PART_CHANGES, Event.PART_CHANGES, Event.PART_END]
    for events in (copier, sink):
        state: TableState | None = TableState.PENDING
        for event in events:
            assert state is not None
            state = next_state(state, event)
        assert state is TableState.STREAMING


@pytest.mark.parametrize("state", [TableState.REMOVED, TableState.EXPIRED])
def test_nothing_that_a_copier_does_brings_a_job_back_that_was_called_off(state: TableState) -> None:
    by_the_copier = [event for event in Event if event.name.startswith(("P", "C", "J", "F", "START"))]
    assert {next_state(state, event) for event in by_the_copier} == {None}


@pytest.mark.parametrize(
    ("planned", "copied", "state"), [(False, False, "pending"), (True, False, "copying"), (True, True, "catching_up")]
)
def test_a_failed_job_continues_in_the_state_that_it_had_reached(planned: bool, copied: bool, state: str) -> None:
    assert next_state(TableState.FAILED, claimed(planned, copied)) == state


def test_the_queue_in_the_source_takes_these_states_and_no_others() -> None:
    script = Path(migrations.__file__).with_name("migrations").joinpath("0001_imports.sql").read_text("utf-8")
    (allowed,) = re.findall(r"state text not null default 'pending'\s+check \(state in \((.*?)\)\)", script)
    assert allowed.replace("'", "").split(", ") == list(STATES)
    (chunks,) = re.findall(r"state text not null default 'todo' check \(state in \((.*?)\)\)", script)
    assert chunks.replace("'", "").split(", ") == [state.value for state in ChunkState]


def test_the_diagram_in_the_docs_has_arrows_that_exist_and_every_step_of_an_import() -> None:
    page = Path(__file__).resolve().parent.parent.joinpath("docs", "architecture.md").read_text("utf-8")
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", page, re.DOTALL)
    drawn = set(re.findall(r"(\w+) --> (\w+):", diagram))
    possible = {move for event in Event for move in moves(event).items()}
    assert drawn <= possible
    steps = [
        event for event in Event if event in (Event.PLANNED, Event.FAILED) or event.name.startswith(("CLAIMED", "PART"))
    ]
    changing = {(before, after) for event in steps for before, after in moves(event).items() if before != after}
    assert changing - {("copying", "streaming")} <= drawn, (
        "a sink may end an import without changes; the copier does not"
    )
