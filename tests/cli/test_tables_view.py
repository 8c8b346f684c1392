"""Tables and their imports as people see them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from penstock.cli.inspect_commands import WithoutTrailingBlanks
from penstock.cli.tables_view import MOST_BARS, duration, progress_bars, progress_line, summary, tables_table
from penstock.imports.progress import TableStatus
from penstock.state.lifecycle import TableState

ORDERS = TableStatus(
    "public", "orders", "lake", TableState.COPYING, 1_234_000, 5_000_000, 100 << 20, 400 << 20, 310_000.0, 12.1
)  # fmt: skip
STUCK = TableStatus(
    "public", "users", "lake", TableState.PENDING, 0, 10, waiting_for="pid 4711 of app since 2026-11-15 10:02:11"
)
BROKEN = TableStatus("public", "notes", "lake", TableState.FAILED, error="permission denied for [table] notes")
LIVE = TableStatus("public", "lines", "lake", TableState.STREAMING, 7, 7)


def drawn(tmp_path: Path, what: RenderableType | None, width: int = 140) -> list[str]:
    assert what is not None
    with (tmp_path / "screen").open("w") as file:
        console = Console(width=width, record=True, file=file)
        console.print(what)
        return console.export_text().splitlines()


def copying(number: int) -> TableStatus:
    return TableStatus("public", f"t{number:02}", "lake", TableState.COPYING, 5, 10)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (ORDERS, "public.orders → lake: 1,234,000 of about 5,000,000 rows, 310,000 rows/s, 12 s left"),
        (TableStatus("s", "t", "a", TableState.COPYING), "s.t → a: 0 rows"),
        (TableStatus("s", "t", "a", TableState.COPYING, 0, 10, rows_per_second=0.0), "s.t → a: 0 of about 10 rows"),
        (TableStatus("s", "t", "a", TableState.COPYING, 1), "s.t → a: 1 row"),
        (TableStatus("s", "t", "a", TableState.COPYING, 12, None, rows_per_second=3.0), "s.t → a: 12 rows, 3 rows/s"),
        (TableStatus("s", "t", "a", TableState.COPYING, 12, 10), "s.t → a: 12 rows"),  # the estimate was too low
    ],
)
def test_a_line_tells_rows_rate_and_time_left(table: TableStatus, line: str) -> None:
    assert progress_line(table) == line


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3600, "1 h 00 min"),
        (90061, "25 h 01 min"),
    ],
)
def test_durations_are_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("copied", "estimated", "read", "size", "fraction"),
    [
        (1, 4, None, None, 0.25),
        (4, 4, None, None, 1.0),
        (0, 4, 3, 4, 0.0),
        (5, 4, 3, 4, 0.75),  # more rows than estimated
        (5, None, 3, 4, 0.75),
        (5, 0, None, None, None),
        (None, 4, None, None, None),
        (5, 4, 5, 4, None),
    ],
)
def test_how_much_is_copied_goes_by_rows_or_else_by_bytes(
    copied: int | None, estimated: int | None, read: int | None, size: int | None, fraction: float | None
) -> None:
    assert TableStatus("s", "t", "a", TableState.COPYING, copied, estimated, read, size).fraction == fraction


def test_the_list_has_every_figure_and_the_whole_error(tmp_path: Path) -> None:
    heading, orders, users, notes, lines = drawn(tmp_path, tables_table([ORDERS, STUCK, BROKEN, LIVE]), 200)
    assert heading.split()[:4] == ["table", "sink", "state", "rows"]
    assert orders.split() == [
        "public.orders", "lake", "copying", "1,234,000", "5,000,000", "100.0", "MiB", "400.0", "MiB", "310,000", "12", "s",
    ]  # fmt: skip
    assert users.rstrip().endswith("waits for pid 4711 of app since 2026-11-15 10:02:11")
    assert notes.rstrip().endswith("permission denied for [table] notes")
    assert lines.split() == ["public.lines", "lake", "streaming", "7", "7", "-", "-", "-", "-"]


def test_a_table_is_one_line_whatever_the_number_of_sinks(tmp_path: Path) -> None:
    both = [
        ORDERS,
        replace(ORDERS, sink="files", state=TableState.STREAMING),
        LIVE,
        replace(BROKEN, table="lines", sink="files"),
    ]
    heading, orders, lines, trouble = drawn(tmp_path, tables_table(both))
    assert heading.split() == ["table", "lake", "files", "rows", "of", "about"]
    assert orders.split() == ["public.orders", "copying", "25%", "streaming", "1,234,000", "5,000,000"]
    assert lines.split() == ["public.lines", "streaming", "failed", "7", "7"]
    assert trouble.rstrip() == "public.lines → files: permission denied for [table] notes"


def test_the_states_in_many_sinks_are_counted(tmp_path: Path) -> None:
    many = [replace(LIVE, sink=f"s{number}") for number in range(6)]
    heading, lines = drawn(tmp_path, tables_table([*many, replace(ORDERS, table="lines", sink="s7")]))
    assert heading.split() == ["table", "sinks", "rows", "of", "about"]
    assert lines.split()[:5] == ["public.lines", "1", "copying,", "6", "streaming"]


def test_what_is_written_to_a_pipe_has_no_blanks_at_the_end_of_a_line(tmp_path: Path) -> None:
    with (tmp_path / "pipe").open("w") as file:
        Console(width=200, file=WithoutTrailingBlanks(file)).print(
            tables_table([ORDERS, STUCK, BROKEN, LIVE]), "end ", end=""
        )
    text = (tmp_path / "pipe").read_text()
    assert text.endswith("end ")
    assert [line for line in text.splitlines()[:-1] if line != line.rstrip()] == []


@pytest.mark.parametrize(("rows", "length"), [(10, 2), (50, 10), (100, 20)])
def test_a_table_that_is_copied_has_a_bar_as_long_as_what_is_done(tmp_path: Path, rows: int, length: int) -> None:
    table = TableStatus("public", "t", "lake", TableState.COPYING, rows, 100, 1 << 20, 2 << 20, 25.0, 2.0)
    (line,) = drawn(tmp_path, progress_bars([table]))
    name, _, _, bar, rest = line.split(maxsplit=4)
    assert (name, len(bar)) == ("public.t", length)
    assert " ".join(rest.split()) == f"{rows} of about 100 rows 1.0 MiB 25 rows/s 2 s left"


def test_a_table_that_catches_up_has_a_full_bar_below_those_that_are_copied(tmp_path: Path) -> None:
    behind = TableStatus("public", "a", "lake", TableState.CATCHING_UP, 7)
    first, second = drawn(tmp_path, progress_bars([behind, copying(1)]))
    assert first.startswith("public.t01")
    assert second.split()[3] == first.split()[3] * 2
    assert second.rstrip().endswith("catching up")


def test_of_many_tables_a_few_have_bars_and_the_rest_is_counted(tmp_path: Path) -> None:
    tables = [*(copying(number) for number in range(MOST_BARS + 3)), STUCK, BROKEN, LIVE]
    shown = drawn(tmp_path, progress_bars(tables))
    assert [line.split()[0] for line in shown[:MOST_BARS]] == [f"public.t{number:02}" for number in range(MOST_BARS)]
    assert shown[MOST_BARS].strip() == "and 1 failed, 3 copying, 1 pending"
    assert shown[MOST_BARS + 1].strip() == "public.notes → lake: permission denied for [table] notes"
    assert shown[MOST_BARS + 2].strip() == "waiting for pid 4711 of app since 2026-11-15 10:02:11"
    assert len(shown) == MOST_BARS + 3


def test_where_nothing_is_imported_there_is_nothing_to_show() -> None:
    assert progress_bars([]) is None
    assert progress_bars([LIVE, TableStatus("s", "t", "a", TableState.REMOVED)]) is None


def test_tables_in_one_state_are_named_and_others_are_counted_each_once() -> None:
    both = [LIVE, TableStatus("public", "lines", "files", TableState.STREAMING)]
    assert summary(both).plain == "tables  1 streaming: public.lines"
    assert summary([*both, BROKEN, ORDERS]).plain == "tables  1 failed, 1 copying, 1 streaming"
    assert summary([copying(number) for number in range(12)]).plain.endswith("public.t09, …")
