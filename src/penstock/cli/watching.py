"""What is shown while a pipeline works: a live view where a person is watching, now and then a line where not.

Both come from the files under state_dir, so that nobody is asked and nothing waits for them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli.inspect_commands import log_line, sinks_table, source_line
from penstock.cli.invocation import LINE_SECONDS, plain
from penstock.cli.tables_view import MOST_BARS, progress_bars, progress_line
from penstock.control.status import SinkStatus, Status, status
from penstock.control.supervision import repeated
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.config.model import Config
    from penstock.imports.progress import TableStatus
    from penstock.pipeline import Pipeline

logger = logging.getLogger(__name__)

_REFRESHES_PER_SECOND = 2


@contextmanager
def watched(pipeline: Pipeline, names: Sequence[str], as_lines: bool = False) -> Iterator[None]:
    """Shows how the sinks of these names, or all of them, get on. ``as_lines``: even where a person is watching."""
    if as_lines or not sys.stderr.isatty() or _prints_events_to_a_terminal(pipeline.config, names):
        lines = Lines(pipeline.config, names)
        with repeated(lines.say_what_moved, LINE_SECONDS, "progress"):
            yield
    else:
        with _view(lambda: render(pipeline.config, names)):
            yield


@contextmanager
def watched_copy(pipeline: Pipeline, as_lines: bool = False) -> Iterator[None]:
    """Shows how imports get on, and nothing else."""
    if as_lines or not sys.stderr.isatty():
        with repeated(Lines(pipeline.config).say_what_was_copied, LINE_SECONDS, "progress"):
            yield
    else:
        with _view(lambda: render_copy(pipeline.config)):
            yield


def _prints_events_to_a_terminal(config: Config, names: Sequence[str]) -> bool:
    """Events and a view that redraws itself would garble each other."""
    return sys.stdout.isatty() and any(
        sink.type == "stdout" for sink in config.sinks if not names or sink.name in names
    )


def _sinks(found: Status, names: Sequence[str]) -> list[SinkStatus]:
    return [sink for sink in found.sinks if not names or sink.name in names]


def _tables(found: Status, names: Sequence[str]) -> list[TableStatus]:
    return [table for table in found.tables if not names or table.sink in names]


class Lines:
    def __init__(self, config: Config, names: Sequence[str] = ()) -> None:
        self._config, self._names = config, names
        found = status(config, ask_source=False)
        self._changes = {sink.name: sink.changes_total for sink in _sinks(found, names)}
        self._copied = _copied(found, names)

    def say_what_moved(self) -> None:
        if (found := self._look()) is not None:
            self._say_sinks(found)
            self._say_tables(found)

    def say_what_was_copied(self) -> None:
        if (found := self._look()) is not None:
            self._say_tables(found)

    def _look(self) -> Status | None:
        try:
            return status(self._config, ask_source=False)
        except PenstockError as error:
            logger.debug("While looking at the state: %s", error)
            return None

    def _say_tables(self, found: Status) -> None:
        """Those that are being copied and have moved: a line for each of the first few, and how many others there are."""
        before, self._copied = self._copied, _copied(found, self._names)
        moved = [table for table, rows in self._copied.items() if rows != before.get(table)]
        tables = {_place(table): table for table in found.tables}
        for place in moved[:MOST_BARS]:
            logger.info("%s.", progress_line(tables[place]))
        if len(moved) > MOST_BARS:
            logger.info("And %d more tables are being copied.", len(moved) - MOST_BARS)

    def _say_sinks(self, found: Status) -> None:
        for sink in _sinks(found, self._names):
            moved = sink.changes_total - self._changes[sink.name]
            if moved > 0:
                behind = "" if sink.lag_seconds is None else f", {sink.lag_seconds:,.1f} s behind"
                logger.info('Sink "%s": %d more changes, at %s%s.', sink.name, moved, sink.lsn, behind)
            self._changes[sink.name] = sink.changes_total


def _copied(found: Status, names: Sequence[str]) -> dict[tuple[str, str, str], int]:
    """The rows so far of each table that is being copied."""
    return {_place(t): t.rows_copied or 0 for t in _tables(found, names) if t.state == "copying"}


def _place(table: TableStatus) -> tuple[str, str, str]:
    return table.schema, table.table, table.sink


@contextmanager
def _view(draw: Callable[[], RenderableType]) -> Iterator[None]:
    with _terminal_behind_a_pipe() as terminal:
        view = Live(
            get_renderable=draw,
            console=terminal,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with view:
            yield


def render(config: Config, names: Sequence[str] = ()) -> RenderableType:
    try:
        found = status(config, ask_source=False)
    except PenstockError as error:
        return plain(str(error), "red")
    bars = progress_bars(_tables(found, names))
    shown = (source_line(found.source), log_line(found.log), sinks_table(_sinks(found, names)))
    return Group(*shown, *([bars] if bars else []))


def render_copy(config: Config) -> RenderableType:
    try:
        found = status(config, ask_source=False)
    except PenstockError as error:
        return plain(str(error), "red")
    return progress_bars(found.tables) or Text("")


@contextmanager
def _terminal_behind_a_pipe() -> Iterator[Console]:
    """A console on the terminal that alone writes to it.

    Whatever this process and its children write to standard error meanwhile is printed above the view, line by line.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    with os.fdopen(terminal, "w") as file:
        console = Console(file=file)
        printer = threading.Thread(target=_print_lines, args=(reader, console), name="standard error", daemon=True)
        printer.start()
        try:
            yield console
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            printer.join(2)  # it ends when the last child has closed its end of the pipe


def _print_lines(reader: int, console: Console) -> None:
    with os.fdopen(reader, errors="replace") as lines:
        for line in lines:
            console.print(line.rstrip("\n"), markup=False, highlight=False, soft_wrap=True)
