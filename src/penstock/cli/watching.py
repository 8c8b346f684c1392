"""What is shown while a pipeline works: a live view where a person is watching, now and then a line where not.

Both come from the files under state_dir, so that nobody is asked and nothing waits for them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli.status_table import log_line, sinks_table, source_line
from penstock.config.model import Config
from penstock.errors import PenstockError
from penstock.pipeline import Pipeline
from penstock.status import SinkStatus, Status, status
from penstock.supervision import repeated

logger = logging.getLogger(__name__)

LINE_SECONDS = 10.0
_REFRESHES_PER_SECOND = 2


@contextmanager
def watched(pipeline: Pipeline, names: Sequence[str], as_lines: bool = False) -> Iterator[None]:
    """Shows how the sinks of these names, or all of them, get on. ``as_lines``: even where a person is watching."""
    if as_lines or not sys.stderr.isatty() or _prints_events_to_a_terminal(pipeline.config, names):
        lines = Lines(pipeline.config, names)
        with repeated(lines.say_what_moved, LINE_SECONDS, "progress"):
            yield
    else:
        with _view(pipeline.config, names):
            yield


def _prints_events_to_a_terminal(config: Config, names: Sequence[str]) -> bool:
    """Events and a view that redraws itself would garble each other."""
    return sys.stdout.isatty() and any(
        sink.type == "stdout" for sink in config.sinks if not names or sink.name in names
    )


def _sinks(found: Status, names: Sequence[str]) -> list[SinkStatus]:
    return [sink for sink in found.sinks if not names or sink.name in names]


class Lines:
    def __init__(self, config: Config, names: Sequence[str]) -> None:
        self._config, self._names = config, names
        self._changes = {sink.name: sink.changes_total for sink in _sinks(status(config, ask_source=False), names)}

    def say_what_moved(self) -> None:
        try:
            found = status(self._config, ask_source=False)
        except PenstockError as error:
            logger.debug("While looking at the state: %s", error)
            return
        for sink in _sinks(found, self._names):
            moved = sink.changes_total - self._changes[sink.name]
            if moved > 0:
                behind = "" if sink.lag_seconds is None else f", {sink.lag_seconds:,.1f} s behind"
                logger.info('Sink "%s": %d more changes, at %s%s.', sink.name, moved, sink.lsn, behind)
            self._changes[sink.name] = sink.changes_total


@contextmanager
def _view(config: Config, names: Sequence[str]) -> Iterator[None]:
    with _terminal_behind_a_pipe() as terminal:
        view = Live(
            get_renderable=lambda: render(config, names),
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
        return Text(str(error), "red")
    return Group(source_line(found.source), log_line(found.log), sinks_table(_sinks(found, names)))


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
