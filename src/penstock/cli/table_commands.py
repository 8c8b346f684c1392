"""``penstock tables FILE list|add|remove|resync``: the tables of the subscription, while the pipeline runs or not."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.inspect_commands import AsJson, to_stdout
from penstock.cli.invocation import ConfigFile, FileFirst, SinkNames, invocation, stop_on_signals
from penstock.cli.tables_view import tables_table

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline

logger = logging.getLogger(__name__)

app = typer.Typer(
    cls=FileFirst,
    help="List, add, remove and copy again the tables of the subscription.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TABLE_HELP = "orders is public.orders; others as schema.table. As Postgres has it: without quotes, capitals count."
TableNames = Annotated[list[str], typer.Argument(metavar="TABLE", help=TABLE_HELP, show_default=False)]


@dataclass(frozen=True)
class _Tables:
    pipeline: Pipeline


@app.callback()
def _tables(context: typer.Context, file: ConfigFile) -> None:
    context.obj = _Tables(invocation(context).pipeline(file))


@app.command("list")
def list_tables(context: typer.Context, as_json: AsJson = False) -> None:
    """Show where each table stands with each sink: its state, the rows copied, and the last error."""
    tables = _pipeline(context).tables()
    if as_json:
        typer.echo(json.dumps([asdict(table) for table in tables], indent=2))
    elif tables:
        to_stdout().print(tables_table(tables))
    else:
        logger.info("There are no tables in the subscription.")


@app.command()
def add(context: typer.Context, tables: TableNames) -> None:
    """Take these tables in, whatever source.tables says. In the copy modes they are copied first."""
    with stop_on_signals():
        _say(_pipeline(context).add_tables(tables))


@app.command()
def remove(context: typer.Context, tables: TableNames) -> None:
    """Take these tables out, whatever source.tables says. Sinks keep what they have of them."""
    with stop_on_signals():
        _say(_pipeline(context).remove_tables(tables))


@app.command()
def resync(context: typer.Context, tables: TableNames, sink: SinkNames = None) -> None:
    """Copy these tables again. A sink shows what it has until the new copy is complete."""
    pipeline, names = _pipeline(context), sink or []
    pipeline.sinks(names)
    with stop_on_signals():
        _say(pipeline.resync_tables(tables, names))


def _pipeline(context: typer.Context) -> Pipeline:
    found = context.find_object(_Tables)
    assert found is not None, "the group's callback makes one"
    return found.pipeline


def _say(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        logger.info("%s", sentence)
