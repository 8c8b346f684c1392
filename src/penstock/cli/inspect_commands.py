"""The verbs that look and change nothing: check and status.

A pipeline's status for people.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from penstock.cli.invocation import ConfigFile, invocation, plain
from penstock.cli.tables_view import summary, tables_table
from penstock.settings.units import size_in_words

if TYPE_CHECKING:
    from penstock.control.status import LogStatus, SinkStatus, SourceStatus, Status
    from penstock.findings import Finding

_COLOURS = {"running": "green", "starting": "yellow", "retrying": "yellow", "failed": "red"}
_WIDE = 5000


def to_stdout() -> Console:
    """As wide as the terminal; to a file or a pipe, wide enough that nothing is folded which people then search for."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE, file=WithoutTrailingBlanks(sys.stdout))


class WithoutTrailingBlanks(io.StringIO):
    """For files and pipes: the cells of a table are as wide as their column, also at the end of a line."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out, self._line = out, ""

    def write(self, text: str) -> int:
        *lines, self._line = f"{self._line}{text}".split("\n")
        self._out.write("".join(f"{line.rstrip(' ')}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        self._out.write(self._line)
        self._line = ""
        self._out.flush()


def show_status(status: Status, console: Console) -> None:
    console.print(Text.assemble(plain(status.name, "bold"), "  ", _verdict(status)))
    console.print(Group(source_line(status.source), log_line(status.log), sinks_table(status.sinks)))
    if status.tables:
        console.print(summary(status.tables))
    if unfinished := [table for table in status.tables if table.state not in ("streaming", "removed")]:
        names = {table.qualified_name for table in unfinished}
        console.print(tables_table([table for table in status.tables if table.qualified_name in names]))


def _verdict(status: Status) -> tuple[str, str]:
    return ("healthy", "green") if status.healthy else ("not healthy", "red")


def source_line(source: SourceStatus) -> Text:
    parts = [f"slot {source.slot}" if source.slot else "no slot"]
    if source.current_lsn is not None:
        parts.append(f"WAL at {source.current_lsn}")
    if source.confirmed_lsn is not None:
        parts.append(f"confirmed {source.confirmed_lsn}")
    if source.retained_bytes is not None:
        parts.append(f"{size_in_words(source.retained_bytes)} retained ({source.wal_status})")
        parts.append("being read" if source.active else "not being read")
    line = plain(f"source  {', '.join(parts)}")
    return _with_error(line, source.error)


def log_line(log: LogStatus) -> Text:
    extent = f", {log.start_lsn} to {log.end_lsn}" if log.end_lsn is not None else ""
    return _with_error(Text(f"log     {log.segments} segments, {size_in_words(log.bytes)}{extent}"), log.error)


def sinks_table(sinks: Sequence[SinkStatus]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("sink", "type", "state", "position"):
        table.add_column(heading, no_wrap=True)
    for heading in ("lag", "", "changes", "changes/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("error", overflow="fold")
    for sink in sinks:
        table.add_row(
            plain(sink.name), plain(sink.type), Text(sink.state, _COLOURS.get(sink.state, "")), str(sink.lsn or "-"),
            "-" if sink.lag_bytes is None else size_in_words(sink.lag_bytes),
            "-" if sink.lag_seconds is None else f"{sink.lag_seconds:,.1f} s",
            f"{sink.changes_total:,}", f"{sink.changes_per_second:,.0f}", _trouble(sink),
        )  # fmt: skip
    return table


def _trouble(sink: SinkStatus) -> Text:
    letters = f"{sink.dead_letters:,} dead letter{'s' if sink.dead_letters > 1 else ''}" if sink.dead_letters else ""
    parts = [(letters, "yellow"), (sink.error or "", "red")]
    return Text(" ").join(plain(*part) for part in parts if part[0])


def _with_error(line: Text, error: str | None) -> Text:
    return Text.assemble(line, "\n        ", plain(error, "red")) if error else line


AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON on standard output.")]

_WORDS = {True: ("ok", "green"), None: ("warning", "yellow"), False: ("failed", "red")}


def check(context: typer.Context, file: ConfigFile, as_json: AsJson = False) -> None:
    """Look for everything that would fail: config, source, tables, sinks. Changes nothing."""
    from penstock.control.administration import Administration

    findings = Administration(invocation(context).config(file)).check()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        show_findings(findings)
    raise typer.Exit(1 if any(finding.ok is False for finding in findings) else 0)


def show_findings(findings: list[Finding]) -> None:
    """One line each: cut nowhere, so that it can be searched and copied."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for finding in findings:
        word, colour = _WORDS[finding.ok]
        console.print(f"{word:8}", style=colour, end="")
        console.print(plain(" ".join(filter(None, (f"{finding.name}:", finding.message, finding.remedy)))))
    failed = sum(finding.ok is False for finding in findings)
    console.print(f"{failed} of {len(findings)} checks failed." if failed else "Nothing stands in the way.")


def status(context: typer.Context, file: ConfigFile, as_json: AsJson = False) -> None:
    """Show where the source, the log and every sink stand. Exit code 1 when something is not as it should be."""
    from penstock.control.status import status as status_of

    current = status_of(invocation(context).config(file))
    if as_json:
        typer.echo(json.dumps(current.to_json(), indent=2))
    else:
        show_status(current, to_stdout())
    raise typer.Exit(0 if current.healthy else 1)
