"""Which transactions are running, and whether they have ended.

Every transaction that writes holds a lock on its own id until others can see what it wrote: also while it commits, and
also when it is prepared. The lock is in pg_locks for everybody to see, whatever their rights.
https://www.postgresql.org/docs/current/view-pg-locks.html

Locks on the source, taken so that nobody waits behind us for long.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg
from psycopg import sql

from penstock.errors import SourceUnavailable
from penstock.postgres.connection import Connection, translated_errors


def running_transactions(connection: Connection) -> tuple[int, ...]:
    """The ids of all transactions of this database that have written something, but for our own.

    1. The locks are read first. A transaction that is prepared meanwhile is in the list by its session.
    2. Then the sessions and the prepared transactions. A session that is not found has ended, and its transaction too;
       it stays in the list, where it does no harm. A prepared transaction that is not found has ended, or is of another
       database, or is a part of one that is in the list.
    """
    with translated_errors("Looking for running transactions"):
        locks = connection.execute(_LOCKS).fetchall()
        elsewhere = {pid for (pid,) in connection.execute(_ELSEWHERE, [[pid for _, pid in locks if pid is not None]])}
        prepared = {xid for (xid,) in connection.execute(_PREPARED)}
    running = {xid for xid, pid in locks if (xid in prepared if pid is None else pid not in elsewhere)}
    return tuple(sorted(running))


def still_running(connection: Connection, xids: Sequence[int]) -> list[str]:
    """Those of the transactions that have not ended, in words for people; empty when all have."""
    if not xids:
        return []
    with translated_errors("Looking for running transactions"):
        return list(dict.fromkeys(words for (words,) in connection.execute(_STILL_RUNNING, [list(xids)])))


_LOCKS = """
select transactionid::text::bigint, pid from pg_locks
where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted and pid is distinct from pg_backend_pid()
"""

_ELSEWHERE = """
select pid from pg_stat_activity
where pid = any(%s) and datid <> (select oid from pg_database where datname = current_database())
"""

_PREPARED = "select transaction::text::bigint from pg_prepared_xacts where database = current_database()"

# Columns of other people's sessions are null for a role without pg_read_all_stats.
_STILL_RUNNING = """
select case
    when p.gid is not null then format('prepared transaction "%%s"', p.gid)
    when l.pid is not null then 'pid ' || l.pid
    else 'transaction ' || l.transactionid::text
end || coalesce(' of ' || coalesce(p.owner, a.usename), '')
    || coalesce(' since ' || to_char(coalesce(p.prepared, a.xact_start) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), '')
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
left join pg_prepared_xacts p on l.pid is null and p.transaction = l.transactionid
where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
    and l.transactionid::text::bigint = any(%s)
order by coalesce(p.prepared, a.xact_start), l.pid
"""


logger = logging.getLogger(__name__)

T = TypeVar("T")

# While a statement waits for its lock, others queue behind it. So it waits briefly, gives way, and tries again.
_LOCK_TIMEOUT = "2s"
_ATTEMPTS = 5

# What a concurrent change of the same tables looks like; another look at the catalog and another try settle it.
_PASSING = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedObject,
    psycopg.errors.DuplicateObject,
)


@contextmanager
def subscription_lock(connection: Connection, name: str, patience: float) -> Iterator[None]:
    """Held by whoever edits the subscription ``name``: two processes never do so at the same time."""
    key = int.from_bytes(hashlib.sha256(f"penstock subscription {name}".encode()).digest()[:8], "big", signed=True)
    assert connection.autocommit, "creating a slot needs a transaction of its own"
    try:
        with translated_errors(f"Locking the subscription {name}"):
            _wait_for_lock(connection, key, patience)
    except SourceUnavailable as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise SourceUnavailable(
                f"Another process has been working on the subscription {name} for more than {patience:g} s.",
                "Wait for it to finish; it may itself be waiting for long transactions to end.",
            ) from error
        raise
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError):  # a connection that is gone has let go of its locks
            connection.execute("select pg_advisory_unlock(%s)", [key])


def _wait_for_lock(connection: Connection, key: int, patience: float) -> None:
    connection.execute("select set_config('lock_timeout', %s, false)", [f"{int(patience * 1000)}ms"])
    try:
        connection.execute("select pg_advisory_lock(%s)", [key])
    finally:
        connection.execute("set lock_timeout = 0")


def gently(connection: Connection, where: str, edit: Callable[[], T]) -> T:
    """Runs ``edit`` in one transaction with a short lock_timeout, and again when somebody was in the way."""
    with translated_errors(where):
        for attempt in range(1, _ATTEMPTS):
            try:
                return _edited(connection, edit)
            except _PASSING as error:
                logger.info(
                    "%s: attempt %d of %d gave way (%s).", where, attempt, _ATTEMPTS, error.diag.message_primary
                )
        return _edited(connection, edit)


def _edited(connection: Connection, edit: Callable[[], T]) -> T:
    with connection.transaction():
        connection.execute(sql.SQL("set local lock_timeout = {}").format(_LOCK_TIMEOUT))
        return edit()
