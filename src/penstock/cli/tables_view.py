"""Where tables stand, for people: a table, a line, and a bar for each that is being copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.invocation import plain
from penstock.settings.units import size_in_words

if TYPE_CHECKING:
    from penstock.imports.progress import TableStatus

MOST_BARS = 8
MOST_SINK_COLUMNS = 4
_COLOURS = {"streaming": "green", "copying": "cyan", "catching_up": "cyan", "pending": "yellow", "failed": "red"}
_ORDER = ("failed", "copying", "catching_up", "pending", "streaming", "removed")
_NAMES = 10


def summary(tables: Sequence[TableStatus]) -> Text:
    """``2 streaming: public.orders, public.users``, or how many are in which state."""
    if len({table.state for table in tables}) > 1:
        each_once = {(table.qualified_name, table.state) for table in tables}
        return Text(f"tables  {_counts([state for _, state in each_once])}")
    names = sorted({table.qualified_name for table in tables})
    shown = f"{', '.join(names[:_NAMES])}{', …' if len(names) > _NAMES else ''}"
    return plain(f"tables  {len(names)} {_word(tables[0].state)}: {shown}")


def tables_table(tables: Sequence[TableStatus]) -> RenderableType:
    """A line for each table, whatever the number of sinks."""
    sinks = list(dict.fromkeys(table.sink for table in tables))
    return _one_sink(tables) if len(sinks) < 2 else _several_sinks(tables, sinks)


def _several_sinks(tables: Sequence[TableStatus], sinks: Sequence[str]) -> RenderableType:
    """With a column for each sink, or, where there are many, how many are in which state. Errors and waits are told below."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    columns = list(sinks) if len(sinks) <= MOST_SINK_COLUMNS else []
    for heading in ("table", *columns, *([] if columns else ["sinks"])):
        shown.add_column(plain(heading), no_wrap=True)
    for heading in ("rows", "of about"):
        shown.add_column(heading, justify="right", no_wrap=True)
    by_name: dict[str, dict[str, TableStatus]] = {}
    for table in tables:
        by_name.setdefault(table.qualified_name, {})[table.sink] = table
    for name, by_sink in by_name.items():
        states = [_state(by_sink.get(sink)) for sink in columns]
        counted = [] if columns else [Text(_counts([table.state for table in by_sink.values()]))]
        figures = [_most(by_sink.values(), field) for field in ("rows_copied", "rows_estimated")]
        shown.add_row(plain(name), *states, *counted, *figures)
    below = [Text.assemble(plain(f"{_name(table)}: "), trouble) for table in tables if (trouble := _trouble(table))]
    return Group(shown, *below)


def _state(table: TableStatus | None) -> Text:
    if table is None:
        return Text("-", "dim")
    share = f" {table.fraction:.0%}" if table.state == "copying" and table.fraction is not None else ""
    return plain(f"{_word(table.state)}{share}", _COLOURS.get(table.state, ""))


def _most(tables: Iterable[TableStatus], field: str) -> str:
    return _number(max((value for table in tables if (value := getattr(table, field)) is not None), default=None))


def _one_sink(tables: Sequence[TableStatus]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("table", "sink", "state"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("rows", "of about", "bytes", "of about", "rows/s", "left"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("error", overflow="fold")
    for table in tables:
        shown.add_row(
            plain(table.qualified_name), plain(table.sink), Text(table.state, _COLOURS.get(table.state, "")),
            _number(table.rows_copied), _number(table.rows_estimated), _size(table.bytes_copied),
            _size(table.bytes_estimated), _number(table.rows_per_second), _left(table), _trouble(table),
        )  # fmt: skip
    return shown


def progress_line(table: TableStatus) -> str:
    """``public.orders → lake: 1,234,000 of about 5,000,000 rows, 310,000 rows/s, 12 s left``."""
    parts = [_rows(table)]
    if table.rows_per_second:
        parts.append(f"{table.rows_per_second:,.0f} rows/s")
    if table.seconds_left is not None:
        parts.append(f"{duration(table.seconds_left)} left")
    return f"{_name(table)}: {', '.join(parts)}"


def progress_bars(tables: Sequence[TableStatus]) -> RenderableType | None:
    """A bar for each of the first few that are being copied, and a word on all others; None: there is nothing to tell."""
    moving = [table for state in ("copying", "catching_up") for table in tables if table.state == state]
    parts: list[RenderableType] = [_bars(moving[:MOST_BARS])] if moving else []
    others = [*moving[MOST_BARS:], *(t for t in tables if t.state in ("pending", "failed"))]
    if others:
        parts.append(Text(f"{'and ' if moving else 'tables  '}{_counts([table.state for table in others])}"))
    parts.extend(_troubles(others))
    return Group(*parts) if parts else None


def _bars(tables: Sequence[TableStatus]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_column(width=20)
    for _ in range(4):
        grid.add_column(justify="right", no_wrap=True)
    for table in tables:
        grid.add_row(plain(_name(table)), _bar(table), Text(_rows(table)), *_pace(table))
    return grid


def _bar(table: TableStatus) -> ProgressBar:
    fraction = 1.0 if table.state == "catching_up" else table.fraction
    return ProgressBar(total=None if fraction is None else 1.0, completed=fraction or 0.0, width=20)


def _pace(table: TableStatus) -> tuple[str, str, str]:
    if table.state == "catching_up":
        return _size(table.bytes_copied), "", "catching up"
    rate = f"{table.rows_per_second:,.0f} rows/s" if table.rows_per_second else ""
    return _size(table.bytes_copied), rate, f"{_left(table)} left" if table.seconds_left is not None else ""


def _troubles(tables: Sequence[TableStatus]) -> Iterator[Text]:
    failed = [table for table in tables if table.state == "failed"]
    for table in failed[:MOST_BARS]:
        yield plain(f"{_name(table)}: {table.error or 'failed'}", "red")
    for table in [table for table in tables if table.phase][:MOST_BARS]:
        yield plain(f"{_name(table)}: {table.phase}")
    for waited_for in sorted({table.waiting_for for table in tables if table.waiting_for}):
        yield plain(f"waiting for {waited_for}", "yellow")


def _counts(states: Sequence[str]) -> str:
    counts = Counter(states)
    return ", ".join(f"{counts[state]:,} {_word(state)}" for state in _ORDER if state in counts)


def _word(state: str) -> str:
    return state.replace("_", " ")


def _name(table: TableStatus) -> str:
    return f"{table.qualified_name} → {table.sink}"


def _rows(table: TableStatus) -> str:
    copied = table.rows_copied or 0
    if table.rows_estimated is None or table.rows_estimated < copied:
        return f"{copied:,} {'row' if copied == 1 else 'rows'}"
    return f"{copied:,} of about {table.rows_estimated:,} rows"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _size(value: int | None) -> str:
    return "-" if value is None else size_in_words(value)


def _left(table: TableStatus) -> str:
    return "-" if table.seconds_left is None else duration(table.seconds_left)


def _trouble(table: TableStatus) -> Text:
    if table.waiting_for:
        return plain(f"waits for {table.waiting_for}", "yellow")
    if table.phase and not table.error:
        return plain(table.phase)
    return plain(table.error or "", "red")


def duration(seconds: float) -> str:
    """12 is ``12 s``, 200 is ``3 min 20 s``, 4000 is ``1 h 06 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
