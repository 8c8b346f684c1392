"""Locks on the source, taken so that nobody waits behind us for long."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg
from psycopg import sql

from penstock.errors import SourceUnavailable
from penstock.postgres.connection import Connection, translated_errors

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
