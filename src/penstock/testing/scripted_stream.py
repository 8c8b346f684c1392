"""pgoutput by hand: what a server would send, for tests without one.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html

::

    stream = ScriptedStream()
    with stream.transaction(xid=731):
        stream.relation(USERS)
        stream.insert(USERS, ["1", "Ada"])
        stream.update(USERS, ["1", UNCHANGED], old=["1", None])
    stream.messages                                     # each with its XLogData header, as libpq hands them over
    describe = described(USERS)                         # for a Clusterer, which otherwise asks the catalog
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.changes.batch import Relation
from penstock.lsn import LSN
from penstock.pgoutput.messages import POSTGRES_EPOCH, Message, RelationMessage, TypeMessage, parse
from penstock.testing.change_batches import FIRST_COMMIT_TIME, _Unchanged

Value = str | bytes | None | _Unchanged  # bytes: sent as they are, also when they are no UTF-8
Values = Sequence[Value]


def begin(commit_lsn: int, xid: int, commit_time: int = FIRST_COMMIT_TIME) -> bytes:
    return b"B" + struct.pack("!QqI", commit_lsn, commit_time - POSTGRES_EPOCH, xid)


def commit(commit_lsn: int, end_lsn: int, commit_time: int = FIRST_COMMIT_TIME) -> bytes:
    return b"C" + struct.pack("!BQQq", 0, commit_lsn, end_lsn, commit_time - POSTGRES_EPOCH)


def origin(commit_lsn: int, name: str) -> bytes:
    return b"O" + struct.pack("!Q", commit_lsn) + _string(name)


def relation(table: Relation) -> bytes:
    head = struct.pack("!I", table.oid) + _string(table.schema) + _string(table.table)
    columns = [
        struct.pack("!B", column.in_identity)
        + _string(column.name)
        + struct.pack("!Ii", column.type_oid, column.modifier)
        for column in table.columns
    ]
    return b"R" + head + struct.pack("!cH", table.identity.encode(), len(columns)) + b"".join(columns)


def type_message(oid: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack("!I", oid) + _string(schema) + _string(name)


def insert(table: Relation, new: Values) -> bytes:
    return b"I" + struct.pack("!I", table.oid) + b"N" + _tuple(new)


def update(table: Relation, new: Values, old: Values | None = None, kind: str | None = None) -> bytes:
    """``kind``: K or O; by default what a table of this identity sends."""
    before = b"" if old is None else _old(table, old, kind)
    return b"U" + struct.pack("!I", table.oid) + before + b"N" + _tuple(new)


def delete(table: Relation, old: Values, kind: str | None = None) -> bytes:
    return b"D" + struct.pack("!I", table.oid) + _old(table, old, kind)


def truncate(*tables: Relation, cascade: bool = False, restart_identity: bool = False) -> bytes:
    options = cascade | restart_identity << 1
    return b"T" + struct.pack(f"!IB{len(tables)}I", len(tables), options, *(table.oid for table in tables))


def logical_message(lsn: int, prefix: str, content: bytes, transactional: bool = True) -> bytes:
    return b"M" + struct.pack("!BQ", transactional, lsn) + _string(prefix) + struct.pack("!I", len(content)) + content


def xlog_data(payload: bytes, lsn: int = 0, sent_at: int = FIRST_COMMIT_TIME) -> bytes:
    """As the server sends it: w, start LSN, end LSN, clock, message."""
    return b"w" + struct.pack("!QQq", lsn, lsn, sent_at - POSTGRES_EPOCH) + payload


def described(*tables: Relation) -> Callable[[RelationMessage, dict[int, TypeMessage]], Relation]:
    """What a catalog would answer: the table whose Relation message this is."""
    known: dict[Message, Relation] = {parse(relation(table)): table for table in tables}

    def describe(message: RelationMessage, _types: dict[int, TypeMessage]) -> Relation:
        return known[message]

    return describe


class ScriptedStream:
    """Collects messages and gives each transaction its place in the WAL."""

    def __init__(self, start: int = 0x1000) -> None:
        self.messages: list[bytes] = []
        self.end = LSN(start)  # of the last transaction

    @contextmanager
    def transaction(self, xid: int = 731, commit_time: int = FIRST_COMMIT_TIME) -> Iterator[LSN]:
        """Begin and Commit around what is added inside. Gives the LSN of the commit record."""
        commit_lsn = LSN(self.end + 0x80)
        self.add(begin(commit_lsn, xid, commit_time))
        yield commit_lsn
        self.end = LSN(commit_lsn + 0x30)
        self.add(commit(commit_lsn, self.end, commit_time))

    def add(self, payload: bytes, sent_at: int = FIRST_COMMIT_TIME) -> None:
        self.messages.append(xlog_data(payload, self.end, sent_at))

    def relation(self, table: Relation) -> None:
        self.add(relation(table))

    def insert(self, table: Relation, new: Values) -> None:
        self.add(insert(table, new))

    def update(self, table: Relation, new: Values, old: Values | None = None) -> None:
        self.add(update(table, new, old))

    def delete(self, table: Relation, old: Values) -> None:
        self.add(delete(table, old))

    def truncate(self, *tables: Relation) -> None:
        self.add(truncate(*tables))

    def message(self, prefix: str, content: bytes) -> None:
        """Inside a transaction."""
        self.add(logical_message(self.end + 0x40, prefix, content))

    def standalone_message(self, prefix: str, content: bytes, sent_at: int = FIRST_COMMIT_TIME) -> LSN:
        """Outside any transaction. Gives its LSN, which is where its record ends."""
        lsn = LSN(self.end + 0x40)
        self.add(logical_message(lsn, prefix, content, transactional=False), sent_at)
        self.end = lsn
        return lsn


def _string(text: str) -> bytes:
    return text.encode() + b"\0"


def _old(table: Relation, old: Values, kind: str | None) -> bytes:
    return (kind or ("O" if table.identity == "f" else "K")).encode() + _tuple(old)


def _tuple(values: Values) -> bytes:
    return struct.pack("!H", len(values)) + b"".join(map(_value, values))


def _value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, _Unchanged):
        return b"u"
    data = value.encode() if isinstance(value, str) else value
    return b"t" + struct.pack("!I", len(data)) + data
