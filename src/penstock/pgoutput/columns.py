"""pgoutput's row changes, column by column over all messages of a relation at once.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html, TupleData: for each column a byte
(n: NULL, u: unchanged TOAST value, t: text) and, for text, its length and bytes. So the place of column k+1 follows from
that of column k: one NumPy vector per column holds it for every message. No loop over rows.

Gathering byte ranges out of one buffer into an Arrow array, without touching them one by one.

Arrow's variable-length layout is one data buffer plus offsets. Offsets that alternate start, end, start, end … describe
value, gap, value, gap …; a ``take`` of the even elements gathers the values in C. The ranges must ascend.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import (
    DELETE,
    INSERT,
    MESSAGE,
    MESSAGES,
    OLD_FULL,
    OLD_KEY,
    TRUNCATE,
    UPDATE,
    Bools,
    ChangeBatch,
    Int64s,
    Relation,
    UInt8s,
)
from penstock.errors import DecodeError


def gather(raw: pa.Buffer, starts: Int64s, ends: Int64s, kind: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """Element i is ``raw[starts[i]:ends[i]]``, or NULL where ``valid`` is false. ``kind``: pa.string() or pa.binary()."""
    count = len(starts)
    if count == 0:
        return pa.array([], kind)
    alternating = np.empty(2 * count, np.int32)
    alternating[0::2], alternating[1::2] = starts, ends
    with_gaps = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(alternating), raw])
    values = with_gaps.take(pa.array(np.arange(0, 2 * count - 1, 2)))
    if valid is None or valid.all():
        return values
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [bitmap, *values.buffers()[1:]])


class BigEndian:
    """Reads big-endian numbers at many places of a buffer at once. A place past the end reads the last number."""

    def __init__(self, data: UInt8s) -> None:
        self._data = data

    def _at(self, dtype: str, places: Int64s) -> Int64s:
        width = np.dtype(dtype).itemsize
        count = len(self._data) - width + 1
        if count <= 0 or len(places) == 0:
            return np.zeros(len(places), np.int64)
        overlapping: np.ndarray[tuple[int], np.dtype[np.int64]] = np.ndarray(
            (count,), dtype, buffer=self._data, strides=(1,)
        )
        # Not `take`: that would first copy the overlapping view, several times the buffer.
        return overlapping[np.minimum(places, count - 1)].astype(np.int64)

    def u16(self, places: Int64s) -> Int64s:
        return self._at(">u2", places)

    def u32(self, places: Int64s) -> Int64s:
        return self._at(">u4", places)

    def i64(self, places: Int64s) -> Int64s:
        return self._at(">i8", places)


_NULL, _UNCHANGED, _TEXT, _NEW = (ord(c) for c in "nutN")


def decode(relation: Relation, rows: pa.RecordBatch, only: Collection[int] | None = None) -> ChangeBatch:
    """Messages of one relation (columns payload, commit_lsn, sequence, xid, commit_time) as a change batch of text.

    ``only``: of these columns; all others are NULL.
    """
    messages = _Messages(rows.column("payload"), relation, only)
    if relation.oid == MESSAGES.oid:
        op, new, old, old_kind, unchanged = _decode_logical_messages(messages)
        restarts = None
    else:
        op, new, old, old_kind, unchanged = _decode_changes(messages)
        restarts = _restarts_identity(messages, op == TRUNCATE)
    return ChangeBatch(
        relation, op,
        rows.column("commit_lsn").to_numpy(), rows.column("sequence").to_numpy(), rows.column("xid").to_numpy(),
        rows.column("commit_time").to_numpy(), new, old, old_kind, unchanged, restarts,
    )  # fmt: skip


def have_old_rows(rows: pa.RecordBatch) -> Bools:
    """Which of these messages of a relation tell the row, or its key, as it was before."""
    messages = _Messages(rows.column("payload"), MESSAGES)
    marker = messages.byte_at(messages.begin + 5)
    found: Bools = (messages.byte_at(messages.begin) != TRUNCATE) & ((marker == OLD_KEY) | (marker == OLD_FULL))
    return found


_Decoded = tuple[UInt8s, list[pa.Array], list[pa.Array], UInt8s, dict[int, Bools]]


class _Messages:
    """The bytes of all messages and where each begins and ends in them."""

    def __init__(self, payload: pa.BinaryArray, relation: Relation, only: Collection[int] | None = None) -> None:
        self.relation = relation
        self.only = only
        _validity, offsets, raw = payload.buffers()
        self.raw = raw if raw is not None else pa.py_buffer(b"")
        self.data: UInt8s = np.frombuffer(self.raw, np.uint8)
        places = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + len(payload) + 1].astype(np.int64)
        self.begin, self.end = places[:-1], places[1:]
        self.numbers = BigEndian(self.data)
        if len(payload) and int((self.end - self.begin).min()) < 6:
            raise self.malformed("a message is too short")

    def malformed(self, why: str) -> DecodeError:
        return DecodeError(f"Changes of table {self.relation.qualified_name} cannot be decoded: {why}.")

    def byte_at(self, places: Int64s) -> UInt8s:
        return self.data.take(places, mode="clip")


@dataclass(frozen=True)
class _Tuples:
    """Where the values of one tuple per row lie. Rows are positions in the batch."""

    rows: Int64s
    starts: list[Int64s]
    ends: list[Int64s]
    kinds: list[UInt8s]
    cursor: Int64s  # past the last column


def _decode_changes(messages: _Messages) -> _Decoded:
    count = len(messages.begin)
    op = messages.byte_at(messages.begin)
    if not ((op == INSERT) | (op == UPDATE) | (op == DELETE) | (op == TRUNCATE)).all():
        raise messages.malformed("a message is not a change of a row")
    is_row = op != TRUNCATE
    _check_truncates(messages, np.flatnonzero(~is_row))
    rows = np.flatnonzero(is_row)
    marker = messages.byte_at(messages.begin + 5)
    has_old = is_row & ((marker == OLD_KEY) | (marker == OLD_FULL))
    if not (has_old | (marker == _NEW) | ~is_row).all() or ((op == INSERT) & has_old).any():
        raise messages.malformed("an unknown kind of tuple")
    if ((op == DELETE) & ~has_old).any():
        raise messages.malformed("a delete without its old row")

    cursor = messages.begin + 5
    old_rows = np.flatnonzero(has_old)
    old = _locate(messages, old_rows, cursor[old_rows])
    cursor[old_rows] = old.cursor
    new_rows = rows[op[rows] != DELETE]
    if not (messages.byte_at(cursor[new_rows]) == _NEW).all():
        raise messages.malformed("a new row is missing")
    new = _locate(messages, new_rows, cursor[new_rows])
    cursor[new_rows] = new.cursor
    if not (cursor[rows] == messages.end[rows]).all():
        raise messages.malformed("the lengths of its columns do not add up")

    unchanged: dict[int, Bools] = {}
    new_columns = [_column(messages, new, index, count, unchanged) for index in range(len(new.starts))]
    old_columns = [_column(messages, old, index, count, None) for index in range(len(old.starts))]
    old_kind = np.where(has_old, marker, 0).astype(np.uint8)
    _complete_keys(messages, new_columns, old_columns, has_old, unchanged)
    return op, new_columns, old_columns, old_kind, unchanged


def _check_truncates(messages: _Messages, rows: Int64s) -> None:
    """Truncate: T count(4) options(1), then an oid(4) for each table."""
    begin = messages.begin[rows]
    if not (messages.end[rows] - begin == 6 + 4 * messages.numbers.u32(begin + 1)).all():
        raise messages.malformed("the length of a truncate does not add up")


def _restarts_identity(messages: _Messages, truncates: Bools) -> Bools | None:
    """Which are TRUNCATE … RESTART IDENTITY: bit 2 of the options. None: no row is."""
    restarts: Bools = truncates & (messages.byte_at(messages.begin + 5) & 2 > 0)
    return restarts if restarts.any() else None


def _complete_keys(
    messages: _Messages, new: list[pa.Array], old: list[pa.Array], has_old: Bools, unchanged: dict[int, Bools]
) -> None:
    """A key long enough for TOAST is not sent with the new row when it stays the same; Postgres sends the old key then.

    Minor versions from before 2022 did not, so that nobody can know the row.
    """
    for index in messages.relation.key_indexes:
        missing = unchanged.pop(index, None)
        if missing is None:
            continue
        if (missing & ~has_old).any():
            raise messages.malformed(
                "an update does not say which row it is of; update Postgres to its last minor version"
            )
        new[index] = pc.if_else(pa.array(missing), old[index], new[index])


def _locate(messages: _Messages, rows: Int64s, cursor: Int64s) -> _Tuples:
    """``cursor`` stands at the tuple's marker byte (K, O or N)."""
    width = len(messages.relation.columns)
    if len(rows) and not (messages.numbers.u16(cursor + 1) == width).all():
        raise messages.malformed(f"a row does not have the table's {width} columns")
    tuples = _Tuples(rows, [], [], [], cursor + 3)
    place = tuples.cursor
    for _ in range(width):
        kind = messages.byte_at(place)
        text = kind == _TEXT
        if text.all():
            start = place + 5
            end = start + messages.numbers.u32(place + 1)
        else:
            if not (text | (kind == _NULL) | (kind == _UNCHANGED)).all():
                raise messages.malformed("a value is neither text nor NULL nor unchanged")
            start = place + np.where(text, 5, 1)
            end = start + np.where(text, messages.numbers.u32(place + 1), 0)
        tuples.starts.append(start)
        tuples.ends.append(end)
        tuples.kinds.append(kind)
        place = end
    if len(rows) and not (place <= messages.end[rows]).all():
        raise messages.malformed("a value is longer than its message")
    return _Tuples(rows, tuples.starts, tuples.ends, tuples.kinds, place)


def _column(
    messages: _Messages, tuples: _Tuples, index: int, count: int, unchanged: dict[int, Bools] | None
) -> pa.StringArray:
    """One column for all rows of the batch; NULL where the row has no such tuple or value."""
    start, end, kind = tuples.starts[index], tuples.ends[index], tuples.kinds[index]
    if len(tuples.rows) == 0 or (messages.only is not None and index not in messages.only):
        return pa.nulls(count, pa.string())
    if len(tuples.rows) < count:
        start, end, kind = _spread(messages, tuples.rows, start, end, kind)
    if unchanged is not None and (kind == _UNCHANGED).any():
        unchanged[index] = kind == _UNCHANGED
    return _text(messages, gather(messages.raw, start, end, pa.binary(), kind == _TEXT), index)


def _text(messages: _Messages, values: pa.BinaryArray, index: int) -> pa.StringArray:
    try:
        return values.cast(pa.string())  # checks that the bytes are UTF-8
    except pa.ArrowInvalid:
        raise messages.malformed(
            f"column {messages.relation.columns[index].name} holds text that is not UTF-8"
        ) from None


def _spread(
    messages: _Messages, rows: Int64s, start: Int64s, end: Int64s, kind: UInt8s
) -> tuple[Int64s, Int64s, UInt8s]:
    """From the rows that have the tuple to all rows; the others get an empty range at their own message."""
    all_start, all_end = messages.begin.copy(), messages.begin.copy()
    all_kind = np.full(len(messages.begin), _NULL, np.uint8)
    all_start[rows], all_end[rows], all_kind[rows] = start, end, kind
    return all_start, all_end, all_kind


_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2").view(np.uint16)


def _decode_logical_messages(messages: _Messages) -> _Decoded:
    """Message: M flags(1) lsn(8) prefix NUL length(4) content."""
    count = len(messages.begin)
    op = messages.byte_at(messages.begin)
    if not (op == MESSAGE).all() or (count and int((messages.end - messages.begin).min()) < 15):
        raise messages.malformed("a message is not a logical decoding message")
    after_lsn = gather(messages.raw, messages.begin + 10, messages.end, pa.binary())
    prefix_length = pc.find_substring(after_lsn, pattern=b"\0").to_numpy().astype(np.int64)
    prefix_start = messages.begin + 10
    content_start = prefix_start + prefix_length + 5
    content_end = content_start + messages.numbers.u32(prefix_start + prefix_length + 1)
    if (prefix_length < 0).any() or not (content_end == messages.end).all():
        raise messages.malformed("the lengths of a logical decoding message do not add up")
    prefix = gather(messages.raw, prefix_start, prefix_start + prefix_length, pa.binary())
    content = _bytea_text(gather(messages.raw, content_start, content_end, pa.binary()))
    nothing = [pa.nulls(count, pa.string())] * 2
    return op, [_text(messages, prefix, 0), content], nothing, np.zeros(count, np.uint8), {}


def _bytea_text(values: pa.BinaryArray) -> pa.StringArray:
    """As Postgres prints bytea: ``\\x`` and hexadecimal digits."""
    if len(values) == 0:
        return pa.array([], pa.string())
    _validity, offsets, raw = values.buffers()
    places = np.frombuffer(offsets, np.int32)[: len(values) + 1]
    digits = _HEX[np.frombuffer(raw, np.uint8)[: places[-1]]] if raw is not None else np.empty(0, np.uint16)
    doubled = pa.py_buffer((places * 2).astype(np.int32))
    text = pa.Array.from_buffers(pa.string(), len(values), [None, doubled, pa.py_buffer(digits)])
    return pc.binary_join_element_wise("\\x", text, "")
