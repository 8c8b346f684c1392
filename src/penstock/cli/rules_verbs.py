"""``penstock rules``: the rules of other tools as ours, and ours against the source's tables."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.invocation import ConfigFile, invocation
from penstock.cli.look_verbs import AsJson, show_findings
from penstock.errors import ConfigError

logger = logging.getLogger(__name__)


class FileOrVerbFirst(TyperGroup):
    """`rules FILE validate` as well, the way that other verbs of a pipeline are written; `convert` is of no pipeline."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[1:2] == ["validate"] and args[0] not in self.commands:
            args = ["validate", args[0], *args[2:]]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=FileOrVerbFirst, help="Check rules against the source's tables, and convert those of other tools.",
    no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip


class Tool(Enum):
    pg_flo = "pg_flo"
    pgstream = "pgstream"


@app.command()
def validate(context: typer.Context, file: ConfigFile, as_json: AsJson = False) -> None:
    """Hold the config's rules against the tables of the source. Exit code 1 when something does not fit."""
    from penstock.rules.validation import validate as validated

    findings = validated(invocation(context).config(file))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        show_findings(findings)
    raise typer.Exit(1 if any(finding.ok is False for finding in findings) else 0)


@app.command()
def convert(
    tool: Annotated[Tool, typer.Option("--from", help="Whose rules they are.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rules file of that tool.", show_default=False)],
) -> None:
    """Print another tool's rules as those of a Penstock config file. What has no equivalent is said, and a comment."""
    from penstock.rules.convert import as_yaml
    from penstock.rules.convert import convert as convert_rules

    try:
        converted = convert_rules(tool.value, _read(file))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", error.advice) from None
    for note in converted.all_notes:
        logger.warning("%s", note)
    typer.echo(as_yaml(converted), nl=False)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("no such file; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}; name a file that you may read") from None
