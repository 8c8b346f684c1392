"""``penstock dead-letters FILE list|replay``: what a sink refused and set aside (``on_error: dead_letter``)."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from penstock.cli.inspect_commands import AsJson, to_stdout
from penstock.cli.invocation import ConfigFile, FileFirst, SinkNames, invocation, plain, stop_on_signals

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline
    from penstock.sinks.dead_letters import DeadLetter

logger = logging.getLogger(__name__)

app = typer.Typer(
    cls=FileFirst,
    help="List, and try again, the rows that a sink refused and set aside.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_UNCUT = 1 << 20

OfTable = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="TABLE", help="Only of this table: orders, or sales.orders. May be given more than once."
    ),
]


@dataclass(frozen=True)
class _Letters:
    pipeline: Pipeline


@app.callback()
def _letters(context: typer.Context, file: ConfigFile) -> None:
    context.obj = _Letters(invocation(context).pipeline(file))


@app.command("list")
def list_letters(
    context: typer.Context, sink: SinkNames = None, table: OfTable = None, as_json: AsJson = False
) -> None:
    """Show the rows that were refused and that no later change has superseded, with the reason, oldest first."""
    with stop_on_signals():
        letters = _pipeline(context).dead_letters(sink or [], table or [])
    if as_json:
        typer.echo(json.dumps([letter.to_json() for letter in letters], indent=2))
    elif letters:
        _show(letters)
    else:
        logger.info("There are no dead letters.")


@app.command()
def replay(context: typer.Context, sink: SinkNames = None, table: OfTable = None, as_json: AsJson = False) -> None:
    """Try them again, while the pipeline runs or not. Exit code 1 when some are refused again."""
    with stop_on_signals():
        done = _pipeline(context).replay_dead_letters(sink or [], table or [])
    if as_json:
        both = {"replayed": done.replayed, "left": done.left}
        typer.echo(json.dumps({name: [letter.to_json() for letter in some] for name, some in both.items()}, indent=2))
    elif done.left:
        _show(done.left)
    logger.info("%s went in, %s left.", _count(len(done.replayed)), f"{len(done.left):,}" if done.left else "none is")
    raise typer.Exit(1 if done.left else 0)


def _pipeline(context: typer.Context) -> Pipeline:
    found = context.find_object(_Letters)
    assert found is not None, "the group's callback makes one"
    return found.pipeline


def _count(letters: int) -> str:
    return "1 dead letter" if letters == 1 else f"{letters:,} dead letters"


def _show(letters: Sequence[DeadLetter]) -> None:
    """To a file or a pipe, a line each, cut nowhere: so that it can be searched."""
    console = to_stdout()
    if not console.is_terminal:
        console.width = _UNCUT
    console.print(_table(letters))


def _table(letters: Sequence[DeadLetter]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("id", justify="right", no_wrap=True)
    for heading in ("sink", "table", "op", "key", "lsn", "time"):
        shown.add_column(heading, overflow="fold")
    shown.add_column("reason", overflow="fold")
    for letter in letters:
        row = (
            str(letter.id), letter.sink, letter.qualified_name, letter.op, _key(letter), str(letter.lsn),
            letter.at.isoformat(" ", "seconds"), letter.reason,
        )  # fmt: skip
        shown.add_row(*map(plain, row))
    return shown


def _key(letter: DeadLetter) -> str:
    """Of a table without a key, the row."""
    named = letter.key or letter.row or {}
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in named.items())
