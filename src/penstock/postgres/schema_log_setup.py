"""The schema log of a pipeline that begins, where its role may have one."""

from __future__ import annotations

import logging
from contextlib import suppress

from penstock.errors import SourceRefused
from penstock.postgres import migrations, schema_log
from penstock.postgres.catalog import server_identity
from penstock.postgres.connection import Connection

logger = logging.getLogger(__name__)

_WITHOUT = "renames, defaults and keys are not followed. `penstock check` says what else is lost, and the remedy."


def log_schema_changes(connection: Connection, pipeline: str) -> None:
    """Without it less is known of schema changes, and everything else goes on: no right to it is no failure."""
    there, primary = schema_log.installed(connection), not server_identity(connection).in_recovery
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
