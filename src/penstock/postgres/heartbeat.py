"""Moves an idle database's slot: without any write of its own the server cannot let go of other databases' WAL."""

from __future__ import annotations

import logging
import time

import psycopg

from penstock.errors import PenstockError
from penstock.postgres.connection import connect

logger = logging.getLogger(__name__)


class Heartbeat:
    """A logical decoding message with our prefix, which capture reads as progress and does not deliver."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._due = time.monotonic() + seconds
        self._connection: psycopg.Connection | None = None

    def postpone(self) -> None:
        self._due = time.monotonic() + self._seconds

    def beat_if_due(self) -> None:
        if self._seconds == 0 or time.monotonic() < self._due:
            return
        self.postpone()
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._url, application_name="penstock heartbeat")
            self._connection.execute("SELECT pg_logical_emit_message(false, 'penstock', 'heartbeat')")
        except (psycopg.Error, PenstockError) as error:
            logger.debug("No heartbeat: %s", error)  # a standby, or no connection: reading the slot will tell

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
