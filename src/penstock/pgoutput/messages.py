"""pgoutput's messages, one at a time, for the few that are not row changes.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html

Row changes (Insert, Update, Delete) are decoded column by column over many messages at once, in ``columns.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import DecodeError
from penstock.lsn import LSN

POSTGRES_EPOCH = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970-01-01

BEGIN, COMMIT, ORIGIN, RELATION, TYPE = (ord(c) for c in "BCORY")
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = (ord(c) for c in "IUDTM")
ROW_KINDS = bytes((INSERT, UPDATE, DELETE))
KINDS = bytes((BEGIN, COMMIT, ORIGIN, RELATION, TYPE, INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE))


@dataclass(frozen=True, slots=True)
class Begin:
    final_lsn: LSN  # the LSN of the commit record
    commit_time: int  # microseconds since 1970-01-01 UTC
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: LSN
    end_lsn: LSN
    commit_time: int


@dataclass(frozen=True, slots=True)
class Origin:
    commit_lsn: LSN
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    modifier: int
    in_identity: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeMessage:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    transactional: bool
    lsn: LSN
    prefix: str
    content: bytes


Message = Begin | Commit | Origin | RelationMessage | TypeMessage | Truncate | LogicalMessage


class _Cursor:
    """Reads one message from front to back; anything short or left over is a DecodeError."""

    def __init__(self, payload: bytes, name: str) -> None:
        self.payload, self.name, self.at = payload, name, 1

    def unpack(self, layout: str) -> tuple[int, ...]:
        try:
            values = struct.unpack_from(layout, self.payload, self.at)
        except struct.error:
            raise self._malformed("it ends too early") from None
        self.at += struct.calcsize(layout)
        return values

    def string(self) -> str:
        end = self.payload.find(b"\0", self.at)
        if end < 0:
            raise self._malformed("a name has no end")
        text, self.at = self.payload[self.at : end], end + 1
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise self._malformed("a name is not UTF-8") from None

    def take(self, length: int) -> bytes:
        taken = self.payload[self.at : self.at + length]
        if len(taken) != length:
            raise self._malformed("it ends too early")
        self.at += length
        return taken

    def end(self) -> None:
        if self.at != len(self.payload):
            raise self._malformed("it is longer than it says")

    def _malformed(self, why: str) -> DecodeError:
        return DecodeError(f"Postgres sent a {self.name} message that cannot be read: {why}.")


def parse(payload: bytes) -> Message:
    """Any message but the row changes."""
    reader = _READERS.get(payload[:1])
    if reader is None:
        raise DecodeError(f"Postgres sent a message of unknown kind {payload[:1]!r}.")
    name, read = reader
    cursor = _Cursor(payload, name)
    message = read(cursor)
    cursor.end()
    return message


def _begin(cursor: _Cursor) -> Begin:
    final_lsn, commit_time, xid = cursor.unpack("!QqI")
    return Begin(LSN(final_lsn), commit_time + POSTGRES_EPOCH, xid)


def _commit(cursor: _Cursor) -> Commit:
    _flags, commit_lsn, end_lsn, commit_time = cursor.unpack("!BQQq")
    return Commit(LSN(commit_lsn), LSN(end_lsn), commit_time + POSTGRES_EPOCH)


def _origin(cursor: _Cursor) -> Origin:
    (commit_lsn,) = cursor.unpack("!Q")
    return Origin(LSN(commit_lsn), cursor.string())


def _relation(cursor: _Cursor) -> RelationMessage:
    (oid,) = cursor.unpack("!I")
    schema, table = cursor.string(), cursor.string()
    identity, count = cursor.unpack("!BH")
    return RelationMessage(
        oid, schema or "pg_catalog", table, chr(identity), tuple(_relation_column(cursor) for _ in range(count))
    )


def _relation_column(cursor: _Cursor) -> RelationColumn:
    (flags,) = cursor.unpack("!B")
    name = cursor.string()
    type_oid, modifier = cursor.unpack("!Ii")
    return RelationColumn(name, type_oid, modifier, bool(flags & 1))


def _type(cursor: _Cursor) -> TypeMessage:
    (oid,) = cursor.unpack("!I")
    return TypeMessage(oid, cursor.string() or "pg_catalog", cursor.string())


def _truncate(cursor: _Cursor) -> Truncate:
    count, options = cursor.unpack("!IB")
    if count > len(cursor.payload):
        raise DecodeError("Postgres sent a Truncate message that cannot be read: it ends too early.")
    return Truncate(cursor.unpack(f"!{count}I"), bool(options & 1), bool(options & 2))


def _logical_message(cursor: _Cursor) -> LogicalMessage:
    flags, lsn = cursor.unpack("!BQ")
    prefix = cursor.string()
    (length,) = cursor.unpack("!I")
    return LogicalMessage(bool(flags & 1), LSN(lsn), prefix, cursor.take(length))


_READERS: dict[bytes, tuple[str, Callable[[_Cursor], Message]]] = {
    b"B": ("Begin", _begin),
    b"C": ("Commit", _commit),
    b"O": ("Origin", _origin),
    b"R": ("Relation", _relation),
    b"Y": ("Type", _type),
    b"T": ("Truncate", _truncate),
    b"M": ("Message", _logical_message),
}
