"""What every verb gets: the global options, and the pipeline of the file that it is given.

SIGINT and SIGTERM end a command in good order, with exit code 0.

What the source, a sink or a state file says, as a cell or a line of ours: without markup, escapes or line feeds.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from penstock.logs import printable, set_up_logging

if TYPE_CHECKING:
    from penstock.config.model import Config
    from penstock.pipeline import Pipeline


LINE_SECONDS = 10.0  # between two lines that tell how far long work is


class LogFormat(Enum):
    text = "text"
    json = "json"


ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's config file.", show_default=False)]
SinkNames = Annotated[
    list[str] | None, typer.Option("--sink", metavar="NAME", help="Only this sink. May be given more than once.")
]


class FileFirst(TyperGroup):
    """`penstock rules FILE validate`: a group of commands on one file, which comes first. The other order is explained."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            rest = f" {args[0]} …" if len(args) > 1 else f" {args[0]}"
            ctx.fail(f"The file comes before the command: {ctx.command_path} FILE{rest}")
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class Invocation:
    """The global options."""

    debug: bool = False
    log_format: LogFormat = LogFormat.text

    @property
    def level(self) -> int:
        return logging.DEBUG if self.debug else logging.INFO

    def begin(self) -> None:
        """Before a config is known, so that its mistakes can be told."""
        os.environ["PENSTOCK_LOG_FORMAT"] = self.log_format.value  # for the processes that `run` starts
        set_up_logging(self.level, self.log_format.value, dated=False)

    def config(self, file: Path, long_running: bool = False) -> Config:
        """The config in the file; from now on messages hide its secrets."""
        from penstock.config.load import load_config

        config = load_config(file)
        set_up_logging(self.level, self.log_format.value, config.secrets(), dated=long_running)
        return config

    def pipeline(self, file: Path, long_running: bool = False) -> Pipeline:
        from penstock.pipeline import Pipeline  # and with it all that `--help` can do without

        return Pipeline(self.config(file, long_running))


def invocation(context: typer.Context) -> Invocation:
    found = context.find_object(Invocation)
    assert found is not None, "the app's callback makes one"
    return found


_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stop(threading.Event):
    """Set by the first signal.

    Until somebody says ``heeded``, a signal interrupts whatever is going on, since that may be a long wait: Postgres makes
    a slot only when every running transaction has ended. From then on it is left to those who look at the event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heeded = False

    def heeded(self) -> None:
        self._heeded = True

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        first = not self.is_set()
        self.set()
        if first and not self._heeded:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop.receive) for number in _NUMBERS}
    try:
        yield stop
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plain(text: str, style: str = "") -> Text:
    return Text(printable(text), style)
