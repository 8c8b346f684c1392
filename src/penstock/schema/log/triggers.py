"""The schema log of the source: event triggers that write every schema change to ``penstock.schema_log``.

What they run is in ``migrations/0002_schema_log.sql`` and ``0004_types.sql``; here they are put in and taken out, and their
log is read. What a row says is ``penstock.schema_changes``.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import sql

from penstock.errors import SourceRefused
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.transactions import gently

# By the trigger's name, the event; the function is penstock.on_ddl and so on.
TRIGGERS = {"penstock_ddl": "ddl_command_end", "penstock_drop": "sql_drop", "penstock_rewrite": "table_rewrite"}
_TABLES = ("schema_log", "table_definitions", "type_definitions")
REMOVAL = " ".join(f"DROP EVENT TRIGGER IF EXISTS {name};" for name in TRIGGERS)


def may_install(connection: Connection) -> bool:
    """Whether the role may create event triggers: superusers, and whom the provider of the server lets. The latter is found
    out by trying, which leaves nothing behind."""
    with translated_errors("Looking for the right to create event triggers"):
        row = connection.execute(
            "select rolsuper, pg_is_in_recovery() from pg_roles where rolname = current_user"
        ).fetchone()
        superuser, in_recovery = row or (False, False)
        return not in_recovery and (superuser or _may_by_trying(connection))


def _may_by_trying(connection: Connection) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(
                "set local client_min_messages = error;"
                "create function pg_temp.penstock_probe() returns event_trigger language plpgsql as 'begin end';"
                "create event trigger penstock_probe on sql_drop execute function pg_temp.penstock_probe()"
            )
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
        return False
    return True


def installed(connection: Connection) -> bool:
    """Whether all triggers are there and fire, also in sessions that replicate."""
    with translated_errors("Looking for the event triggers"):
        return _found(connection) == {(name, event, "A") for name, event in TRIGGERS.items()}


def install(connection: Connection) -> bool:
    """Puts the triggers in and records how all tables are, in one transaction; whether that was to be done.

    The schema must be there (``migrations.migrate``). What happened to tables while there were no triggers becomes a row of
    its own, with the tag BASELINE.
    """
    if installed(connection):
        return False
    gently(connection, "Creating the event triggers", lambda: _install(connection))
    return True


def remove(connection: Connection) -> list[str]:
    """Takes triggers and log away, in the caller's transaction; says what it removed. The functions go as well."""
    there = {name for name, _, _ in _found(connection)}
    if there:
        _drop_triggers(connection)
    for table in _TABLES:
        connection.execute(sql.SQL("drop table if exists {}").format(sql.Identifier("penstock", table)))
    functions = connection.execute(
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = to_regnamespace('penstock') "
        "and p.proname = any(%s)",
        [list(_FUNCTIONS)],
    ).fetchall()
    for (signature,) in functions:
        connection.execute(f"drop function if exists {signature}".encode())
    return [f"event trigger {name}" for name in sorted(there)]


def triggers_of(connection: Connection) -> tuple[list[str], str]:
    """The names of those that are there, and who owns them."""
    with translated_errors("Looking for the event triggers"):
        rows = connection.execute(
            "select evtname::text, pg_get_userbyid(evtowner)::text from pg_event_trigger where evtname = any(%s) order by 1",
            [list(TRIGGERS)],
        ).fetchall()
    return [name for name, _ in rows], rows[0][1] if rows else ""


def _found(connection: Connection) -> set[tuple[str, str, str]]:
    return {
        (name, event, enabled)
        for name, event, enabled in connection.execute(
            "select e.evtname::text, e.evtevent::text, e.evtenabled::text from pg_event_trigger e "
            "join pg_proc p on p.oid = e.evtfoid join pg_namespace n on n.oid = p.pronamespace "
            "where n.nspname = 'penstock' and e.evtname = any(%s)",
            [list(TRIGGERS)],
        )
    }


def _install(connection: Connection) -> None:
    _drop_triggers(connection)
    for statement in _CREATION:
        connection.execute(statement.encode())


def installation() -> str:
    """What ``install`` does, for an administrator to run: the functions are there, the triggers take a superuser."""
    return "\n".join(
        [
            "BEGIN;",
            *(f"DROP EVENT TRIGGER IF EXISTS {name};" for name in TRIGGERS),
            *(f"{statement};" for statement in _CREATION),
            "COMMIT;",
        ]
    )


def _creation() -> Iterator[str]:
    for name, event in TRIGGERS.items():
        yield f"CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION penstock.{name.replace('penstock_', 'on_')}()"
        yield f"ALTER EVENT TRIGGER {name} ENABLE ALWAYS"  # sessions that replicate, or restore, change the schema as well
    yield "SELECT penstock.record_baseline()"


_CREATION = tuple(_creation())


def _drop_triggers(connection: Connection) -> None:
    try:
        with connection.transaction():
            connection.execute(f"set local client_min_messages = error; {REMOVAL}".encode())
    except psycopg.errors.InsufficientPrivilege as error:
        message = f"Removing the event triggers of Penstock failed: {error.diag.message_primary}."
        raise SourceRefused(message, f"As an administrator run: {REMOVAL}") from None


_FUNCTIONS = (
    "missing_in_partitions", "base_type", "describe_tables", "describe_types", "tables_of", "tables_that_name",
    "tables_that_name_other_than_tables", "tables_that_lost", "record_tables", "record_types", "all_tables", "all_types",
    "record_baseline", "is_of_interest", "note_drops", "note_rewrite", "record_command", "record_failure", "on_ddl", "on_drop",
    "on_rewrite", "types_of", "tables_with_type",
)  # fmt: skip
