"""A difference is believed only where the sink holds all that is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, connect
from penstock.settings.tables import TableSelection
from penstock.state.pipeline_state import CaptureState, PipelineState, SinkState
from penstock.subscription import subscription
from penstock.verify.judging import Standing


@pytest.fixture
def source(database: str) -> Iterator[Connection]:
    """Empty, with a table that a subscription called shop captures."""
    with connect(database) as connection:
        connection.execute("create table public.t (id int primary key)")
        subscription.create(connection, "shop", TableSelection())
        yield connection
        subscription.destroy(connection, "shop")


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    made = PipelineState(str(tmp_path))
    made.create()
    return made


def standing(source: Connection, state: PipelineState, positions: Sequence[LSN], patience: float = 60.0) -> Standing:
    """Of a sink that stands at these positions one after the other, and then stays at the last."""
    found = subscription.find(source, "shop")
    assert found is not None
    waiting = list(positions)
    return Standing(source, found, state, "lake", lambda: waiting.pop(0) if len(waiting) > 1 else waiting[0], patience)


def test_a_sink_whose_record_is_past_everything_has_caught_up(source: Connection, state: PipelineState) -> None:
    source.execute("insert into public.t values (1)")
    before = catalog.current_lsn(source)
    assert standing(source, state, [LSN(1 << 60)]).catch_up() > before


def test_one_that_is_on_its_way_is_waited_for(source: Connection, state: PipelineState) -> None:
    source.execute("insert into public.t values (1)")
    with state.exclusive(["lake"]):
        standing(source, state, [LSN(1), LSN(2), LSN(3), LSN(1 << 60)], patience=5).catch_up()


def test_a_pipeline_that_does_not_run_and_lacks_a_change_is_behind(source: Connection, state: PipelineState) -> None:
    held = catalog.wal_marker(source)
    source.execute("insert into public.t values (1)")
    with pytest.raises(SinkUnavailable, match="nothing delivers to it") as behind:
        standing(source, state, [held]).catch_up()
    assert f"stands at {held}" in str(behind.value)
    assert "`penstock run FILE --once`" in str(behind.value.advice)


def test_a_pipeline_that_does_not_run_lacks_nothing_if_all_wal_since_is_of_others(
    source: Connection, state: PipelineState
) -> None:
    source.execute("insert into public.t values (1)")
    held = catalog.wal_marker(source)
    source.execute("create table public.unpublished (id int); insert into public.unpublished values (1)")
    until = standing(source, state, [held]).catch_up()
    assert until > held


def test_looking_takes_nothing_out_of_the_slot(source: Connection, state: PipelineState) -> None:
    held = catalog.wal_marker(source)
    source.execute("insert into public.t values (1)")
    for _ in range(2):
        with pytest.raises(SinkUnavailable):
            standing(source, state, [held]).catch_up()


def test_what_is_in_the_log_and_not_in_the_sink_is_lacking(source: Connection, state: PipelineState) -> None:
    """Also where capture has confirmed it, so that the slot has it no more."""
    now = catalog.wal_marker(source)
    state.save(CaptureState(LSN(1), log_end=now, position=LSN(now + (1 << 30)), updated_at=0.0))
    with pytest.raises(SinkUnavailable, match="nothing delivers to it"):
        standing(source, state, [LSN(now - 1)]).catch_up()
    standing(source, state, [now]).catch_up()


def test_a_sink_that_does_not_move_is_not_waited_for_for_ever(source: Connection, state: PipelineState) -> None:
    with state.exclusive(["lake"]), pytest.raises(SinkUnavailable, match="did not move"):
        standing(source, state, [LSN(1)], patience=0).catch_up()


def test_a_sink_without_a_position_holds_nothing_yet(source: Connection, state: PipelineState) -> None:
    source.execute("insert into public.t values (1)")
    found = subscription.find(source, "shop")
    assert found is not None
    with pytest.raises(SinkUnavailable, match='Sink "lake" holds nothing yet'):
        Standing(source, found, state, "lake", lambda: None).catch_up()


def test_a_sink_that_a_delivery_notes_to_be_behind_is_not_looked_into(source: Connection, state: PipelineState) -> None:
    """To open a DuckDB file again and again would keep out the sink that is waited for."""
    looks: list[int] = []

    def look() -> LSN | None:
        looks.append(1)
        return LSN(1 << 60)

    source.execute("insert into public.t values (1)")
    slot = subscription.find(source, "shop")
    assert slot is not None
    waiting = Standing(source, slot, state, "lake", look, patience=0)
    state.save(SinkState(LSN(1), 0.0, "retrying", "The file is open elsewhere."), "lake")
    with state.exclusive(["lake"]):
        with pytest.raises(
            SinkUnavailable, match="although the pipeline runs \\(The file is open elsewhere\\)"
        ) as stuck:
            waiting.catch_up()
        assert "`penstock status FILE`" in str(stuck.value.advice)
        assert looks == []
        state.save(SinkState(LSN(1 << 60), 0.0), "lake")
        waiting.catch_up()
    assert looks == [1]
