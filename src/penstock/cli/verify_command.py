"""``penstock verify FILE``: whether sinks hold what the source does."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from penstock.cli.inspect_commands import AsJson
from penstock.cli.invocation import LINE_SECONDS, ConfigFile, SinkNames, invocation, stop_on_signals
from penstock.logs import printable

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline
    from penstock.verify.report import Progress as Hears
    from penstock.verify.report import TableReport

logger = logging.getLogger(__name__)

OneTable = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="TABLE", help="Only this table: orders, or sales.orders. May be given more than once."
    ),
]
Most = Annotated[
    int, typer.Option("--keys", metavar="N", help="How many differing keys to name for each table.", min=1)
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit code 1 also if something was not compared: for a cut-over, where 0 must mean all is equal.",
    ),
]

_WORDS = {
    "equal": "equal",
    "differs": "differs",
    "changing": "changing",
    "left_out": "left out",
    "not_comparable": "not comparable",
}
_STYLES = {"equal": "green", "differs": "red", "changing": "yellow", "left_out": "yellow", "not_comparable": "red"}
_NAMED = 5  # of the rows that changed too fast


def verify(
    context: typer.Context,
    file: ConfigFile,
    table: OneTable = None,
    sink: SinkNames = None,
    keys: Most = 20,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Compare the source with its sinks of type duckdb and postgres, while they run or not. Exit code 1 if they differ."""
    pipeline = invocation(context).pipeline(file)
    with stop_on_signals():
        reports = _verified(pipeline, table or [], sink or [], keys, as_json)
    if as_json:
        typer.echo(json.dumps([report.to_json() for report in reports], indent=2))
    raise typer.Exit(1 if any(_fails(report, bool(table), strict) for report in reports) else 0)


def _fails(report: TableReport, named: bool, strict: bool) -> bool:
    """``named``: the table was asked for by its name, so that leaving it out is no answer."""
    if report.state in ("differs", "not_comparable") or (named and report.state == "left_out"):
        return True
    return strict and not report.is_whole


def _verified(pipeline: Pipeline, tables: list[str], names: list[str], most: int, as_json: bool) -> list[TableReport]:
    found = []
    with _watched() as hears:
        for report in pipeline.verify(tables, names, most, hears):
            found.append(report)
            if not as_json:
                _show(report)
            _warn(report)
    return found


def _show(report: TableReport) -> None:
    """A line for the table, and one for each row that differs: cut nowhere, so that it can be searched and copied."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{_WORDS[report.state]:8} ", style=_STYLES[report.state], end="")
    because = f"  {report.because}" if report.because else ""
    name = f"{report.qualified_name} as {report.target}" if report.target else report.qualified_name
    console.print(printable(f"{report.sink}  {name}  {report.rows:,} rows{because}"))
    for note in report.notes:
        console.print(printable(f"         {note}"))
    for difference in report.differences:
        console.print(printable(f"         {difference}"))
    if report.more:
        console.print(f"         and more than these {len(report.differences)}")


def _warn(report: TableReport) -> None:
    if report.state in ("left_out", "not_comparable"):
        logger.warning(
            "%s in %s was not compared: %s.", report.qualified_name, report.sink, (report.because or "").rstrip(".")
        )
    if not report.unjudged:
        return
    keys = [", ".join(f"{name}={value}" for name, value in key.items()) for key in report.unjudged[:_NAMED]]
    which = f"{len(report.unjudged)} rows, such as {'; '.join(keys)}," if any(keys) else "the rows"
    logger.warning(
        "Of %s in %s, %s changed too fast to be judged. Verify again when less is written to it.",
        report.qualified_name, report.sink, which,
    )  # fmt: skip


def _lines() -> Hears:
    last = time.monotonic()

    def hear(sink: str, table: str, rows: int, estimated: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            of = "" if estimated is None else f" of about {max(rows, estimated):,}"
            logger.info("%s in %s: %s rows compared%s.", table, sink, f"{rows:,}", of)

    return hear


@contextmanager
def _watched() -> Iterator[Hears]:
    """A bar on standard error where a person is watching, now and then a line where not."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("rows")
    # What is printed goes above the bar, unless it goes somewhere else altogether.
    above = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=above) as bars:
        bar = bars.add_task("", start=True)

        def hear(sink: str, table: str, rows: int, estimated: int | None) -> None:
            total = None if estimated is None else max(rows, estimated)
            bars.update(bar, description=printable(f"{sink}  {table}"), completed=rows, total=total)

        yield hear
