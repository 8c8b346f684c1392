"""Whether a Postgres sink's target is the source's own database, by whatever name or address it is reached."""

from __future__ import annotations

import secrets

import psycopg

from penstock.errors import SinkRefused, SourceError
from penstock.postgres.connection import Connection, connect, redacted, translated_errors

_SEEN = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
        AND classid = %(high)s::bigint::oid AND objid = %(low)s::bigint::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""
_WHICH = "SELECT system_identifier, d.oid FROM pg_control_system(), pg_database d WHERE datname = current_database()"


def refuse_source_as_target(target: Connection, source: str, sink: str) -> bool:
    """SinkRefused if they are the same; False if the source did not answer, so that it is not known yet.

    A lock that is taken here and seen there tells them apart from a server that was made as a copy of the other. A standby
    shows no locks of its primary, which it is still a part of: there, system and database have to differ.
    """
    try:
        with connect(source, application_name=f"penstock {sink}") as connection:
            same = _is_seen(connection, target) or _is_standby_of(connection, target)
    except SourceError:
        return False
    if same:
        raise SinkRefused(
            f"Sink {sink}: the target {redacted(source)} is the source's own database: every change that is written there "
            "would be captured and written again.",
            "Let the sink's `url` name another database.",
        )
    return True


def _is_seen(source: Connection, target: Connection) -> bool:
    high, low = secrets.randbits(31), secrets.randbits(32)
    with translated_errors("Taking a lock on the source"), source.transaction():
        source.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [high << 32 | low])
        row = target.execute(_SEEN, {"high": high, "low": low}).fetchone()
    return bool(row and row[0])


def _is_standby_of(source: Connection, target: Connection) -> bool:
    with translated_errors("Asking the source who it is"):
        row = source.execute("SELECT pg_is_in_recovery()").fetchone()
    if not (row and row[0]):
        return False
    try:
        return source.execute(_WHICH).fetchone() == target.execute(_WHICH).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return False  # neither of them says who it is
