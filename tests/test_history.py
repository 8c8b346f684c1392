"""The comparison with what the server sends, on messages by hand."""

from __future__ import annotations

import struct

import pytest

from penstock.capture.history import HistoryCheck
from penstock.errors import SourceSetBack
from penstock.lsn import LSN, ZERO
from penstock.pgoutput.messages import POSTGRES_EPOCH, Begin
from penstock.postgres.slot import parse_history

TIME = POSTGRES_EPOCH + 1_000_000
LAST = Begin(LSN(100), TIME, 731)
LOG_END = LSN(110)


def wal(payload: bytes) -> bytes:
    return b"w" + bytes(24) + payload


def begin(lsn: int, xid: int = 731, time: int = TIME) -> bytes:
    return wal(b"B" + struct.pack("!QqI", lsn, time - POSTGRES_EPOCH, xid))


def commit(lsn: int) -> bytes:
    return wal(b"C" + struct.pack("!BQQq", 0, lsn, lsn + 10, 0))


def message(lsn: int, prefix: bytes = b"penstock", transactional: bool = False) -> bytes:
    return wal(b"M" + struct.pack("!BQ", transactional, lsn) + prefix + b"\0" + struct.pack("!I", 0))


INSERT = wal(b"I" + bytes(10))
RELATION = wal(b"R" + bytes(20))
MARK = message(0, transactional=True)


def check(
    expected: Begin | None = LAST, log_end: LSN = LOG_END, position: LSN = ZERO, same_publications: bool = True
) -> HistoryCheck:
    return HistoryCheck(expected, log_end, position, same_publications)


def test_changes_that_the_log_has_are_dropped_and_definitions_stay() -> None:
    history = check()
    kept = history.new_messages([begin(100), RELATION, INSERT, MARK, commit(100), begin(200, 732), INSERT], ZERO)

    assert kept == [begin(100), RELATION, commit(100), begin(200, 732), INSERT]
    assert history.done


def test_it_goes_on_over_several_looks() -> None:
    history, proven_and_done = check(), []
    for messages, server_end, kept in (
        ([], 100, []),
        ([begin(100), INSERT], 0, [begin(100)]),
        ([INSERT, commit(100)], 500, [commit(100)]),
        ([begin(200), INSERT], 500, [begin(200), INSERT]),  # the first change that comes may still tell
    ):
        assert history.new_messages(messages, LSN(server_end)) == kept
        proven_and_done.append((history.proven, history.done))

    assert proven_and_done == [(False, False), (True, False), (True, False), (True, True)]


def test_a_mark_behind_the_log_is_looked_for_as_well() -> None:
    history = check(Begin(LSN(150), TIME, 731))
    mark = [begin(150), MARK, commit(150)]
    assert history.new_messages(mark, LSN(160)) == mark
    assert history.proven


def test_a_lost_log_is_filled_until_the_expected_transaction_comes() -> None:
    history = check(log_end=LSN(50))
    messages = [begin(60, 700), INSERT, commit(60), begin(100), INSERT, commit(100)]
    assert history.new_messages(messages, ZERO) == messages
    assert history.done


def test_a_message_outside_transactions_is_dropped_if_the_log_has_it() -> None:
    history = check(None)
    assert history.new_messages([message(110, b"shop"), message(120, b"shop")], ZERO) == [message(120, b"shop")]


OTHERS = {
    "another transaction in its place": [begin(100, 732)],
    "the same xid at another time": [begin(100, 731, TIME + 1)],
    "a later one first": [begin(101)],
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_transaction_first_is_another_history(case: str) -> None:
    with pytest.raises(SourceSetBack, match="731"):
        check().new_messages(OTHERS[case], ZERO)


def test_a_server_that_has_nothing_there_has_another_history() -> None:
    with pytest.raises(SourceSetBack, match="0/64"):
        check().new_messages([], LSN(101))


EARLIER_CHANGES = {
    "a row": [begin(150), INSERT],
    "a logical message": [begin(150), message(0, b"shop", transactional=True)],
    "a message outside transactions": [message(150, b"shop")],
}


@pytest.mark.parametrize("case", EARLIER_CHANGES)
def test_a_change_in_wal_that_was_empty_is_another_history(case: str) -> None:
    with pytest.raises(SourceSetBack, match="0/C8"):
        check(None, position=LSN(200)).new_messages(EARLIER_CHANGES[case], ZERO)


def test_marks_and_later_changes_behind_empty_wal_are_none() -> None:
    messages = [begin(150), MARK, commit(150), message(160), begin(200), INSERT, commit(200)]
    history = check(None, position=LSN(200))
    assert history.new_messages(messages, ZERO) == messages
    assert history.done


def test_with_other_publications_what_is_missing_proves_nothing_but_a_contradiction_does() -> None:
    history = check(position=LSN(200), same_publications=False)
    messages = [begin(150), INSERT, commit(150)]
    assert history.new_messages(messages, ZERO) == messages
    assert history.done

    with pytest.raises(SourceSetBack):
        check(same_publications=False).new_messages([begin(100, 732)], ZERO)


def test_a_timeline_history_says_where_each_was_left() -> None:
    content = "1\t0/3000A10\tno recovery target specified\n\n# a comment\n2\t1/A0\tbefore 2026-11-15\n"
    assert parse_history(content) == {1: LSN(0x3000A10), 2: LSN.parse("1/A0")}
