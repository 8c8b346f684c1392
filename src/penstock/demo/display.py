"""What the demo shows: a live panel when a person is watching, a line every second when not."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.demo.comparison import TableComparison
from penstock.imports.progress import read_progress
from penstock.lsn import LSN, ZERO
from penstock.state.pipeline_state import PipelineState

_LINE_SECONDS, _WAITING_LINE_SECONDS = 1.0, 5.0
_WINDOW_SECONDS = 2.0


@dataclass(frozen=True)
class Figures:
    copied: int  # rows that were there before, read so far
    committed: int  # changes committed in Postgres so far
    delivered: int  # changes in DuckDB so far
    per_second: float
    lag_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.copied:>9,} rows copied   {self.committed:>9,} changes in Postgres   {self.delivered:>9,} in DuckDB   "
            f"{self.per_second:>8,.0f} changes/s   lag {self.lag_seconds:.1f} s"
        )


class Meter:
    """Throughput over the last moments, and how long ago the newest position that the sink has passed was written."""

    def __init__(self, state: PipelineState, sink: str) -> None:
        self._state, self._sink = state, sink
        known = state.sink(sink)
        self._delivered: deque[tuple[float, int]] = deque([(time.monotonic(), known.changes_total if known else 0)])
        self._unreached: deque[tuple[float, LSN]] = deque()

    @property
    def position(self) -> LSN:
        known = self._state.sink(self._sink)
        return (known.lsn if known else None) or ZERO

    def read(self, committed: int, source_lsn: LSN) -> Figures:
        clock = time.monotonic()
        known = self._state.sink(self._sink)
        delivered, reached = (known.changes_total, known.lsn or ZERO) if known else (0, ZERO)
        self._delivered.append((clock, delivered))
        while len(self._delivered) > 2 and self._delivered[1][0] < clock - _WINDOW_SECONDS:
            self._delivered.popleft()
        then, before = self._delivered[0]
        if not self._unreached or source_lsn > self._unreached[-1][1]:
            self._unreached.append((clock, source_lsn))
        while self._unreached and self._unreached[0][1] <= reached:
            self._unreached.popleft()
        lag = clock - self._unreached[0][0] if self._unreached else 0.0
        copied = sum(table.rows_copied or 0 for table in read_progress(self._state.parts).tables)
        return Figures(copied, committed, delivered, (delivered - before) / max(clock - then, 0.1), lag)


class Display:
    def __init__(self, console: Console) -> None:
        self._console = console

    def step(self, text: str) -> None:
        self._console.print(f"[bold cyan]▸[/] {text}" if self._console.is_terminal else f"▸ {text}", highlight=False)

    def say(self, text: str = "") -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def live(self) -> Iterator[Callable[[Figures], None]]:
        """Gives a function that shows the newest figures."""
        if not self._console.is_terminal:
            yield self._lines()
            return
        with Live(console=self._console, refresh_per_second=8) as live:
            yield lambda figures: live.update(_panel(figures))

    def _lines(self) -> Callable[[Figures], None]:
        """A line every second while something moves; seldom while there is nothing to do but wait."""
        shown_at, shown = 0.0, (-1, -1, -1)

        def show(figures: Figures) -> None:
            nonlocal shown_at, shown
            counts = (figures.copied, figures.committed, figures.delivered)
            if time.monotonic() - shown_at >= (_LINE_SECONDS if counts != shown else _WAITING_LINE_SECONDS):
                shown_at, shown = time.monotonic(), counts
                self.say(f"  {figures}")

        return show

    def comparisons(self, comparisons: Sequence[TableComparison]) -> None:
        yes = "✓" if self._console.encoding.startswith("utf") else "yes"
        rows = [
            (c.table, f"{c.source_rows:,}", f"{c.target_rows:,}", yes if c.equal else _difference(c))
            for c in comparisons
        ]
        self.table(("table", "rows in Postgres", "rows in DuckDB", "equal"), rows)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = Table(show_edge=False, pad_edge=True)
        for index, name in enumerate(header):
            table.add_column(name, justify="right" if rows and _is_number(rows[0][index]) else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
        self._console.print(table, highlight=False)


def _difference(comparison: TableComparison) -> str:
    return f"NO: {comparison.missing:,} missing, {comparison.extra:,} too many"


def _is_number(value: Any) -> bool:
    return str(value).replace(",", "").replace(".", "").isdigit()


def _panel(figures: Figures) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_row("rows copied", f"{figures.copied:,}")
    table.add_row("changes committed in Postgres", f"{figures.committed:,}")
    table.add_row("changes delivered to DuckDB", f"{figures.delivered:,}")
    table.add_row("changes/s", f"{figures.per_second:,.0f}")
    table.add_row("lag", f"{figures.lag_seconds:.1f} s")
    return table
