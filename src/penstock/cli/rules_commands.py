"""``penstock rules``: the rules of other tools as ours, ours against the source's tables, and what they make of rows.

Rows before and after the rules, side by side.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.inspect_commands import AsJson, show_findings, to_stdout
from penstock.cli.invocation import FileFirst, invocation, plain
from penstock.cli.table_commands import TABLE_HELP
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.changes.batch import ChangeBatch, Relation
    from penstock.config.model import Config
    from penstock.control.rules_preview import Preview, TextRow, ThroughFrames
    from penstock.rules.passage import Passage

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
    from penstock.imports.rule_checks import validate as validated

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
    from penstock.control.rules_preview import preview as previewed

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
        from penstock.spark.frames import FramePreview  # a JVM is started only by those who need one

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


MOST_CHARACTERS = 200  # of a value; with --json it is all there

_COLOURS = {"changed": "yellow", "dropped": "red", "new": "green", "held back": "red"}


def show_preview(preview: Preview, console: Console) -> None:
    source, target = preview.source.qualified_name, preview.target.qualified_name
    console.print(plain(source if source == target else f"{source} → {target}", "bold"))
    rows = preview.rows()
    if not rows:
        console.print("The table has no rows.")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("row", justify="right", no_wrap=True)
    for heading in ("column", "before", "after"):
        table.add_column(heading, overflow="fold")
    table.add_column("", no_wrap=True)
    for number, (before, after) in enumerate(rows, 1):
        _add_row(table, preview, str(number), before, after)
    console.print(table)
    held_back = sum(after is None for _, after in rows)
    if held_back:
        console.print(f"{held_back} of {len(rows)} rows would be held back by the filter.")


def _add_row(table: Table, preview: Preview, number: str, before: TextRow, after: TextRow | None) -> None:
    places = {origin: place for place, origin in enumerate(preview.origins) if origin is not None}
    for index, column in enumerate(preview.source.columns):
        place = places.get(index)
        kept = None if after is None or place is None else after[place]
        name, mark = column.name, ""
        if after is None:
            mark = "held back"
        elif place is None:
            mark = "dropped"
        else:
            target = preview.target.columns[place].name
            name = name if name == target else f"{name} → {target}"
            mark = "" if kept == before[index] else "changed"
        shown = Text("") if mark in ("held back", "dropped") else _value(kept, _COLOURS.get(mark, ""))
        first = index == 0
        said = _marked(mark if first or mark != "held back" else "")
        table.add_row(number if first else "", plain(name), _value(before[index]), shown, said)
    for place, origin in enumerate(preview.origins):
        if after is not None and origin is None:
            made = preview.target.columns[place].name
            table.add_row("", plain(made), "", _value(after[place], _COLOURS["new"]), _marked("new"))


def _marked(mark: str) -> Text:
    return Text(mark, _COLOURS.get(mark, ""))


def _value(value: str | None, colour: str = "") -> Text:
    """Line ends and what else would move the cursor are written out."""
    if value is None:
        return Text("NULL", "dim")
    cut = value if len(value) <= MOST_CHARACTERS else f"{value[:MOST_CHARACTERS]}…"
    return plain(cut, colour)
