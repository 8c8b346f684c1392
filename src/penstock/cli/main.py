"""``penstock``: parses the command line, shows results, and turns errors into exit codes. The work is the library's.

Exit codes: 0 done, 1 failed while running, 2 bad usage or bad config.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    dead_letter_commands,
    inspect_commands,
    log_commands,
    pipeline_commands,
    rules_commands,
    table_commands,
    verify_command,
)
from penstock.cli.invocation import Invocation, LogFormat
from penstock.errors import ConfigError, PenstockError
from penstock.logs import show_error, show_faults_in_a_line

FAILED, BAD_USAGE = 1, 2

app = typer.Typer(
    name="penstock",
    help="Every change committed in Postgres, delivered through Apache Spark to any number of sinks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Say more, and show where errors come from.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How messages are written on standard error.")] = LogFormat.text,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    context.obj = Invocation(debug, log_format)
    context.obj.begin()


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="How long to stream live traffic.", min=0)] = 5,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files where they are, to look at them.")] = False,
) -> None:
    """Show it all on this machine: boots a Postgres, streams live traffic into DuckDB, proves both are equal."""
    from penstock.demo import run_demo

    raise typer.Exit(run_demo(seconds, keep))


@app.command()
def prepare() -> None:
    """Make Spark start in half the time on this machine, from now on: an archive of its classes, in the cache."""
    from penstock.spark.startup.class_archive import archive_path
    from penstock.spark.startup.class_training import make_archive
    from penstock.spark.startup.java import java_home

    path = archive_path(java_home())
    if path.exists():
        typer.echo(f"{path} is there already. To have it made anew, remove it.")
        return
    made = make_archive(typer.echo)
    typer.echo(f"{made}, {made.stat().st_size / 1e6:.0f} MB. It can be removed at any time.")


app.command()(pipeline_commands.init)
app.command()(pipeline_commands.destroy)
app.command()(inspect_commands.check)
app.command()(pipeline_commands.run)
app.command()(pipeline_commands.capture)
app.command()(pipeline_commands.deliver)
app.command()(pipeline_commands.copy)
app.add_typer(table_commands.app, name="tables")
app.command()(inspect_commands.status)
app.command()(verify_command.verify)
app.add_typer(log_commands.app, name="log")
app.add_typer(dead_letter_commands.app, name="dead-letters")
app.add_typer(rules_commands.app, name="rules")


def main(arguments: Sequence[str] | None = None) -> None:
    show_faults_in_a_line()
    command = typer.main.get_command(app)
    try:
        command(args=_global_options_first(sys.argv[1:] if arguments is None else arguments), prog_name="penstock")
    except PenstockError as error:
        if not error.told:
            show_error(error)
        sys.exit(BAD_USAGE if isinstance(error, ConfigError) else FAILED)


def _global_options_first(arguments: Sequence[str]) -> list[str]:
    """So that they may stand behind the verb as well."""
    first: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
        elif argument == "--debug" or argument.startswith("--log-format="):
            first.append(argument)
        elif argument == "--log-format":
            first += [argument, *(value for value in [next(waiting, None)] if value is not None)]
        else:
            rest.append(argument)
    return first + rest
