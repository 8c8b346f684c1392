"""What the demo shows while it runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from penstock.demo.comparison import TableComparison
from penstock.demo.display import Display, Figures, Meter
from penstock.lsn import LSN
from penstock.state.pipeline_state import PipelineState, SinkState


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    state = PipelineState(str(tmp_path))
    state.create()
    return state


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time stands still until somebody changes it."""
    now = [100.0]
    monkeypatch.setattr("penstock.demo.display.time.monotonic", lambda: now[0])
    return now


def shown(encoding: str = "utf-8") -> tuple[Display, io.BytesIO]:
    """A display that is no terminal, and what it wrote."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors="replace", write_through=True)
    return Display(Console(file=stream, width=100)), written


def test_before_the_sink_has_begun_nothing_is_delivered_and_the_lag_grows(
    state: PipelineState, clock: list[float]
) -> None:
    meter = Meter(state, "lake")
    meter.read(10, LSN(0x100))
    clock[0] += 3
    assert meter.read(20, LSN(0x200)) == Figures(copied=0, committed=20, delivered=0, per_second=0.0, lag_seconds=3.0)


def test_the_lag_is_the_age_of_the_oldest_position_that_the_sink_has_not_reached(
    state: PipelineState, clock: list[float]
) -> None:
    meter = Meter(state, "lake")
    for position in (0x100, 0x200, 0x300):
        meter.read(0, LSN(position))
        clock[0] += 1
    state.save(SinkState(LSN(0x200), 0.0, changes_total=50), "lake")
    figures = meter.read(60, LSN(0x300))
    assert figures.lag_seconds == 1.0
    assert figures.delivered == 50
    state.save(SinkState(LSN(0x300), 0.0, changes_total=60), "lake")
    assert meter.read(60, LSN(0x300)).lag_seconds == 0.0


def test_the_speed_is_that_of_the_last_moments_only(state: PipelineState, clock: list[float]) -> None:
    state.save(SinkState(LSN(0x100), 0.0, changes_total=100_000), "lake")
    meter = Meter(state, "lake")
    for total in (100_000, 102_000, 104_000, 106_000, 106_000, 106_000, 106_000):
        state.save(SinkState(LSN(0x100), 0.0, changes_total=total), "lake")
        speed = meter.read(total, LSN(0x100)).per_second
        if total == 106_000 and speed == 0:
            break
        clock[0] += 1
    assert speed == 0
    state.save(SinkState(LSN(0x100), 0.0, changes_total=109_000), "lake")
    clock[0] += 1
    assert 1000 <= meter.read(0, LSN(0x100)).per_second <= 3000


def test_without_a_terminal_there_is_a_line_each_second_and_seldom_one_while_nothing_moves(clock: list[float]) -> None:
    display, written = shown()
    with display.live() as show:
        for delivered in (0, 0, 0, 7, 7):
            show(Figures(0, 10, delivered, 0.0, 0.0))
            clock[0] += 1
    lines = written.getvalue().decode().splitlines()
    assert [line.split("Postgres")[1].split()[0] for line in lines] == ["0", "7"]


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "✓"), ("ascii", "yes")])
def test_equal_tables_are_marked_and_unequal_ones_say_how(encoding: str, mark: str) -> None:
    display, written = shown(encoding)
    display.comparisons([TableComparison("public.a", 1500, 1500, 0, 0), TableComparison("public.b", 2, 2, 1, 1)])
    *_, equal, unequal = written.getvalue().decode(encoding).splitlines()
    assert equal.split()[0] == "public.a"
    assert equal.split()[-1] == mark
    assert "1,500" in equal
    assert unequal.rstrip().endswith("NO: 1 missing, 1 too many")
