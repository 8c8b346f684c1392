"""What stands in the way of a transaction on the target, in words: sessions that hold locks, constraints that are at work."""

from __future__ import annotations

import psycopg
from psycopg import sql

from penstock.postgres.connection import Connection

# Sessions of this database that hold locks on tables which this role may write to; who holds the strongest, first.
_HOLDERS = """
SELECT format('process %%s (user %%s%%s, %%s on %%s)', pid, usename,
    CASE WHEN application_name <> '' THEN format(', application %%s', application_name) ELSE '' END,
    mode, string_agg(DISTINCT relation::regclass::text, ', '))
FROM pg_locks JOIN pg_stat_activity USING (pid) JOIN pg_class c ON c.oid = relation
WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid() AND database = (
        SELECT oid FROM pg_database WHERE datname = current_database()
    ) AND relkind IN ('r', 'p') AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)
    AND application_name <> %s
GROUP BY pid, usename, application_name, mode, xact_start
ORDER BY array_position(ARRAY['AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock',
    'ShareUpdateExclusiveLock', 'RowExclusiveLock', 'RowShareLock', 'AccessShareLock'], mode), xact_start
LIMIT 3
"""


def holders(connection: Connection) -> str:
    """Who holds locks on tables of the target; "" if nobody does any more, or the target does not answer."""
    try:
        ours = connection.info.parameter_status("application_name") or ""
        return "; ".join(found for (found,) in connection.execute(_HOLDERS, [ours]))
    except psycopg.Error:
        return ""


def replication_grant(role: str, version: int) -> str:
    """How a role comes to turn triggers and foreign keys off for its own session."""
    if version < 15:
        return "Let the sink's `url` name a superuser, or use Postgres 15 or later, where the right can be given."
    grant = sql.SQL("GRANT SET ON PARAMETER session_replication_role TO {}").format(sql.Identifier(role))
    return f"Run there as superuser: {grant.as_string()}."


def constraint_advice(error: psycopg.Error, role: str, version: int) -> str:
    """For a role that may not turn foreign keys off."""
    at_work = (
        "Foreign keys and triggers of the target are at work, since its role may not turn them off. "
        f"{replication_grant(role, version)}"
    )
    if not isinstance(error, psycopg.errors.ForeignKeyViolation):
        return (
            "If somebody else wrote to the target, remove the row that is in the way, or resync the table. If nobody did, a "
            f"row that others refer to could not make room in time. {at_work} Then start again."
        )
    alter = sql.SQL("ALTER TABLE {} ALTER CONSTRAINT {} DEFERRABLE").format(
        sql.Identifier(error.diag.schema_name or "", error.diag.table_name or ""),
        sql.Identifier(error.diag.constraint_name or ""),
    )
    return (
        f"{at_work} Or, where tables refer to each other in a circle, as the table's owner: {alter.as_string()}; then start "
        "again."
    )
