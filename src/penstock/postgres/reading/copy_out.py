"""COPY (query) TO STDOUT as CSV, in large pieces.

libpq hands out one row at a time, which costs more than a microsecond of Python each: more than the server needs for
it. On a connection without encryption we read the socket ourselves instead, as many rows at once as there are
(docs/decisions/0020-copy-from-the-socket.md; ``PENSTOCK_COPY=libpq`` switches it off):

1. Between two commands libpq has read everything that the server sent, and the server sends nothing unasked. So nothing
   is lost between libpq and us if we write the command to the socket and read its answer.
2. The socket stays as it is. Its non-blocking mode belongs to the open file and thus to libpq as well, so we wait for it
   by poll.
3. At ReadyForQuery the server waits for the next command, and libpq has the connection back. If the transaction's state
   is not what libpq last knew, an empty command tells it.
4. If we do not get that far, the connection is closed. Nobody ever finds it half way through an answer.

Notices and notifications that come meanwhile are dropped; our sessions ask for neither.
https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-COPY

The server's answer to COPY … TO STDOUT as bytes in a buffer: rows without their frames, and the other messages.

Each row comes as a CopyData message of its own: ``d``, a length of four bytes that counts itself, the row. Text has no
NUL byte and the length of a row under 16 MiB begins with one, so NumPy finds the headers all at once. Nothing in
this file reads or waits.
https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import pq, sql

from penstock.changes.batch import Int64s, UInt8s
from penstock.pgoutput.columns import BigEndian, gather
from penstock.postgres.connection import Connection

COPY_DATA = ord("d")
_HEADER = struct.Struct("!BI")
_LARGEST = 1 << 30  # Postgres builds a message in memory, where nothing is larger than 1 GiB
_READY_FOR_QUERY = b"Z\0\0\0\5"  # and one byte more: the transaction's state


class Message(NamedTuple):
    kind: str
    body: bytes


class ReceiveBuffer:
    """Bytes from the server, from a message's beginning on. Grows for a row that is larger, and shrinks afterwards."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._data: UInt8s = np.empty(size, np.uint8)
        self._filled = 0

    def room(self) -> memoryview:
        """Where the next bytes go; empty when the buffer is full."""
        return self._data.data[self._filled :]

    def received(self, count: int) -> None:
        self._filled += count

    @property
    def ends_ready(self) -> bool:
        """Whether the last message looks like ReadyForQuery, after which the server waits for us. No row looks so."""
        last = self._filled - len(_READY_FOR_QUERY) - 1
        return last >= 0 and self._data.data[last : self._filled - 1] == _READY_FOR_QUERY

    def take_rows(self) -> pa.Buffer | None:
        """The rows of all complete CopyData messages at the buffer's beginning, one after the other, without frames."""
        data = self._data[: self._filled]
        starts, ends = copy_data(data)
        if len(starts) == 0:
            self._make_room()
            return None
        whole = len(starts) == 1 and len(data) > self._size  # a row that the buffer grew for: not copied once more
        rows = pa.py_buffer(self._data[starts[0] : ends[0]]) if whole else _without_gaps(data, starts, ends)
        self._drop(int(ends[-1]))
        return rows

    def take_message(self) -> Message | None:
        """The message at the buffer's beginning, if it is complete and no CopyData."""
        if self._filled < _HEADER.size:
            return None
        kind, end = self._first()
        if kind == COPY_DATA or end > self._filled:
            return None
        message = Message(chr(kind), self._data[_HEADER.size : end].tobytes())
        self._drop(end)
        return message

    def _drop(self, count: int) -> None:
        rest = self._data[count : self._filled]
        if len(self._data) > self._size:
            self._data = np.empty(max(self._size, len(rest)), np.uint8)
        self._data[: len(rest)] = rest
        self._filled = len(rest)

    def _make_room(self) -> None:
        """For the message at the beginning when it is larger than the buffer: just so much that it fits."""
        if self._filled < len(self._data):
            return
        _kind, end = self._first()
        if end > len(self._data):
            larger = np.empty(end, np.uint8)
            larger[: self._filled] = self._data
            self._data = larger

    def _first(self) -> tuple[int, int]:
        """The kind of the first message, and where it ends."""
        kind, length = _HEADER.unpack_from(self._data.data)
        if not 4 <= length <= _LARGEST:
            raise psycopg.OperationalError(f"the server sent a message of kind {chr(kind)!r} and length {length}")
        return kind, 1 + length


def copy_data(data: UInt8s) -> tuple[Int64s, Int64s]:
    """Where the rows of the complete CopyData messages at the beginning of ``data`` start and end.

    Every ``d`` before a NUL may be a header. It is proven by the chain: the first one is where a message begins, and each
    one's length leads to the next. If it does not, something else looked like a header (the length of a row of 25,600
    bytes holds ``d`` and NUL, a notice may) and the messages are walked one by one.
    """
    nul = np.flatnonzero(data == 0)
    nul = nul[(nul > 0) & (nul <= len(data) - 4)]
    headers = nul[data[nul - 1] == COPY_DATA] - 1
    if len(headers) == 0:
        return _walk(data)
    ends = headers + 1 + BigEndian(data).u32(headers + 1)
    if headers[0] != 0 or ends[-1] < headers[-1] + _HEADER.size or not (ends[:-1] == headers[1:]).all():
        return _walk(data)
    complete = len(ends) if ends[-1] <= len(data) else len(ends) - 1
    return headers[:complete] + _HEADER.size, ends[:complete]


def _walk(data: UInt8s) -> tuple[Int64s, Int64s]:
    places, at, end = [], 0, len(data)
    while at + _HEADER.size <= end:
        kind, length = _HEADER.unpack_from(data.data, at)
        if kind != COPY_DATA or length < 4 or at + 1 + length > end:
            break
        places.append((at + _HEADER.size, at + 1 + length))
        at += 1 + length
    starts_and_ends = np.array(places, np.int64).reshape(-1, 2)
    return starts_and_ends[:, 0], starts_and_ends[:, 1]


def _without_gaps(data: UInt8s, starts: Int64s, ends: Int64s) -> pa.Buffer:
    values = gather(pa.py_buffer(data), starts, ends, pa.binary())
    size = int((ends - starts).sum())
    return values.buffers()[2].slice(0, size)


def error_of(body: bytes) -> psycopg.Error:
    """An ErrorResponse as psycopg's error. Its fields: a byte that says which, and text up to a NUL."""
    fields: dict[int, bytes | None] = {field[0]: field[1:] for field in body.split(b"\0") if field}
    said = (fields.get(ord("M")) or b"").decode(errors="replace")
    state = (fields.get(ord("C")) or b"").decode(errors="replace")
    try:
        kind = psycopg.errors.lookup(state)
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(said, info=fields)


PIECE_BYTES = 4 << 20

_PATIENCE = 5.0  # for the end of a query that was cancelled
SWITCH = "PENSTOCK_COPY"  # in the environment: ``libpq`` reads every COPY through libpq
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
    if os.environ.get(SWITCH) == "libpq" or encrypted(connection):
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
