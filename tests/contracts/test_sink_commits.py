"""Prepare, write, commit: what a sink promises about batches, whatever is killed in between."""

from __future__ import annotations

import pickle

from penstock.changes.batch import ChangeBatch
from penstock.lsn import ZERO
from penstock.testing.change_batches import changes, messages, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered, write

USERS = relation("public", "users", id="int8", name="text", key=("id",))
ORDERS = relation("public", "orders", id="int8", user_id="int8", key=("id",))


def user(id: int, name: str | None = "Ada", lsn: int = 0x5) -> ChangeBatch:
    return changes(USERS, [("insert", {"id": id, "name": name})], lsn=lsn)


def users(*rows: tuple[str, str | None]) -> list[list[tuple[str, str | None]]]:
    expected: list[Row] = [{"id": id, "name": name} for id, name in rows]
    return unordered(expected)


def test_a_new_sink_holds_nothing_and_says_so_every_time(target: SinkUnderTest) -> None:
    sink = target.make()
    assert (sink.prepare() or ZERO) == ZERO
    assert (sink.prepare() or ZERO) == ZERO
    assert (target.make().prepare() or ZERO) == ZERO
    assert target.rows(USERS) == []


def test_the_position_is_the_end_of_the_last_committed_batch(progress_target: SinkUnderTest) -> None:
    first, second = progress_target.next_batch(0x10), progress_target.next_batch(0x20)
    sink = progress_target.make()
    deliver(sink, first, [user(1)])
    assert sink.prepare() == first.end
    deliver(sink, second, [user(2, lsn=0x15)])
    assert sink.prepare() == second.end
    assert progress_target.make().prepare() == second.end


def test_a_batch_without_changes_moves_the_position_too(progress_target: SinkUnderTest) -> None:
    batch = progress_target.next_batch(0x10)
    sink = progress_target.make()
    deliver(sink, batch)
    assert progress_target.make().prepare() == batch.end


def test_a_task_without_changes_is_fine(target: SinkUnderTest) -> None:
    deliver(target.make(), target.next_batch(0x10), [], [user(1)], [])
    assert unordered(target.rows(USERS)) == users(("1", "Ada"))


def test_preparing_again_changes_nothing_that_is_committed(target: SinkUnderTest) -> None:
    sink = target.make()
    deliver(sink, target.next_batch(0x10), [user(1)])
    before = target.rows(USERS)
    sink.prepare()
    assert target.rows(USERS) == before
    deliver(sink, target.next_batch(0x20), [user(2, lsn=0x15)])
    assert unordered(target.rows(USERS)) == users(("1", "Ada"), ("2", "Ada"))


def test_a_batch_that_was_written_and_not_committed_leaves_no_trace(target: SinkUnderTest) -> None:
    sink = target.make()
    deliver(sink, target.next_batch(0x10), [user(1)])
    position = sink.prepare()
    write(sink, target.next_batch(0x20), user(2, lsn=0x15))
    assert target.make().prepare() == position
    assert unordered(target.rows(USERS)) == users(("1", "Ada"))


def test_a_retried_write_is_harmless(target: SinkUnderTest) -> None:
    sink, batch = target.make(), target.next_batch(0x10)
    write(sink, batch, user(1))
    used = write(sink, batch, user(1))
    sink.commit(batch, [used])
    assert unordered(target.rows(USERS)) == users(("1", "Ada"))


def test_a_large_retried_write_is_harmless(target: SinkUnderTest) -> None:
    """Large enough not to travel in the receipt."""
    many = changes(USERS, [("insert", {"id": id, "name": "x" * 500}) for id in range(1000)], lsn=0x5)
    sink, batch = target.make(), target.next_batch(0x10)
    write(sink, batch, many)
    sink.commit(batch, [write(sink, batch, many)])
    assert unordered(target.rows(USERS)) == users(*((str(id), "x" * 500) for id in range(1000)))


def test_the_same_batch_again_changes_nothing(progress_target: SinkUnderTest) -> None:
    rows = [("insert", {"id": 1, "name": "Ada"}), ("update", {"id": 2, "name": "Ada"}, {"id": 1})]
    batch, change = progress_target.next_batch(0x10), changes(USERS, rows, lsn=0x5)
    sink = progress_target.make()
    deliver(sink, batch, [change])
    deliver(sink, batch, [change])
    deliver(progress_target.make(), batch, [change])
    assert unordered(progress_target.rows(USERS)) == users(("2", "Ada"))
    assert progress_target.make().prepare() == batch.end


def test_an_earlier_batch_again_does_not_move_the_position_back(progress_target: SinkUnderTest) -> None:
    first, second = progress_target.next_batch(0x10), progress_target.next_batch(0x20)
    sink = progress_target.make()
    deliver(sink, first, [user(1)])
    deliver(sink, second, [user(2, lsn=0x15)])
    deliver(sink, first, [user(1)])
    assert progress_target.make().prepare() == second.end
    assert unordered(progress_target.rows(USERS)) == users(("1", "Ada"), ("2", "Ada"))


def test_the_same_batch_again_adds_no_row_to_a_table_without_a_key(progress_target: SinkUnderTest) -> None:
    log = relation("public", "log", line="text", identity="n")
    batch, change = progress_target.next_batch(0x10), changes(log, [("insert", {"line": "same"})] * 2, lsn=0x5)
    deliver(progress_target.make(), batch, [change])
    deliver(progress_target.make(), batch, [change])
    assert progress_target.rows(log) == [{"line": "same"}] * 2


def test_several_tables_change_in_one_batch(target: SinkUnderTest) -> None:
    order = changes(ORDERS, [("insert", {"id": 7, "user_id": 1})], lsn=0x5, sequence=2)
    deliver(target.make(), target.next_batch(0x10), [user(1), order], [user(2, lsn=0x6)])
    assert unordered(target.rows(USERS)) == users(("1", "Ada"), ("2", "Ada"))
    assert target.rows(ORDERS) == [{"id": "7", "user_id": "1"}]


def test_receipts_of_one_table_are_applied_in_order(target: SinkUnderTest) -> None:
    inserted = user(1, lsn=0x5)
    updated = changes(USERS, [("update", {"id": 1, "name": "Countess"})], lsn=0x6)
    deleted = changes(USERS, [("delete", None, {"id": 1})], lsn=0x7)
    again = user(1, "Augusta", lsn=0x8)
    deliver(target.make(), target.next_batch(0x10), [inserted], [updated, deleted], [again])
    assert unordered(target.rows(USERS)) == users(("1", "Augusta"))


def test_batches_follow_each_other_over_restarts(target: SinkUnderTest) -> None:
    deliver(target.make(), target.next_batch(0x10), [user(1), user(2, lsn=0x6)])
    update = changes(USERS, [("update", {"id": 1, "name": "Countess"}), ("delete", None, {"id": 2})], lsn=0x15)
    deliver(target.make(), target.next_batch(0x20), [update])
    assert unordered(target.rows(USERS)) == users(("1", "Countess"))


def test_a_sink_pickles_before_and_after_its_first_batch(target: SinkUnderTest) -> None:
    sink = target.make()
    assert type(pickle.loads(pickle.dumps(sink))) is type(sink)
    deliver(sink, target.next_batch(0x10), [user(1)])
    assert pickle.loads(pickle.dumps(sink)).settings == sink.settings


def test_messages_travel_with_the_changes_or_are_left_out(target: SinkUnderTest) -> None:
    sent = [("app", b"\x00\xffbytes"), ("", b"")]
    deliver(target.make(), target.next_batch(0x10), [messages(sent, lsn=0x5), user(1)])
    assert target.messages() == (sent if target.keeps_messages else [])
    assert unordered(target.rows(USERS)) == users(("1", "Ada"))
