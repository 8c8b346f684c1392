"""A small transaction of our own, now and then: the mark in the source's history that we look for after a reconnect.

It also moves an idle database's slot, which would keep other databases' WAL otherwise.
"""

from __future__ import annotations

import logging
import time

import psycopg

from penstock.errors import PenstockError
from penstock.lsn import LSN
from penstock.postgres.connection import connect

logger = logging.getLogger(__name__)


class Heartbeat:
    """A transaction with nothing in it but a logical decoding message with our prefix, which needs no rights on any table.

    Capture reads it as progress and does not deliver it. The first one comes at once, the others after ``seconds`` without
    any transaction for us.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._due = 0.0
        self._seen: LSN | None = None
        self._connection: psycopg.Connection | None = None

    def beat_if_due(self, seen: LSN) -> None:
        """``seen``: the end of the last transaction that came from the source."""
        if self._seconds == 0:
            return
        clock = time.monotonic()
        if self._seen is not None and seen != self._seen:
            self._due = clock + self._seconds
        self._seen = seen
        if clock < self._due:
            return
        self._due = clock + self._seconds
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._url, application_name="penstock heartbeat")
                # Capture must not wait for a disk or a standby; it hears of the mark when it is durable.
                self._connection.execute("set synchronous_commit = off")
            self._connection.execute("select pg_logical_emit_message(true, 'penstock', 'heartbeat')")
        except (psycopg.Error, PenstockError) as error:
            logger.debug("No heartbeat: %s", error)  # a standby, or no connection: reading the slot will tell

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
