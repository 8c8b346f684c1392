"""COPY (query) TO STDOUT as CSV, in large pieces.

libpq hands out one row at a time, which costs more than a microsecond of Python each: more than the server needs for
it. On a connection without encryption we read the socket ourselves instead, as many rows at once as there are:

1. Between two commands libpq has read everything that the server sent, and the server sends nothing unasked. So nothing
   is lost between libpq and us if we write the command to the socket and read its answer.
2. The socket stays as it is. Its non-blocking mode belongs to the open file and thus to libpq as well, so we wait for it
   by poll.
3. At ReadyForQuery the server waits for the next command, and libpq has the connection back. If the transaction's state
   is not what libpq last knew, an empty command tells it.
4. If we do not get that far, the connection is closed. Nobody ever finds it half way through an answer.

Notices and notifications that come meanwhile are dropped; our sessions ask for neither.
https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-COPY
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import suppress

import psycopg
import pyarrow as pa
from psycopg import pq, sql

from penstock.postgres.connection import Connection
from penstock.postgres.copy_frames import Message, ReceiveBuffer, error_of

PIECE_BYTES = 4 << 20

_PATIENCE = 5.0  # for the end of a query that was cancelled
_SILENCE = 1.0  # after which what has come is looked at, whatever it is
_STATES = {b"I": pq.TransactionStatus.IDLE, b"T": pq.TransactionStatus.INTRANS, b"E": pq.TransactionStatus.INERROR}
# CopyOutResponse, CopyDone, CommandComplete, NoticeResponse, ParameterStatus, NotificationResponse.
_NOTHING_TO_DO = frozenset("HcCNSA")


def copy_out(connection: Connection, query: sql.Composed) -> Generator[pa.Buffer, None, None]:
    """The rows of the query as CSV, in pieces that end at a row's end: some 4 MiB each, or one row if that is larger.

    Runs inside the caller's transaction and raises psycopg's errors. When it has ended, by the last row, an error, or
    ``close()`` of the iterator, the connection is ready for the next command, or closed.
    """
    command = sql.SQL("copy ({}) to stdout (format csv)").format(query)
    if encrypted(connection):
        return through_libpq(connection, command)
    return past_libpq(connection, command)


def encrypted(connection: Connection) -> bool:
    """Whether the bytes on the socket are other than the messages; also true where libpq is too old to say."""
    try:
        return connection.pgconn.ssl_in_use or connection.pgconn.used_gssapi  # libpq says so of GSS encryption too
    except psycopg.NotSupportedError:
        return True


def through_libpq(connection: Connection, command: sql.Composed) -> Generator[pa.Buffer, None, None]:
    stopped = False
    try:
        with connection.cursor() as cursor, cursor.copy(command) as copy:
            try:
                yield from _joined(copy)
            except GeneratorExit:  # psycopg cancels the query and reads the rest
                stopped = True
                raise
    except psycopg.OperationalError:
        if not stopped:
            raise


def _joined(copy: psycopg.Copy) -> Iterator[pa.Buffer]:
    rows: list[bytes] = []
    size = 0
    for row in copy:
        rows.append(bytes(row))  # copied at once, so that libpq's buffer is reused
        size += len(row)
        if size >= PIECE_BYTES:
            yield pa.py_buffer(b"".join(rows))
            rows, size = [], 0
    if rows:
        yield pa.py_buffer(b"".join(rows))


def past_libpq(connection: Connection, command: sql.Composed) -> Generator[pa.Buffer, None, None]:
    assert connection.pgconn.transaction_status != pq.TransactionStatus.ACTIVE, "libpq is in the middle of a command"
    answer = _Answer(connection)
    try:
        answer.ask(command.as_bytes(connection))
        yield from answer.rows()
    except GeneratorExit:
        answer.abandon()
        raise
    finally:
        answer.close()


class _Answer:
    """The socket of a connection from a command to its ReadyForQuery."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._socket = os.dup(connection.pgconn.socket)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._buffer = ReceiveBuffer(PIECE_BYTES)
        self._error: psycopg.Error | None = None
        self._ended = False  # the server has closed its side
        self._ready = False

    def ask(self, command: bytes) -> None:
        """If the server is gone, it may have said why: that is found by reading."""
        message = memoryview(b"Q" + struct.pack("!I", len(command) + 5) + command + b"\0")
        waiting = select.poll()
        waiting.register(self._socket, select.POLLOUT)
        with suppress(OSError):
            while message:
                waiting.poll()
                with suppress(BlockingIOError):
                    message = message[os.write(self._socket, message) :]

    def rows(self) -> Iterator[pa.Buffer]:
        while not self._ready:
            self._receive()
            yield from self._taken()
            if self._ended and not self._ready:
                raise self._error or psycopg.OperationalError("the server closed the connection in the middle of COPY")
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Cancels the query, and reads and forgets what is under way."""
        deadline = time.monotonic() + _PATIENCE
        with suppress(psycopg.Error):
            self._forget()
            if not self._ready:
                self._connection.cancel_safe(timeout=_PATIENCE)
            while not (self._ready or self._ended) and time.monotonic() < deadline:
                self._receive()
                self._forget()

    def close(self) -> None:
        os.close(self._socket)
        if not self._ready:
            self._connection.close()

    def _receive(self) -> None:
        """Until the buffer is full, the answer is complete, or nothing has come for a while."""
        while room := self._buffer.room():
            try:
                count = os.readv(self._socket, [room])
            except BlockingIOError:
                if not self._poll.poll(_SILENCE * 1000):
                    return
                continue
            except OSError:
                count = 0
            self._buffer.received(count)
            self._ended = count == 0
            if self._ended or self._buffer.ends_ready:
                return

    def _taken(self) -> Iterator[pa.Buffer]:
        """What the buffer holds in whole messages: rows are given out, other messages are acted upon."""
        while True:
            rows = self._buffer.take_rows()
            if rows is not None:
                yield rows
            message = self._buffer.take_message()
            if message is not None:
                self._act_on(message)
            elif rows is None:
                return

    def _forget(self) -> None:
        for _rows in self._taken():
            pass

    def _act_on(self, message: Message) -> None:
        if message.kind == "E":
            self._error = self._error or error_of(message.body)
        elif message.kind == "Z":
            if _STATES.get(message.body) != self._connection.pgconn.transaction_status:
                self._connection.pgconn.exec_(b"")
            self._ready = True
        elif message.kind not in _NOTHING_TO_DO:
            raise psycopg.OperationalError(f"the server answered COPY with a message of kind {message.kind!r}")
