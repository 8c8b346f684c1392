"""``penstock log FILE show|query|schema``: reads the change log, while the pipeline runs or not; and the source's log of
schema changes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.inspect_commands import to_stdout
from penstock.cli.invocation import ConfigFile, FileFirst, invocation, plain
from penstock.errors import ConfigError
from penstock.logs import printable
from penstock.lsn import LSN, ZERO
from penstock.settings.units import size_in_words

if TYPE_CHECKING:
    from penstock.changelog.log import ChangeLog
    from penstock.pipeline import Pipeline
    from penstock.schema.log.history import Version
    from penstock.settings.tables import TableSelection

if TYPE_CHECKING:  # the others are loaded by those who ask for the log: they take their time
    from penstock.control.log_events import LogRange
    from penstock.control.log_query import Answer

app = typer.Typer(cls=FileFirst, help="Read the change log.", no_args_is_help=True, rich_markup_mode=None)

ROWS_FOR_PEOPLE = 1000

Tables = Annotated[
    list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this one, or those matching schema.*.")
]
From = Annotated[str | None, typer.Option("--from", metavar="LSN", help="Only what was committed here or later.")]
To = Annotated[str | None, typer.Option("--to", metavar="LSN", help="Only what was committed here or earlier.")]


@dataclass(frozen=True)
class _Log:
    changes: ChangeLog
    pipeline: Pipeline


@app.callback()
def _log(context: typer.Context, file: ConfigFile) -> None:
    pipeline = invocation(context).pipeline(file)
    context.obj = _Log(pipeline.state.log, pipeline)


@app.command()
def show(
    context: typer.Context,
    table: Tables = None,
    start: From = None,
    end: To = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many changes.")] = None,
    segments: Annotated[bool, typer.Option("--segments", help="One line for each segment instead.")] = False,
) -> None:
    """Print changes as JSON events, one per line, in commit order."""
    from penstock.control.log_events import event_lines, segment_lines

    log, wanted = _the_log(context), _range(table, start, end)
    with _reader_may_leave():
        if segments:
            for one in islice(segment_lines(log, wanted), limit):
                tables = ", ".join(one["tables"])
                typer.echo(
                    printable(f"{one['name']}  {one['rows']:,} changes, {size_in_words(one['bytes'])}: {tables}")
                )
            return
        for lines in event_lines(log, wanted, limit):
            sys.stdout.buffer.write(lines)
        sys.stdout.flush()


@app.command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query over the views changes and segments.")],
    table: Tables = None,
    start: From = None,
    end: To = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: a JSON object per row.")] = False,
) -> None:
    """Ask the change log in SQL (DuckDB's).

    Views: changes (schema, table, op, lsn, position, sequence, xid, commit_time, and key, after, before as JSON) and segments
    (name, start, end, rows, bytes, tables). --table, --from and --to spare reading the rest of the log.
    """
    from penstock.control.log_query import query as query_log

    log, wanted = _the_log(context), _range(table, start, end)
    with _reader_may_leave(), query_log(log, sql, wanted, as_json) as answer:
        if as_json:
            for (line,) in answer.rows:
                typer.echo(line)
        else:
            _show_table(answer)


@app.command()
def schema(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this one, by any name it had.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: a JSON object per command.")] = False,
) -> None:
    """Print the commands that changed the schema, oldest first, and what they changed. Asks the source."""
    log = context.find_object(_Log)
    assert log is not None, "the group's callback makes one"
    with _reader_may_leave():
        for version in log.pipeline.schema_versions(table):
            if as_json:
                typer.echo(json.dumps(version.to_json()))
            else:
                _show_version(version)


def _show_version(version: Version) -> None:
    from penstock.schema.kinds import TableChange
    from penstock.schema.words import in_words

    at = version.at if isinstance(version.at, str) else f"{version.at:%Y-%m-%d %H:%M:%S}"
    typer.echo(printable(f"{version.lsn}  {at}  {version.role}  {version.tag}"))
    for change in version.changes:
        place = f"{change.table}: " if isinstance(change, TableChange) else ""
        typer.echo(printable(f"    {place}{in_words(change)}"))


def _show_table(answer: Answer) -> None:
    shown = list(islice(answer.rows, ROWS_FOR_PEOPLE))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in answer.columns:
        table.add_column(plain(name), overflow="fold")
    for row in shown:
        table.add_row(*(Text("NULL", "dim") if value is None else plain(str(value)) for value in row))
    to_stdout().print(table)
    if next(answer.rows, None) is not None:
        typer.echo(f"These are the first {ROWS_FOR_PEOPLE} rows. For all of them, use --json.", err=True)


def _the_log(context: typer.Context) -> ChangeLog:
    found = context.find_object(_Log)
    assert found is not None, "the group's callback makes one"
    return found.changes


def _range(tables: list[str] | None, start: str | None, end: str | None) -> LogRange:
    from penstock.control.log_events import LogRange

    return LogRange(_selection(tables), _lsn("--from", start) or ZERO, _lsn("--to", end))


def _selection(tables: list[str] | None) -> TableSelection | None:
    from pydantic import ValidationError

    from penstock.settings.tables import TableSelection

    try:
        return TableSelection(include=tuple(tables)) if tables else None
    except ValidationError as error:
        raise ConfigError(f"--table: {error.errors()[0]['msg']}.") from None


def _lsn(option: str, text: str | None) -> LSN | None:
    try:
        return None if text is None else LSN.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}.") from None


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """`penstock log … | head` is no failure."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains at exit about what it could not write
