"""The server's answer to COPY … TO STDOUT as bytes in a buffer: rows without their frames, and the other messages.

Each row comes as a CopyData message of its own: ``d``, a length of four bytes that counts itself, the row. Text has no
NUL byte and the length of a row under 16 MiB begins with one, so NumPy finds the headers all at once. Nothing in
this file reads or waits.
https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa

from penstock.changes import Int64s, UInt8s
from penstock.pgoutput.gather import BigEndian, gather

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
        rows = pa.py_buffer(self._data[starts[0] : ends[0]]) if whole else _joined(data, starts, ends)
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


def _joined(data: UInt8s, starts: Int64s, ends: Int64s) -> pa.Buffer:
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
