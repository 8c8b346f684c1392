"""Sessions on the target of a Postgres sink, and what its errors mean for the delivery.

What stands in the way of a transaction on the target, in words: sessions that hold locks, constraints that are at work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import PenstockError, SinkError, SinkRefused, SinkUnavailable, SourceError
from penstock.postgres.connection import Connection, connect, redacted
from penstock.sinks.postgres.refusals import RowRefused, advice_on, is_of_a_row, refusal_of, words
from penstock.sinks.postgres.rights import Rights

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


# Text that the source wrote is read the way it was written, whatever the target's database or role is configured to; and a
# commit is on the target's disk when it is answered.
_SETTINGS = """
    SET xmlbinary = 'base64'; SET xmloption = 'content'; SET array_nulls = on; SET lc_monetary = 'C';
    SET idle_session_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET check_function_bodies = off;
    SET default_transaction_isolation = 'read committed';
    SELECT set_config(name, CASE name WHEN 'synchronous_commit' THEN 'on' ELSE '0' END, false) FROM pg_settings
    WHERE name = 'transaction_timeout' OR (name = 'synchronous_commit' AND setting = 'off');
    SELECT set_config(name, '64MB', false) FROM pg_settings
    WHERE name IN ('temp_buffers', 'work_mem') AND pg_size_bytes(current_setting(name)) < pg_size_bytes('64MB')
"""

# By SQLSTATE, or by its first two letters. What is not here is refused: trying again would not help.
_PASSING = {
    "08": "",
    "25006": "The target is read-only: a standby, or default_transaction_read_only is on. Point `url` at the primary (with "
    "several hosts in it, add target_session_attrs=read-write), or turn the setting off; delivery goes on by itself.",
    "40": "Another session on the target is in the way; delivery tries again by itself.",
    "53": "",
    "53100": "Make room on the target's disk; delivery goes on by itself.",
    "53200": "The target is short of memory; delivery tries again by itself.",
    "55P03": "Another session holds a lock on a table of the target (see pg_locks there); delivery goes on when it ends.",
    "55006": "",
    "57": "",
    "58": "",
}
_DROPPED = "57P04"
_CONSTRAINTS = (
    psycopg.errors.ForeignKeyViolation, psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation,
)  # fmt: skip
_REFUSED_CONNECTION = (
    "Correct the user, the password or the database in the sink's `url`, or the target's pg_hba.conf; then start again."
)


class Session:
    """A connection to the target that is made when it is needed, and made anew after it broke. Each thread has its own."""

    def __init__(self, url: str, sink: str, lock_timeout: float = 30.0) -> None:
        self._url, self._sink, self._lock_timeout = url, sink, lock_timeout
        self._of_thread = threading.local()
        self._all: list[Connection] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self._url, "sink": self._sink, "lock_timeout": self._lock_timeout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        """Psycopg's errors leave it as errors of the sink, and the connection with them: it may be half way through."""
        connection = self._connection()
        try:
            yield connection
        except psycopg.Error as error:
            problem = self._problem(error, connection)
            connection.close()
            raise problem from error
        except BaseException:
            connection.close()  # temporary tables that were made in a transaction go when it is rolled back
            raise

    def _problem(self, error: psycopg.Error, connection: Connection) -> PenstockError:
        """The transaction is over when it comes to this, so the target can still be asked."""
        where = redacted(self._url)
        if isinstance(error, psycopg.errors.LockNotAvailable) and (found := holders(connection)):
            return sink_error(
                error, self._sink, where, f"Locks there are held by {found}; delivery goes on when they end."
            )
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return sink_error(error, self._sink, where, self._lacking_rights(connection))
        if isinstance(error, _CONSTRAINTS) and not self.may_replicate:
            info = connection.info
            return sink_error(
                error, self._sink, where, constraint_advice(error, info.user, info.server_version // 10000)
            )
        return sink_error(error, self._sink, where)

    def _lacking_rights(self, connection: Connection) -> str | None:
        rights = Rights(connection, self._sink)
        try:
            return rights.advice(rights.on_database())
        except psycopg.Error:
            return None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All of it is durable on the target once this is left without an error."""
        with self.opened() as connection, connection.transaction():
            yield connection

    def refuse_read_only(self, connection: Connection) -> None:
        """Before the first change does."""
        row = connection.execute("SELECT current_setting('transaction_read_only')::bool").fetchone()
        if row and row[0]:
            where = redacted(self._url)
            raise SinkUnavailable(f"Sink {self._sink} at {where}: nothing can be written there.", _PASSING["25006"])

    def close(self) -> None:
        while self._all:
            self._all.pop().close()

    @property
    def may_replicate(self) -> bool:
        """Triggers and foreign keys of the target are off in this thread's session."""
        return bool(getattr(self._of_thread, "may_replicate", False))

    def _connection(self) -> Connection:
        known: Connection | None = getattr(self._of_thread, "connection", None)
        if known is not None and not known.closed and not known.broken:
            return known
        if known in self._all:
            self._all.remove(known)
        try:
            connection = connect(self._url, application_name=f"penstock {self._sink}")
        except SourceError as error:  # the words fit, the kind does not: it is the target that we cannot reach
            raise as_sink_error(error, self._sink) from error
        with sink_errors(self._sink, self._url, connection):
            connection.execute(_SETTINGS)
            connection.execute(
                "SELECT set_config('lock_timeout', %s, false)", [f"{round(self._lock_timeout * 1000)}ms"]
            )
            self._of_thread.may_replicate = _may_replicate(connection)
        self._of_thread.connection = connection
        self._all.append(connection)
        return connection


def _may_replicate(connection: Connection) -> bool:
    try:
        connection.execute("SET session_replication_role = replica")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def replicates(connection: Connection) -> bool:
    """Triggers and foreign keys of the target are off in this session."""
    row = connection.execute("SELECT current_setting('session_replication_role') = 'replica'").fetchone()
    return bool(row and row[0])


@contextmanager
def sink_errors(sink: str, url: str, connection: Connection) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        connection.close()
        raise sink_error(error, sink, redacted(url)) from error


def as_sink_error(error: SourceError, sink: str) -> SinkError:
    from penstock.error_policy import Verdict, policy_for

    kind = SinkUnavailable if policy_for(error).verdict is Verdict.RETRY else SinkRefused
    return kind(f"Sink {sink}: {error.message}", error.advice or (_REFUSED_CONNECTION if kind is SinkRefused else None))


def is_passing(error: psycopg.Error) -> bool:
    """It may work when it is tried again; or the connection is lost."""
    return error.sqlstate is None or _passing(error.sqlstate) is not None


def _passing(sqlstate: str) -> str | None:
    return _PASSING.get(sqlstate, _PASSING.get(sqlstate[:2])) if sqlstate != _DROPPED else None


def sink_error(error: psycopg.Error, sink: str, where: str, advice: str | None = None) -> PenstockError:
    """What the target said, with table, constraint and the offending values where it names them."""
    if error.sqlstate is None:
        first = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        return SinkUnavailable(f"Sink {sink} lost its connection to {where}: {first}.")
    table = error.diag.table_name
    named = f" (table {error.diag.schema_name}.{table})" if table else ""
    passing = _passing(error.sqlstate)
    if passing is not None:
        return SinkUnavailable(f"Sink {sink} at {where}: {words(error)}{named}.", advice or passing or None)
    said = f"Sink {sink}: the target {where} refused it: {words(error)}{named}."
    if is_of_a_row(error):
        return RowRefused(said, advice or advice_on(error), refusal_of(error))
    return SinkRefused(said, advice or (_REFUSED_CONNECTION if error.sqlstate == _DROPPED else advice_on(error)))
