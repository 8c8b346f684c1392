"""The schema log of a pipeline that begins, where its role may have one.

The part of ``preflight`` that looks at how schema changes are noticed: by event triggers, or by what rows look like.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.errors import ConfigError, SourceRefused
from penstock.findings import Finding
from penstock.postgres.catalog import server_identity
from penstock.postgres.connection import Connection, connect
from penstock.schema.log import triggers as schema_log
from penstock.subscription import migrations

logger = logging.getLogger(__name__)

_WITHOUT = (
    "renames, defaults and keys are not followed. An administrator can create them: `penstock init FILE --admin-url URL`, or "
    "what `penstock init FILE --trigger-sql` prints. `penstock check` says what else is lost without."
)


def log_schema_changes(connection: Connection, pipeline: str, administrator: str | None = None) -> None:
    """Without it less is known of schema changes, and everything else goes on: no right to it is no failure.

    ``administrator``: the URL of a role that may create event triggers. Nothing else is made with it, so that all else belongs
    to the pipeline's own role.
    """
    there, primary = schema_log.installed(connection), not server_identity(connection).in_recovery
    if not there and administrator is not None:
        migrations.migrate(connection)
        with administrating(administrator, connection) as session:
            schema_log.install(session)
        logger.info("Created event triggers that log schema changes.")
        there = True
    if not there and not schema_log.may_install(connection):
        reason = (
            "The role may not create event triggers" if primary else "A standby cannot have event triggers of its own"
        )
        logger.warning("%s: %s", reason, _WITHOUT)
        with suppress(SourceRefused):  # so that the schema is this role's when an administrator brings the triggers
            migrations.migrate(connection)
            migrations.register(connection, pipeline)
        return
    if not there:
        try:
            migrations.migrate(connection)
            schema_log.install(connection)
        except SourceRefused as error:
            logger.warning("There are no event triggers: %s So %s", error, _WITHOUT)
            return
        logger.info("Created event triggers that log schema changes.")
    if primary:
        migrations.register(connection, pipeline)


@contextmanager
def administrating(url: str, connection: Connection) -> Iterator[Connection]:
    """A session of the administrator in the database of ``connection``; ConfigError if the URL leads to another one."""
    with connect(url) as session:
        if _place(session) != _place(connection):
            raise ConfigError(
                "--admin-url leads to another database than source.url.", "Name the same database in both."
            )
        yield session


def _place(connection: Connection) -> tuple[int, str]:
    return server_identity(connection).system_identifier, connection.info.dbname


LOST = (
    "renames (a renamed column is one that went and one that came), defaults (rows that are there have NULL in a new column), "
    "NOT NULL, keys, constraints, indexes, dropped tables and new values of enums, and `schema_changes: stop` stops nothing; "
    "columns that come, go or change their type are still noticed, with the table's next change"
)


def check_schema_log(connection: Connection, is_new: bool) -> Finding:
    """Never a failure: without triggers less is known. ``is_new``: there is no subscription yet, and `init` will try."""
    if schema_log.installed(connection):
        return Finding("schema log", True, "Event triggers log schema changes.")
    allowed = schema_log.may_install(connection)
    if allowed and is_new:
        return Finding("schema log", True, "The role may create the event triggers that log schema changes.")
    if allowed:
        return Finding(
            "schema log",
            None,
            f"There are no event triggers. Without them go unnoticed: {LOST}.",
            "Run `penstock init`.",
        )
    return Finding(
        "schema log",
        None,
        f"The role may not create event triggers. Without them go unnoticed: {LOST}.",
        "Run `penstock init FILE --admin-url URL` with the URL of a superuser of the primary, or have an administrator run "
        "what `penstock init FILE --trigger-sql` prints; or live with that.",
    )
