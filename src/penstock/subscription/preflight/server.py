"""Everything about the source that could fail, looked at before it does. Nothing is changed.

``penstock check`` shows the findings. What concerns tables is in ``tables.py``, what imports need besides in
``server.py``, how schema changes are noticed in ``schema_log.py``.

The part of ``preflight`` that looks at what imports need: a primary, a schema for their queue, and connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.changes.batch import OWN_SCHEMA
from penstock.error_policy import policy_for
from penstock.errors import NoFreeSlot, PenstockError, SourceError, SourceRefused
from penstock.findings import Finding
from penstock.postgres.catalog import ServerIdentity, server_identity
from penstock.postgres.connection import Connection, connect, redacted, translated_errors
from penstock.postgres.slot import WAL_LEVEL_REMEDY, SlotState, replication_grant, require_logical_wal
from penstock.postgres.tables import survey
from penstock.settings.sections import CopySettings
from penstock.settings.tables import Selection
from penstock.subscription import subscription
from penstock.subscription.ownership import schema_grants
from penstock.subscription.preflight.tables import check_owners, check_tables
from penstock.subscription.publication import create_grant
from penstock.subscription.schema_log import check_schema_log

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
    usable, owner = found
    if usable:
        return Finding("schema", True, f"The schema {OWN_SCHEMA}, where imports keep their queue, is there.")
    grant = schema_grants(connection, OWN_SCHEMA, owner)
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
    pg_get_userbyid(n.nspowner)::text
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


__all__ = ["Finding", "check_source", "require_creatable"]

OLDEST, NEWEST = 14, 18
_STANDBY_SLOTS_SINCE = 16


@dataclass(frozen=True)
class _Source:
    connection: Connection
    name: str
    publications: tuple[str, ...]
    identity: ServerIdentity
    subscription: subscription.Subscription | None
    slot: SlotState | None

    @property
    def version(self) -> int:
        return self.identity.version_num // 10000

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        row = self.connection.execute(query, parameters or None).fetchone()
        assert row is not None, "every question here is an aggregate or a function"
        return row


def check_source(
    url: str, name: str, selection: Selection, publications: Sequence[str] = (), copying: CopySettings | None = None
) -> list[Finding]:
    """The findings for a pipeline of this name, tables and publications. Any that is not ok (False) would stop it.

    ``copying``: how tables are copied; None in mode stream.
    """
    findings: list[Finding] = []
    try:
        with connect(url) as connection:
            findings.append(Finding("connection", True, f"Connected to {redacted(url)}."))
            _check_connected(connection, name, selection, tuple(publications), copying, findings)
    except PenstockError as error:
        findings.append(_from_error("connection", error))
    return findings


def _check_connected(
    connection: Connection, name: str, selection: Selection, publications: tuple[str, ...],
    copying: CopySettings | None, findings: list[Finding],
) -> None:  # fmt: skip
    identity = server_identity(connection)
    found, slot = None, None
    try:
        found = subscription.find(connection, name, publications)
        slot = subscription.slot_state(connection, found.slot) if found else None
    except SourceError as error:
        findings.append(_from_error("publication", error))
    source = _Source(connection, name, publications, identity, found, slot)
    with translated_errors("Checking the source"):
        for check in (_version, _wal_level, _standby, _slots, _senders, _replication_right, _publication_right):
            findings.extend(check(source))
        for check in (_retention, _encoding, _slot):
            findings.extend(check(source))
        findings.append(check_schema_log(connection, is_new=found is None))
    if copying is not None:
        findings.extend(check_imports(connection, copying, identity.in_recovery))
    findings.extend(check_tables(connection, selection, publications, copies=copying is not None))


def require_creatable(
    connection: Connection, name: str, selection: Selection, publications: Sequence[str], copying: CopySettings | None
) -> None:
    """Before a subscription is made: SourceError for what would fail when a part of it is made already."""
    require_logical_wal(connection)
    source = _Source(connection, name, tuple(publications), server_identity(connection), None, None)
    with translated_errors("Checking the source"):
        findings = [
            finding
            for check in (_version, _standby, _slots, _replication_right, _publication_right)
            for finding in check(source)
        ]
    if copying is not None:
        findings += check_imports(connection, copying, source.identity.in_recovery)
    if not publications and not source.identity.in_recovery:
        findings += check_owners(connection, survey(connection, selection).tables)
    for finding in failures(findings):
        raise (NoFreeSlot if finding.name == "slots" else SourceRefused)(finding.message, finding.remedy)


def _from_error(name: str, error: PenstockError) -> Finding:
    return Finding(name, False, str(error), policy_for(error).advice)


def _version(source: _Source) -> Iterator[Finding]:
    if source.version < OLDEST:
        remedy = f"Upgrade the source to Postgres {OLDEST} or newer."
        yield Finding("version", False, f"Postgres {source.version} is too old for Penstock.", remedy)
    elif source.version > NEWEST:
        yield Finding("version", None, f"Postgres {source.version} is newer than what Penstock was tested with.")
    else:
        yield Finding("version", True, f"Postgres {source.version}.")


def _wal_level(source: _Source) -> Iterator[Finding]:
    (level,) = source.ask("show wal_level")
    ok = level == "logical"
    yield Finding("wal_level", ok, f"wal_level is {level}.", "" if ok else WAL_LEVEL_REMEDY)


def _standby(source: _Source) -> Iterator[Finding]:
    if not source.identity.in_recovery:
        return
    if source.version < _STANDBY_SLOTS_SINCE:
        message = f"The source is a standby, which has logical slots only from Postgres {_STANDBY_SLOTS_SINCE} on."
        yield Finding("standby", False, message, "Point source.url at the primary.")
        return
    message = "The source is a standby: publications are made and edited on its primary, the slot is made here."
    if source.ask("show hot_standby_feedback") != ("on",):
        remedy = "On the standby run: ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();"
        yield Finding("standby", None, f"{message} Without hot_standby_feedback its slot can be invalidated.", remedy)
    else:
        yield Finding("standby", True, message)


def _slots(source: _Source) -> Iterator[Finding]:
    used, most = source.ask("select count(*), current_setting('max_replication_slots')::int from pg_replication_slots")
    message = f"{used} of {most} replication slots are in use."
    full = used >= most and source.slot is None
    remedy = "Raise max_replication_slots (needs a restart), or drop a slot that nobody uses." if full else ""
    yield Finding("slots", not full, message, remedy)


def _senders(source: _Source) -> Iterator[Finding]:
    used, most = source.ask("select count(*), current_setting('max_wal_senders')::int from pg_stat_replication")
    full = used >= most and not (source.slot and source.slot.active)
    remedy = "Raise max_wal_senders (needs a restart), or stop a replication client." if full else ""
    yield Finding("senders", not full, f"{used} of {most} WAL senders are in use.", remedy)


def _replication_right(source: _Source) -> Iterator[Finding]:
    # On Amazon RDS the right comes with a role instead of the attribute.
    role, allowed = source.ask(
        "select current_user, exists (select from pg_roles r where (r.rolname = current_user and "
        "(r.rolsuper or r.rolreplication)) or (r.rolname = 'rds_replication' and pg_has_role(r.oid, 'usage')))"
    )
    message = f"The role {role} may {'' if allowed else 'not '}use replication slots."
    remedy = "" if allowed else f"As an administrator run: {replication_grant(source.connection)}"
    yield Finding("replication right", allowed, message, remedy)


def _publication_right(source: _Source) -> Iterator[Finding]:
    """Who manages publications must be able to create them or, once they are there, own them."""
    if source.publications or source.identity.in_recovery:
        return
    if source.subscription is not None:
        owned, owner = source.ask(
            "select bool_and(pg_has_role(pubowner, 'usage')), min(pg_get_userbyid(pubowner)) from pg_publication "
            "where pubname = any(%s)",
            [list(source.subscription.publications)],
        )
        message = f"The publication {source.name} exists and belongs to {owner}."
        yield Finding(
            "publication right", owned, message, "" if owned else f"Connect as {owner}, or as a member of it."
        )
        return
    (allowed,) = source.ask("select has_database_privilege(current_database(), 'create')")
    message = f"The role may {'' if allowed else 'not '}create publications in this database."
    remedy = "" if allowed else f"As an administrator run: {create_grant(source.connection)}"
    yield Finding("publication right", allowed, message, remedy)


def _retention(source: _Source) -> Iterator[Finding]:
    (keep,) = source.ask("show max_slot_wal_keep_size")
    if keep == "-1":
        message = (
            "WAL is kept for as long as the pipeline needs (max_slot_wal_keep_size = -1): watch the source's disk."
        )
    else:
        message = f"A pipeline that falls more than {keep} of WAL behind loses its slot (max_slot_wal_keep_size)."
    yield Finding("retention", True, message)
    (idle,) = source.ask("select coalesce(current_setting('idle_replication_slot_timeout', true), '0')")
    if idle != "0":
        message = f"A slot that nobody reads for {idle} is invalidated (idle_replication_slot_timeout)."
        yield Finding("retention", None, message, "Never leave the pipeline stopped for longer than that.")


def _encoding(source: _Source) -> Iterator[Finding]:
    (encoding,) = source.ask("show server_encoding")
    if encoding == "SQL_ASCII":
        message = (
            "The database is SQL_ASCII: Postgres does not check its text, and bytes that are not UTF-8 cannot be read."
        )
        yield Finding("encoding", None, message, "Make sure that all text in it is UTF-8.")
    else:
        yield Finding("encoding", True, f"The database is {encoding}.")


def _slot(source: _Source) -> Iterator[Finding]:
    state = source.slot
    if state is None:
        if source.subscription is not None:
            message = f"The slot {source.subscription.slot} does not exist, though its publication does."
            yield Finding("slot", None, message, "Run `penstock init`.")
        return
    if state.lost_because is not None:
        remedy = "Run `penstock destroy` and `penstock init`, and load the sinks afresh."
        yield Finding("slot", False, f"The slot {state.slot} is lost: {state.lost_because}.", remedy)
        return
    held = f"It holds {state.retained_bytes / (1 << 20):,.1f} MiB of WAL."
    yield Finding("slot", True, f"The slot {state.slot} is {_reader(source, state)}. {held}")


def _reader(source: _Source, state: SlotState) -> str:
    if not state.active:
        return "not being read"
    (application,) = source.ask(
        "select coalesce(max(application_name), '') from pg_stat_activity where pid = %s", [state.active_pid]
    )
    return f"being read by the server process {state.active_pid}{f' ({application})' if application else ''}"


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """Those that would stop the pipeline."""
    return [finding for finding in findings if finding.ok is False]
