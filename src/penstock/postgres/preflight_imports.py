"""The part of ``preflight`` that looks at what imports need: a primary, a schema for their queue, and connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import sql

from penstock.changes import OWN_SCHEMA
from penstock.config.model import CopySettings
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.preflight_tables import Finding
from penstock.postgres.publication import create_grant

_BESIDES = 3  # connections of a copier that read no rows: its queue, the positions, the checks of the manager


def check_imports(connection: Connection, copying: CopySettings, in_recovery: bool) -> Iterator[Finding]:
    if in_recovery:
        message = "The source is a standby, and imports keep their queue in the source."
        yield Finding("imports", False, message, "Use the primary, or mode: stream.")
        return
    with translated_errors("Checking what imports need of the source"):
        yield _own_schema(connection)
        yield _connections(connection, copying.connections + _BESIDES)


def _own_schema(connection: Connection) -> Finding:
    found = connection.execute(_SCHEMA, [OWN_SCHEMA]).fetchone()
    if found is None:
        (allowed,) = _one_row(connection, "select has_database_privilege(current_database(), 'create')")
        message = (
            f"The role may {'' if allowed else 'not '}create the schema {OWN_SCHEMA}, where imports keep their queue."
        )
        remedy = "" if allowed else f"As an administrator run: {create_grant(connection)}"
        return Finding("schema", allowed, message, remedy)
    usable, owner, role = found
    if usable:
        return Finding("schema", True, f"The schema {OWN_SCHEMA}, where imports keep their queue, is there.")
    grant = sql.SQL("GRANT {} TO {};").format(sql.Identifier(owner), sql.Identifier(role)).as_string(connection)
    message = f"The role may not use the schema {OWN_SCHEMA} of {owner}, where imports keep their queue."
    return Finding("schema", False, message, f"As an administrator run: {grant}")


def _connections(connection: Connection, needed: int) -> Finding:
    (left,) = _one_row(connection, _CONNECTIONS)
    message = f"{left} more connections are possible, and imports use up to {needed}."
    if left >= needed:
        return Finding("connections", True, message)
    remedy = "Lower source.copy.workers or set source.copy.max_connections, or raise max_connections (needs a restart)."
    return Finding("connections", None, message, remedy)


def _one_row(connection: Connection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None, "every question here is an aggregate or a function"
    return row


# Usable: by its owner, or by somebody who was granted all that imports do in it.
_SCHEMA = """
select pg_has_role(n.nspowner, 'usage') or (has_schema_privilege(n.oid, 'usage') and coalesce((
        select bool_and(has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
            and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))
        from pg_class c where c.relnamespace = n.oid and c.relkind = 'r'
    ), false)),
    pg_get_userbyid(n.nspowner)::text, current_user::text
from pg_namespace n where n.nspname = %s
"""

# The least of what the server, the database and the role have left. -1 is no limit.
_CONNECTIONS = """
select greatest(0, least(
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0)
        - (select coalesce(sum(numbackends), 0) from pg_stat_database),
    case when d.datconnlimit >= 0 then d.datconnlimit - pg_stat_get_db_numbackends(d.oid) end,
    case when r.rolconnlimit >= 0
        then r.rolconnlimit - (select count(*) from pg_stat_activity a where a.usesysid = r.oid) end
))::int
from pg_database d, pg_roles r where d.datname = current_database() and r.rolname = current_user
"""
