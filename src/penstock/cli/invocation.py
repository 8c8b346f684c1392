"""What every verb gets: the global options, and the pipeline of the file that it is given."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.config.load import load_config
from penstock.config.model import Config
from penstock.logs import set_up_logging
from penstock.pipeline import Pipeline


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
        config = load_config(file)
        set_up_logging(self.level, self.log_format.value, config.secrets(), dated=long_running)
        return config

    def pipeline(self, file: Path, long_running: bool = False) -> Pipeline:
        return Pipeline(self.config(file, long_running))


def invocation(context: typer.Context) -> Invocation:
    found = context.find_object(Invocation)
    assert found is not None, "the app's callback makes one"
    return found
