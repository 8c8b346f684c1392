"""The part of ``preflight`` that looks at how schema changes are noticed: by event triggers, or by what rows look like."""

from __future__ import annotations

from penstock.postgres import schema_log
from penstock.postgres.connection import Connection
from penstock.postgres.preflight_tables import Finding

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
