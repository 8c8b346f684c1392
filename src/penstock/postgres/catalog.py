"""What the source's catalog says: types, keys, which server it is and where its WAL stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.errors import SourceRefused
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, connect, translated_errors


@dataclass(frozen=True)
class TypeInfo:
    """A type, resolved through domains and arrays. The members are those of ``penstock.changes.batch.Column``."""

    oid: int
    name: str  # format_type: integer, public.mood, numeric[]
    base: str
    modifier: int = -1  # from the domain
    element: str | None = None


@dataclass(frozen=True)
class ServerIdentity:
    """``system_identifier`` comes from initdb; a primary and its standbys share it. ``timeline`` grows at failover."""

    system_identifier: int
    timeline: int
    version_num: int
    in_recovery: bool


def resolve_types(connection: Connection, oids: Iterable[int]) -> dict[int, TypeInfo]:
    """By oid. A type that was dropped meanwhile is absent."""
    wanted = list(set(oids))
    with translated_errors("Reading the types of the source"):
        rows = connection.execute(_TYPES, [wanted]).fetchall()
    types = {row[0]: _PgType(*row) for row in rows}
    return {oid: _resolve(types, oid) for oid in wanted if oid in types}


def type_names(connection: Connection, declared: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Types as people declare them, by oid and modifier: ``(1700, 655366)`` is ``numeric(10,2)``."""
    pairs = list(set(declared))
    query = "select o, m, format_type(o, m) from unnest(%s::oid[], %s::int[]) as declared (o, m)"
    with translated_errors("Reading the types of the source"):
        rows = connection.execute(query, [[oid for oid, _ in pairs], [modifier for _, modifier in pairs]])
        return {(oid, modifier): name for oid, modifier, name in rows}


def primary_key(connection: Connection, relation_oid: int) -> tuple[str, ...]:
    """The names of the primary key's columns in its order; empty when there is none.

    A deferrable one does not count: within a transaction, two rows may have the same key.
    """
    with translated_errors("Reading a primary key"):
        rows = connection.execute(
            "select a.attname from pg_index i "
            "cross join unnest(i.indkey::int2[]) with ordinality as k (attnum, position) "
            "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum "
            "where i.indrelid = %s and i.indisprimary and i.indimmediate and k.position <= i.indnkeyatts order by k.position",
            [relation_oid],
        ).fetchall()
    return tuple(name for (name,) in rows)


def server_identity(connection: Connection) -> ServerIdentity:
    with translated_errors("Asking the source who it is"):
        version, in_recovery = _one_row(
            connection, "select current_setting('server_version_num')::int, pg_is_in_recovery()"
        )
        # The control file knows a new timeline only after the first checkpoint on it, the WAL at once.
        timeline = (
            "(select timeline_id from pg_control_checkpoint())"
            if in_recovery
            else "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int"
        )
        try:
            identifier, current = _one_row(connection, f"select system_identifier, {timeline} from pg_control_system()")
        except psycopg.errors.InsufficientPrivilege:
            identifier, current = _identify_system(connection)
    return ServerIdentity(int(identifier), int(current), version, in_recovery)


def current_lsn(connection: Connection) -> LSN:
    """The end of the WAL on the server's disk; on a standby, the end of what it has replayed."""
    with translated_errors("Asking the source for its WAL position"):
        (position,) = _one_row(connection, f"select {CURRENT_LSN}")
    return LSN.parse(position)


def insert_lsn(connection: Connection) -> LSN:
    """The end of the WAL that has been written, on disk or not: a commit that begins below it has begun already."""
    with translated_errors("Asking the source for its WAL position"):
        (position,) = _one_row(connection, "select pg_current_wal_insert_lsn()")
    return LSN.parse(position)


def wal_marker(connection: Connection) -> LSN:
    """A position that everything committed before the call lies at or below, and no record across. In autocommit only.

    On a primary it writes a marker (a logical decoding message), so that even an idle database's stream reaches the
    position. A standby cannot write; its position is the end of what it has replayed.
    """
    assert connection.autocommit, "the marker must be committed before the position is read"
    with translated_errors("Marking a position in the source's WAL"):
        if _one_row(connection, "select pg_is_in_recovery()")[0]:
            return current_lsn(connection)
        with connection.transaction():
            # Flushed at commit whatever the role's setting; but without waiting for standbys, which may be down.
            connection.execute("set local synchronous_commit = local")
            lsn = _one_row(connection, "select pg_logical_emit_message(true, 'penstock', '')::text")[0]
        return LSN.parse(lsn)


CURRENT_LSN = (
    "case when pg_is_in_recovery() then coalesce(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn(), '0/0') "
    "else pg_current_wal_flush_lsn() end"
)

# Everything below the wanted types: what domains and arrays are made of, however deeply.
_TYPES = """
with recursive needed (oid) as (
    select unnest(%s::oid[])
    union
    select below.oid from needed join pg_type t on t.oid = needed.oid
    cross join lateral (values (t.typbasetype), (t.typelem)) as below (oid) where below.oid <> 0
)
select t.oid, format_type(t.oid, null), t.typname::text, t.typtype::text, t.typnamespace = 'pg_catalog'::regnamespace,
    t.typbasetype, t.typtypmod, case when element.oid is not null then t.typelem else 0 end, element.typdelim::text
from needed join pg_type t on t.oid = needed.oid
left join pg_type element on element.oid = t.typelem and element.typarray = t.oid
"""


@dataclass(frozen=True)
class _PgType:
    oid: int
    name: str
    typname: str
    typtype: str
    built_in: bool
    base_oid: int  # of a domain
    base_modifier: int
    element_oid: int  # of a true array; int2vector and its like have elements too, and another text form
    delimiter: str | None  # of the array's text form


def _resolve(types: dict[int, _PgType], oid: int) -> TypeInfo:
    declared = found = types[oid]
    modifier = -1
    while found.typtype == "d":
        modifier = found.base_modifier if found.base_modifier != -1 else modifier
        found = types[found.base_oid]
    if found.element_oid == 0:
        return TypeInfo(oid, declared.name, _base_name(found), modifier)
    element = _resolve(types, found.element_oid)
    # An array of domains over arrays nests its text twice, and box[] is separated by semicolons: both stay text.
    if element.base == "array" or found.delimiter != ",":
        return TypeInfo(oid, declared.name, "other", modifier)
    return TypeInfo(oid, declared.name, "array", modifier if modifier != -1 else element.modifier, element.base)


def _base_name(found: _PgType) -> str:
    if found.typtype == "e":
        return "enum"
    return found.typname if found.typtype == "b" and found.built_in else "other"


def _identify_system(connection: Connection) -> tuple[Any, ...]:
    """For a role that may not read the control file: a walsender tells everyone who may replicate."""
    url = make_conninfo(connection.info.dsn, password=connection.info.password or None, replication="database")
    with connect(url) as replication:
        return _one_row(replication, "IDENTIFY_SYSTEM")[:2]


def _one_row(connection: Connection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    if row is None:
        raise SourceRefused(f"The source gave no answer to: {query}")
    return row
