from __future__ import annotations

import pickle
import struct

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.postgres.reading.copy_out import Message, ReceiveBuffer, copy_data, error_of

steady = settings(derandomize=True, deadline=None, max_examples=300)

READY = Message("Z", b"T")


def framed(kind: str, body: bytes) -> bytes:
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def received(stream: bytes, size: int, portions: list[int]) -> list[bytes | Message]:
    """What comes out of a buffer of this size when the stream arrives in these portions, repeated. Rows are joined."""
    buffer, at, turn = ReceiveBuffer(size), 0, 0
    taken: list[bytes | Message] = []
    while at < len(stream):
        room = buffer.room()
        count = min(portions[turn % len(portions)], len(room), len(stream) - at)
        turn += 1
        room[:count] = stream[at : at + count]
        buffer.received(count)
        at += count
        taken += everything(buffer)
    return joined(taken)


def everything(buffer: ReceiveBuffer) -> list[bytes | Message]:
    taken: list[bytes | Message] = []
    while True:
        rows, message = buffer.take_rows(), buffer.take_message()
        if rows is None and message is None:
            return taken
        taken += [rows.to_pybytes()] if rows is not None else []
        taken += [message] if message is not None else []


def joined(taken: list[bytes | Message]) -> list[bytes | Message]:
    result: list[bytes | Message] = []
    for item in taken:
        if isinstance(item, bytes) and result and isinstance(result[-1], bytes):
            result[-1] += item
        else:
            result.append(item)
    return result


ROWS = st.lists(st.binary(max_size=40).map(lambda row: row.replace(b"\0", b"d") + b"\n"), min_size=1, max_size=12)
OTHERS = st.builds(Message, st.sampled_from("NSAE"), st.binary(max_size=30))


@steady
@given(
    parts=st.lists(st.one_of(ROWS, OTHERS), max_size=8),
    size=st.integers(6, 200),
    portions=st.lists(st.integers(1, 60), min_size=1, max_size=4),
)
def test_rows_and_messages_come_out_as_they_went_in(
    parts: list[list[bytes] | Message], size: int, portions: list[int]
) -> None:
    stream = b"".join(
        framed(*part) if isinstance(part, Message) else b"".join(framed("d", row) for row in part) for part in parts
    )
    expected = joined([part if isinstance(part, Message) else b"".join(part) for part in parts])
    assert received(stream, size, portions) == expected


# A length of 25,600 has `d` and NUL in it, 680,960 even a line feed before them; from 16 MiB on it begins without NUL.
@pytest.mark.parametrize("length", [25_600, 0x640000, 680_960, (16 << 20) - 1, 16 << 20, 0x1640000])
@pytest.mark.parametrize("size", [1 << 10, 4 << 20])
def test_a_length_that_looks_like_a_header_is_seen_through(length: int, size: int) -> None:
    rows = [b"a,b\n", b"d" * (length - 5) + b"\n", b"c,d\n"]
    stream = b"".join(framed("d", row) for row in rows) + framed(*READY)
    out = received(stream, size, [1 << 30])
    assert out == [b"".join(rows), READY]


def test_a_chain_that_breaks_is_walked() -> None:
    rows = [b"x" * 25_595 + b"\n", b"short\n", b"x" * 25_595 + b"\n"]
    stream = np.frombuffer(b"".join(framed("d", row) for row in rows), np.uint8)
    starts, ends = copy_data(stream)
    assert [stream[start:end].tobytes() for start, end in zip(starts, ends, strict=True)] == rows


def test_a_row_that_is_not_complete_waits() -> None:
    row = framed("d", b"a,b\n")
    for missing in range(1, len(row)):
        starts, ends = copy_data(np.frombuffer(row + row[:-missing], np.uint8))
        assert (starts.tolist(), ends.tolist()) == ([5], [len(row)])


def test_the_buffer_grows_for_a_large_row_and_lets_it_go() -> None:
    buffer = ReceiveBuffer(64)
    stream = framed("d", b"x" * 1000 + b"\n") + framed("d", b"a\n")
    buffer.room()[:64] = stream[:64]
    buffer.received(64)
    assert (buffer.take_rows(), buffer.take_message()) == (None, None)
    assert len(buffer.room()) == 1006 - 64
    buffer.room()[:] = stream[64:1006]
    buffer.received(1006 - 64)
    rows = buffer.take_rows()
    assert len(buffer.room()) == 64
    buffer.room()[:7] = stream[1006:]
    buffer.received(7)
    assert everything(buffer) == [b"a\n"]
    assert rows is not None
    assert rows.to_pybytes() == b"x" * 1000 + b"\n"


def test_rows_stay_as_they_are_when_the_buffer_is_used_again() -> None:
    buffer = ReceiveBuffer(64)
    taken = []
    for row in (b"first\n", b"other\n"):
        message = framed("d", row)
        buffer.room()[: len(message)] = message
        buffer.received(len(message))
        taken.append(buffer.take_rows())
    assert [rows.to_pybytes() for rows in taken if rows is not None] == [b"first\n", b"other\n"]


@pytest.mark.parametrize("length", [0, 3, 1 << 31, 0xFFFFFFFF])
def test_a_message_of_impossible_length_is_refused(length: int) -> None:
    buffer = ReceiveBuffer(6)
    buffer.room()[:6] = b"d" + struct.pack("!I", length) + b"x"
    buffer.received(6)
    with pytest.raises(psycopg.OperationalError, match=f"kind 'd' and length {length}"):
        everything(buffer)


@pytest.mark.parametrize(("stream", "ready"), [(b"Z\0\0\0\5", False), (b"Z\0\0\0\5T", True), (b"xZ\0\0\0\5I", True)])
def test_the_end_of_an_answer_shows(stream: bytes, ready: bool) -> None:
    buffer = ReceiveBuffer(64)
    assert not buffer.ends_ready
    buffer.room()[: len(stream)] = stream
    buffer.received(len(stream))
    assert buffer.ends_ready == ready


def test_an_error_is_what_psycopg_would_have_made_of_it() -> None:
    body = "SFEHLER\0VERROR\0C22012\0MDivision durch Null\0Dé\0Hdon't\0\0".encode()
    error = error_of(body)
    assert isinstance(error, psycopg.errors.DivisionByZero)
    assert (error.sqlstate, str(error)) == ("22012", "Division durch Null")
    assert (error.diag.message_detail, error.diag.message_hint) == ("é", "don't")
    assert pickle.loads(pickle.dumps(error)).diag.message_primary == "Division durch Null"


def test_an_error_that_psycopg_has_no_class_for_keeps_its_code() -> None:
    error = error_of(b"SERROR\0CPX123\0Mno\0\0")
    assert (type(error), error.sqlstate) == (psycopg.DatabaseError, "PX123")
