"""Connections to the source, and what its errors mean to us.

Every psycopg error that leaves this package has become one of ``penstock.errors``, chosen by its SQLSTATE.
https://www.postgresql.org/docs/current/errcodes-appendix.html

Why the server turned a connection down.

libpq reports a failed connection as a sentence, in the server's language, without its SQLSTATE. Yet whether to try
again (too many clients, starting up) or to stop (wrong password, no such database) hangs on it. So the attempt is made
once more with libpq's protocol trace on, which shows the code.
https://www.postgresql.org/docs/current/libpq-control.html
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import conninfo, pq, sql

from penstock import errors

_ERROR_CODE = re.compile(rb'^B\t\d+\tErrorResponse\t[^\n]*? C "([0-9A-Z]{5})"', re.MULTILINE)
_INVALID_PASSWORD = "28P01"
_PATIENCE = 10.0


def sqlstate_of_failure(parameters: Mapping[str, Any]) -> str | None:
    """The SQLSTATE that the server answers with; None if it does not answer, or takes the connection this time."""
    target = conninfo.make_conninfo(**parameters).encode()
    attempt = pq.PGconn.connect_start(target)
    try:
        # libpq traces on Linux only, which has memory files too: the trace of a plain-text login holds the password.
        if hasattr(os, "memfd_create"):
            return _by_trace(attempt)
        return _by_ping(attempt, target)
    finally:
        attempt.finish()


def _by_trace(attempt: pq.abc.PGconn) -> str | None:
    file = os.memfd_create("penstock-trace")
    try:
        attempt.trace(file)
        attempt.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        status = _poll(attempt)
        attempt.untrace()
        found = _ERROR_CODE.search(os.pread(file, 1 << 20, 0))
    finally:
        os.close(file)
    if found is not None:
        return found[1].decode()
    # The server asked for a password and we had none: libpq hung up by itself.
    return _INVALID_PASSWORD if status == pq.PollingStatus.FAILED and attempt.needs_password else None


def _by_ping(attempt: pq.abc.PGconn, target: bytes) -> str | None:
    """A server that is up and yet sends away somebody whose password it asked for."""
    status = _poll(attempt)
    asked = attempt.needs_password or attempt.used_password
    refused = status == pq.PollingStatus.FAILED and asked and pq.PGconn.ping(target) == pq.Ping.OK
    return _INVALID_PASSWORD if refused else None


def _poll(attempt: pq.abc.PGconn) -> int:
    deadline = time.monotonic() + _PATIENCE
    status: int = pq.PollingStatus.FAILED
    while attempt.status != pq.ConnStatus.BAD and time.monotonic() < deadline:
        status = attempt.connect_poll()
        if status in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
            break
        reading = [attempt.socket] if status == pq.PollingStatus.READING else []
        writing = [attempt.socket] if status == pq.PollingStatus.WRITING else []
        select.select(reading, writing, [], max(0.0, deadline - time.monotonic()))
    return status


Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# With these the text form of a value does not depend on how the server, the database or the role is configured.
OUTPUT_SETTINGS: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}

_SESSION_SETTINGS = {
    **OUTPUT_SETTINGS,
    "search_path": "",  # so that format_type and regclass always name the schema
    "quote_all_identifiers": "off",  # likewise: and always write a type the same way
    "row_security": "off",  # a policy that hides rows from us is an error, not a silently smaller table
    "statement_timeout": "0",  # the role's own may be meant for people
    "lock_timeout": "0",
}

_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}

# By SQLSTATE, or by its first two letters (the class). What is not here is SourceRefused: the server said no.
_KINDS: dict[str, type[errors.SourceError]] = {
    "08": errors.SourceUnavailable,  # connection exception
    "40": errors.SourceUnavailable,  # deadlock, serialization failure
    "53": errors.SourceUnavailable,  # too many connections, disk full, out of memory
    "53400": errors.NoFreeSlot,  # configuration limit exceeded: max_replication_slots
    "55006": errors.SlotBusy,  # object in use: the slot is active
    "55P03": errors.SourceUnavailable,  # lock not available
    "57": errors.SourceUnavailable,  # shutdown, startup, cancelled
    "57P04": errors.SourceRefused,  # the database was dropped
    "58": errors.SourceUnavailable,  # the server's disk
    "58P01": errors.SlotLost,  # undefined file: the WAL that the slot needs is gone
    "XX": errors.SourceError,  # internal error
}


def connect(url: str, *, application_name: str = "penstock", autocommit: bool = True) -> Connection:
    """A connection with pinned session settings. Its search_path is empty: qualify every name."""
    parameters = connection_parameters(url, application_name)
    try:
        connection = psycopg.connect("", autocommit=True, prepare_threshold=None, **parameters)
    except psycopg.Error as error:
        raise failed_connection(error, parameters) from error
    try:
        with translated_errors(f"Preparing the session on {redacted(url)}"):
            connection.execute(_pin_settings())
            connection.autocommit = autocommit
    except errors.SourceError:
        connection.close()
        raise
    return connection


def connection_parameters(url: str, application_name: str = "penstock") -> dict[str, Any]:
    """libpq's parameters: our defaults, overruled by what the URL says."""
    return {**_DEFAULTS, "application_name": application_name, **_parse(url)}


def redacted(url: str) -> str:
    """The URL with nothing in it but who, where and which database."""
    try:
        return _address(_parse(url))
    except errors.ConfigError:
        return "(a URL that cannot be read)"


def failed_connection(error: psycopg.Error, parameters: Mapping[str, Any]) -> errors.PenstockError:
    """What a failed attempt to connect with these parameters means."""
    where = f"Connecting to {_address(parameters)}"
    if error.sqlstate is not None:
        return source_error(error, where)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return errors.SourceUnavailable(f"{where} failed: no answer within {parameters['connect_timeout']} s.")
    sqlstate = sqlstate_of_failure(parameters)
    kind = errors.SourceUnavailable if sqlstate is None else _kind_of(sqlstate)
    return kind(f"{where} failed: {_first_line(error)}.")


def source_error(error: psycopg.Error, where: str) -> errors.SourceError:
    """The error of ours that this one is. ``where`` is what was being done, as the beginning of a sentence."""
    if error.sqlstate is None:
        return errors.SourceUnavailable(f"{where} failed: {_first_line(error)}.")
    said = error.diag.message_primary or _first_line(error)
    details = [part.rstrip(".") for part in (error.diag.message_detail, error.diag.message_hint) if part]
    return _kind_of(error.sqlstate)(f"{where} failed: {'. '.join([said, *details])}.")


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Turns psycopg's errors into ours: ``with translated_errors("Creating the publication shop"): …``"""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError):
            raise  # a mistake in our own code, such as a missing parameter: not for the operator
        raise source_error(error, where) from error


def _pin_settings() -> sql.Composed:
    """Without parameters, since a replication connection does not speak the extended protocol."""
    setting = sql.SQL("set_config({}, {}, false)")
    calls = (setting.format(sql.Literal(name), sql.Literal(value)) for name, value in _SESSION_SETTINGS.items())
    return sql.SQL("select {}").format(sql.SQL(", ").join(calls))


def _kind_of(sqlstate: str) -> type[errors.SourceError]:
    return _KINDS.get(sqlstate) or _KINDS.get(sqlstate[:2]) or errors.SourceRefused


def _parse(url: str) -> dict[str, Any]:
    try:
        return conninfo.conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeDecodeError):  # the latter: %A7 in it, which is no UTF-8
        # libpq's own message quotes the piece it stumbled over, which is often the password.
        raise errors.ConfigError(
            "The URL of the source is not a Postgres connection URL.",
            "Write it as postgresql://user:password@host:5432/database, and percent-encode special characters in the "
            "password (a space is %20, @ is %40, / is %2F).",
        ) from None


def _address(parameters: Mapping[str, Any]) -> str:
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    host = parameters.get("host") or parameters.get("hostaddr") or "localhost"
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{user}{host}{port}/{parameters.get('dbname') or parameters.get('user') or ''}"


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
