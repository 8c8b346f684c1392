from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DecodeError
from penstock.lsn import LSN
from penstock.pgoutput import messages as pgoutput
from penstock.pgoutput.messages import parse
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import FIRST_COMMIT_TIME, relation

USERS = relation("public", "users", id="int8", name="varchar(20)", key=("id",), oid=16384)

MESSAGES = {
    "Begin": script.begin(0x16B3748, 731),
    "Commit": script.commit(0x16B3748, 0x16B3778),
    "Origin": script.origin(0x16B3748, "elsewhere"),
    "Relation": script.relation(USERS),
    "Type": script.type_message(16390, "public", "mood"),
    "Truncate": script.truncate(USERS, USERS),
    "Message": script.logical_message(0x16B3748, "note", b"content"),
}


def test_begin() -> None:
    assert parse(MESSAGES["Begin"]) == pgoutput.Begin(LSN.parse("0/16B3748"), FIRST_COMMIT_TIME, 731)


def test_commit() -> None:
    expected = pgoutput.Commit(LSN.parse("0/16B3748"), LSN.parse("0/16B3778"), FIRST_COMMIT_TIME)
    assert parse(MESSAGES["Commit"]) == expected


def test_a_commit_long_before_our_time_is_read_as_such() -> None:
    message = parse(script.commit(1, 2, commit_time=-1))
    assert isinstance(message, pgoutput.Commit)
    assert message.commit_time == -1


def test_origin() -> None:
    assert parse(MESSAGES["Origin"]) == pgoutput.Origin(LSN(0x16B3748), "elsewhere")


def test_relation() -> None:
    columns = (pgoutput.RelationColumn("id", 20, -1, True), pgoutput.RelationColumn("name", 1043, 24, False))
    assert parse(MESSAGES["Relation"]) == pgoutput.RelationMessage(16384, "public", "users", "d", columns)


def test_a_relation_may_have_no_columns() -> None:
    message = parse(script.relation(relation("public", "nothing", identity="f", oid=7)))
    assert message == pgoutput.RelationMessage(7, "public", "nothing", "f", ())


def test_an_empty_schema_stands_for_pg_catalog() -> None:
    message = parse(script.relation(relation("", "pg_class", oid=1259)))
    assert isinstance(message, pgoutput.RelationMessage)
    assert message.schema == "pg_catalog"
    assert parse(script.type_message(25, "", "text")) == pgoutput.TypeMessage(25, "pg_catalog", "text")


def test_names_may_be_anything() -> None:
    odd = relation("Wörter. ", '"drop table; --"', {"🐘": "int4", "": "text"}, oid=1)
    message = parse(script.relation(odd))
    assert isinstance(message, pgoutput.RelationMessage)
    assert (message.schema, message.table) == ("Wörter. ", '"drop table; --"')
    assert [column.name for column in message.columns] == ["🐘", ""]


def test_type() -> None:
    assert parse(MESSAGES["Type"]) == pgoutput.TypeMessage(16390, "public", "mood")


@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_truncate(cascade: bool, restart: bool) -> None:
    message = parse(script.truncate(USERS, cascade=cascade, restart_identity=restart))
    assert message == pgoutput.Truncate((16384,), cascade, restart)


def test_a_truncate_names_each_of_its_tables() -> None:
    message = parse(script.truncate(USERS, relation("a", "b", oid=9), relation("a", "c", oid=4_000_000_000)))
    assert isinstance(message, pgoutput.Truncate)
    assert message.relation_oids == (16384, 9, 4_000_000_000)


@pytest.mark.parametrize("transactional", [False, True])
def test_logical_message(transactional: bool) -> None:
    message = parse(script.logical_message(0x16B3748, "pré", b"\0\xff", transactional))
    assert message == pgoutput.LogicalMessage(transactional, LSN(0x16B3748), "pré", b"\0\xff")


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_cut_short_at_any_length_is_a_decode_error(name: str) -> None:
    payload = MESSAGES[name]
    for length in range(len(payload)):
        with pytest.raises(DecodeError):
            parse(payload[:length])


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_more_bytes_than_it_says_is_a_decode_error(name: str) -> None:
    with pytest.raises(DecodeError, match=f"{name} message .* longer than it says"):
        parse(MESSAGES[name] + b"\0")


def test_a_name_that_is_not_utf8_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match=r"Type message .* not UTF-8"):
        parse(MESSAGES["Type"].replace(b"mood", b"mo\xffd"))


def test_a_count_of_billions_is_refused_without_reading_them() -> None:
    with pytest.raises(DecodeError, match=r"Truncate .* too early"):
        parse(b"T" + struct.pack("!IB", 0xFFFFFFFF, 0))


@pytest.mark.parametrize("payload", [b"", b"S\0\0\0\0", b"\0", b"I\0\0\0\1N\0\0"])
def test_an_unknown_kind_is_a_decode_error(payload: bytes) -> None:
    with pytest.raises(DecodeError, match="unknown kind"):
        parse(payload)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(kind=st.sampled_from("BCORYTM"), rest=st.binary(max_size=60))
def test_garbage_is_parsed_or_refused_and_nothing_else(kind: str, rest: bytes) -> None:
    with contextlib.suppress(DecodeError):
        parse(kind.encode() + rest)
