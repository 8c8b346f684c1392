"""``penstock rules``: the rules of other tools as ours, ours against the source's tables, and what they make of rows."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.invocation import FileFirst, invocation
from penstock.cli.look_verbs import AsJson, show_findings
from penstock.cli.status_table import to_stdout
from penstock.cli.table_verbs import TABLE_HELP
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.changes import ChangeBatch, Relation
    from penstock.config.model import Config
    from penstock.rules.passage import Passage
    from penstock.rules.preview import ThroughFrames

logger = logging.getLogger(__name__)


app = typer.Typer(
    cls=FileFirst, help="Check rules, show what they do to rows, and convert those of other tools.",
    no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip

RulesFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The pipeline's config file; for convert, the rules file of that tool.", show_default=False
    ),
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help=TABLE_HELP, show_default=False)]


class Tool(Enum):
    pg_flo = "pg_flo"
    pgstream = "pgstream"


@dataclass(frozen=True)
class _Rules:
    file: Path


@app.callback()
def _rules(context: typer.Context, file: RulesFile) -> None:
    context.obj = _Rules(file)


@app.command()
def validate(context: typer.Context, as_json: AsJson = False) -> None:
    """Hold the config's rules against the tables of the source. Exit code 2 when something does not fit."""
    from penstock.rules.validation import validate as validated

    findings = validated(invocation(context).config(_file(context)))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        show_findings(findings)
    raise typer.Exit(2 if any(finding.ok is False for finding in findings) else 0)


@app.command()
def preview(
    context: typer.Context,
    table: TableName,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many rows to look at.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: a JSON object per row.")] = False,
) -> None:
    """Show rows of a table before and after the rules. Writes nothing; what it shows are real values."""
    from penstock.cli.preview_table import show_preview
    from penstock.rules.preview import preview as previewed

    config = invocation(context).config(_file(context))
    found = previewed(config, table, rows, _through_spark(config))
    if as_json:
        for line in found.json_lines():
            typer.echo(line)
    else:
        show_preview(found, to_stdout())


@app.command()
def convert(
    context: typer.Context, tool: Annotated[Tool, typer.Option("--from", help="Whose rules they are.")]
) -> None:
    """Print another tool's rules as those of a Penstock config file. What has no equivalent is said, and a comment."""
    from penstock.rules.convert import as_yaml
    from penstock.rules.convert import convert as convert_rules

    file = _file(context)
    try:
        converted = convert_rules(tool.value, _read(file))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", error.advice) from None
    for note in converted.all_notes:
        logger.warning("%s", note)
    typer.echo(as_yaml(converted), nl=False)


def _through_spark(config: Config) -> ThroughFrames:
    def through(rules: Passage, relation: Relation, rows: ChangeBatch | None) -> ChangeBatch | None:
        from penstock.spark.frame_preview import FramePreview  # a JVM is started only by those who need one

        return FramePreview(config.spark)(rules, relation, rows)

    return through


def _file(context: typer.Context) -> Path:
    rules = context.find_object(_Rules)
    assert rules is not None, "the group's callback makes one"
    return rules.file


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("no such file; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}; name a file that you may read") from None
