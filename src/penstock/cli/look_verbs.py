"""The verbs that look and change nothing: check and status."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.invocation import ConfigFile, invocation
from penstock.cli.plain import plain
from penstock.cli.status_table import show_status, to_stdout
from penstock.postgres.preflight import Finding
from penstock.status import status as status_of

AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON on standard output.")]

_WORDS = {True: ("ok", "green"), None: ("warning", "yellow"), False: ("failed", "red")}


def check(context: typer.Context, file: ConfigFile, as_json: AsJson = False) -> None:
    """Look for everything that would fail: config, source, tables, sinks. Changes nothing."""
    findings = invocation(context).pipeline(file).check()
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
    found = status_of(invocation(context).pipeline(file).config)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        show_status(found, to_stdout())
    raise typer.Exit(0 if found.healthy else 1)
