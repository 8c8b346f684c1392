"""The verbs that do something: init, destroy, run, capture, deliver, copy. Each is a method of ``Pipeline``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.invocation import ConfigFile, LogFormat, SinkNames, invocation, stop_on_signals

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline

logger = logging.getLogger(__name__)


AdminUrl = Annotated[
    str | None,
    typer.Option(
        "--admin-url", metavar="URL", envvar="PENSTOCK_ADMIN_URL", show_envvar=False,
        help="A superuser's, for event triggers alone: others may not create or drop them. Or set PENSTOCK_ADMIN_URL.",
    ),
]  # fmt: skip


def init(
    context: typer.Context,
    file: ConfigFile,
    no_triggers: Annotated[
        bool, typer.Option("--no-triggers", help="Do without the event triggers that log schema changes.")
    ] = False,
    admin_url: AdminUrl = None,
    trigger_sql: Annotated[
        bool, typer.Option("--trigger-sql", help="Print what creates the event triggers, for an administrator to run.")
    ] = False,
) -> None:
    """Create what Penstock needs on the source: publication, slot, event triggers, its own schema. Doing it again changes
    nothing."""
    with stop_on_signals():
        made = invocation(context).pipeline(file).init(not no_triggers, admin_url)
    if trigger_sql:
        from penstock.schema.log.triggers import installation

        typer.echo(installation())
    elif no_triggers:
        logger.info("No event triggers were created: renames, defaults and keys of tables are not followed.")
    if made.consistent_point is None:
        logger.info('The subscription "%s" exists already, with slot "%s". Nothing to do.', made.name, made.slot)
    else:
        logger.info(
            'Created the subscription "%s" with slot "%s" at %s: every change committed from now on is captured.',
            made.name, made.slot, made.consistent_point,
        )  # fmt: skip


def destroy(context: typer.Context, file: ConfigFile, admin_url: AdminUrl = None) -> None:
    """Remove all that Penstock made on the source, and this pipeline's state. Sinks keep what they have."""
    from penstock.subscription.subscription import NotAllRemoved

    with stop_on_signals():
        try:
            removed = invocation(context).pipeline(file).destroy(admin_url)
        except NotAllRemoved as error:
            _say_removed(error.removed)
            raise
    _say_removed(removed)
    if not removed:
        logger.info("There was nothing to remove.")


def _say_removed(removed: Sequence[str]) -> None:
    for what in removed:
        logger.info("Removed %s.", what)


def run(
    context: typer.Context,
    file: ConfigFile,
    once: Annotated[
        bool, typer.Option("--once", help="End when every sink holds all that was committed before the start.")
    ] = False,
    sink: SinkNames = None,
    no_copy: Annotated[
        bool, typer.Option("--no-copy", help="Leave imports to `penstock copy`, which may run on another machine.")
    ] = False,
) -> None:
    """Capture, copy and deliver, until stopped."""
    from penstock.cli.watching import watched

    call, names = invocation(context), sink or []
    pipeline = call.pipeline(file, long_running=True)
    with stop_on_signals() as stop:
        made = pipeline.begin(names, copy=not no_copy)
        if made.consistent_point is not None:
            logger.info('Created the subscription "%s" with slot "%s".', made.name, made.slot)
        stop.heeded()
        before = _delivered(pipeline)
        with watched(pipeline, names, as_lines=call.log_format is LogFormat.json):
            pipeline.run(once, names, stop, copy=not no_copy, begun=True)
    _say_what_was_delivered(pipeline, names, before)
    logger.info("Stopped." if stop.is_set() else "Done.")


def capture(context: typer.Context, file: ConfigFile) -> None:
    """Capture alone: from the source into the change log, until stopped."""
    pipeline = invocation(context).pipeline(file, long_running=True)
    with stop_on_signals() as stop:
        stop.heeded()
        pipeline.capture(stop)
    logger.info("Stopped.")


def deliver(
    context: typer.Context,
    file: ConfigFile,
    once: Annotated[bool, typer.Option("--once", help="End when every sink holds all that the log has now.")] = False,
    sink: SinkNames = None,
) -> None:
    """Deliver alone: from the change log to the sinks, until stopped."""
    from penstock.cli.watching import watched

    call, names = invocation(context), sink or []
    pipeline = call.pipeline(file, long_running=True)
    pipeline.sinks(names)
    with stop_on_signals() as stop:
        stop.heeded()
        before = _delivered(pipeline)
        with watched(pipeline, names, as_lines=call.log_format is LogFormat.json):
            pipeline.run_delivery(once, names, stop)
    _say_what_was_delivered(pipeline, names, before)
    logger.info("Stopped." if stop.is_set() else "Done.")


def copy(
    context: typer.Context,
    file: ConfigFile,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="Only this table. May be given more than once."),
    ] = None,
) -> None:
    """Copy alone: imports the tables that are not complete yet, then ends."""
    from penstock.cli.watching import watched_copy

    call = invocation(context)
    pipeline = call.pipeline(file, long_running=True)
    with stop_on_signals() as stop:
        stop.heeded()
        with watched_copy(pipeline, as_lines=call.log_format is LogFormat.json):
            pipeline.copy(table or [], stop)
    logger.info("Stopped." if stop.is_set() else "Done.")


def _delivered(pipeline: Pipeline) -> dict[str, int]:
    """Changes by sink, over all runs so far."""
    known = {sink.name: pipeline.state.sink(sink.name) for sink in pipeline.config.sinks}
    return {name: state.changes_total if state else 0 for name, state in known.items()}


def _say_what_was_delivered(pipeline: Pipeline, names: Sequence[str], before: dict[str, int]) -> None:
    for name, total in _delivered(pipeline).items():
        if not names or name in names:
            known = pipeline.state.sink(name)
            upto = f", up to {known.lsn}" if known and known.lsn else ""
            logger.info('Sink "%s": %d changes delivered%s.', name, max(0, total - before[name]), upto)
