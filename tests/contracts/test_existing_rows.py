"""``existing_rows``: imports into tables of the target that somebody else has made and filled."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import SinkRefused
from penstock.sinks.contract import SinkContext
from penstock.sinks.verifying import VerifiableTarget
from penstock.testing.change_batches import changes, relation
from tests.contracts.sink_under_test import Row, SinkUnderTest, deliver, unordered
from tests.contracts.table_import import TableImport

USERS = relation("public", "users", id="int8", name="text", key=("id",), oid=7)
BAG = relation("public", "users", id="int8", name="text", identity="f", oid=7)
WITH_NOTE = relation("public", "users", id="int8", name="text", note="text", key=("id",), oid=7)


@pytest.fixture
def filled(table_target: SinkUnderTest) -> SinkUnderTest:
    """Rows 1 and 2 are of somebody else, with a column that the source has not."""
    table_target.execute("create schema if not exists public")
    table_target.execute("create table public.users (name text, id bigint, note text)")
    table_target.execute("insert into public.users values ('theirs', 1, 'a'), ('theirs', 2, 'b')")
    return table_target


def user(id: int, name: str = "ours") -> dict[str, Any]:
    return {"id": id, "name": name}


def found(target: SinkUnderTest) -> list[tuple[str | None, ...]]:
    return sorted((row["id"], row["name"], row["note"]) for row in target.rows(WITH_NOTE))


def copy_into(target: SinkUnderTest, choice: str, job: int = 1, **members: Any) -> TableImport:
    target.settings = {"existing_rows": choice}
    return TableImport(target, target.make(), USERS, job, **members)


def test_they_are_refused_and_the_message_names_the_setting(filled: SinkUnderTest) -> None:
    with pytest.raises(SinkRefused) as refused:
        copy_into(filled, "refuse").begin()
    assert "`existing_rows: keep`" in (refused.value.advice or "")
    assert len(filled.rows(USERS)) == 2


def test_they_are_replaced(filled: SinkUnderTest) -> None:
    copy_into(filled, "replace").whole(user(2), user(3), upto=0x10)
    assert unordered(filled.rows(USERS)) == unordered([{"id": "2", "name": "ours"}, {"id": "3", "name": "ours"}])


def test_they_stay_beside_the_sources_which_win_by_key(filled: SinkUnderTest) -> None:
    copy_into(filled, "keep").whole(user(2), user(3), upto=0x10)
    assert found(filled) == [("1", "theirs", "a"), ("2", "ours", "b"), ("3", "ours", None)]


def test_a_row_that_is_deleted_while_it_is_copied_goes(filled: SinkUnderTest) -> None:
    copy = copy_into(filled, "keep")
    copy.begin()
    copy.rows(1, user(2), user(3))
    copy.replay(0x10, [("delete", None, {"id": 1}), ("delete", None, {"id": 3}), ("insert", user(4))])
    copy.sink = filled.make()
    copy.replay(0x20, [("delete", None, {"id": 4}), ("insert", user(5))])
    copy.replay(0x20, [("delete", None, {"id": 2})])  # once more, as after a kill: the sink has it
    copy.sink = filled.make()
    copy.end(0x20)
    assert found(filled) == [("2", "ours", "b"), ("5", "ours", None)]


def test_a_truncate_while_it_is_copied_takes_all(filled: SinkUnderTest) -> None:
    copy = copy_into(filled, "keep")
    copy.begin()
    copy.rows(1, user(2))
    copy.replay(0x10, [("delete", None, {"id": 9}), ("truncate",), ("insert", user(3))])
    copy.end(0x10)
    assert found(filled) == [("3", "ours", None)]


def test_changes_come_to_the_sources_rows_and_leave_the_others(filled: SinkUnderTest) -> None:
    copy = copy_into(filled, "keep")
    copy.whole(user(2), user(3), upto=0x10)
    filled.position = type(filled.position)(0x10)
    later = [("update", user(2, "new")), ("delete", None, {"id": 3}), ("insert", user(4))]
    deliver(copy.sink, filled.next_batch(0x20), [changes(USERS, later, lsn=0x15)])
    assert found(filled) == [("1", "theirs", "a"), ("2", "new", "b"), ("4", "ours", None)]


def test_a_later_import_keeps_them_again(filled: SinkUnderTest) -> None:
    """Row 3 was deleted in the source while nobody looked: nothing tells it from rows of others, so it stays."""
    copy_into(filled, "keep").whole(user(2), user(3), upto=0x10)
    copy_into(filled, "keep", job=2, again=True).whole(user(2, "new"), upto=0x20)
    assert found(filled) == [("1", "theirs", "a"), ("2", "new", "b"), ("3", "ours", None)]


def test_they_stay_when_the_table_is_renamed_while_it_is_copied_again(filled: SinkUnderTest) -> None:
    copy_into(filled, "keep").whole(user(2), upto=0x10)
    copy = copy_into(filled, "keep", job=2, again=True)
    copy.begin()
    copy.rows(1, user(2))
    copy.replay(0x20, [("insert", user(3))], replace(USERS, table="people"))
    copy.end(0x20)
    assert unordered(filled.rows(replace(USERS, table="people"))) == unordered(
        [{"id": "1", "name": "theirs"}, {"id": "2", "name": "ours"}, {"id": "3", "name": "ours"}]
    )


def test_a_later_import_without_the_setting_replaces_them(filled: SinkUnderTest) -> None:
    copy_into(filled, "keep").whole(user(2), upto=0x10)
    copy_into(filled, "replace", job=2, again=True).whole(user(3), upto=0x20)
    assert unordered(filled.rows(USERS)) == unordered([{"id": "3", "name": "ours"}])


def test_an_import_that_another_one_follows_leaves_nothing_behind(filled: SinkUnderTest) -> None:
    copy = copy_into(filled, "keep")
    copy.begin()
    copy.replay(0x10, [("delete", None, {"id": 1})])
    copy_into(filled, "keep", job=2).whole(user(3), upto=0x20)
    assert found(filled) == [("1", "theirs", "a"), ("2", "theirs", "b"), ("3", "ours", None)]
    leftovers: list[Row] = []
    for job in (1, 2):
        for suffix in ("", "__deleted"):
            leftovers += filled.rows(relation("public", f"users__import_{job}{suffix}"))
    assert leftovers == []


def test_without_a_key_they_cannot_be_kept(filled: SinkUnderTest) -> None:
    filled.settings = {"existing_rows": "keep"}
    with pytest.raises(SinkRefused, match="the table has none"):
        TableImport(filled, filled.make(), BAG).begin()


def test_a_table_that_the_sink_made_is_replaced_as_ever(table_target: SinkUnderTest) -> None:
    copy_into(table_target, "keep").whole(user(1), user(2), upto=0x10)
    copy_into(table_target, "keep", job=2, again=True).whole(user(2), upto=0x20)
    assert [row["id"] for row in table_target.rows(USERS)] == ["2"]


def test_the_record_says_to_verify_which_tables_are_shared(filled: SinkUnderTest) -> None:
    copy_into(filled, "keep").whole(user(2), upto=0x10)
    made = relation("public", "made", id="int8", key=("id",), oid=8)
    TableImport(filled, filled.make(), made, job=2).whole({"id": 1}, upto=0x10)
    filled.close()
    with closing(verified(filled)) as target:
        assert (target.has_rows_of_others(USERS), target.has_rows_of_others(made)) == (True, False)


def verified(target: SinkUnderTest) -> VerifiableTarget:
    verification = target.new_sink().verification(SinkContext())
    assert verification is not None
    return verification
