from __future__ import annotations

import pytest

from penstock.changes.batch import DELETE, INSERT, MESSAGE, MESSAGES, OLD_FULL, OLD_KEY, OLD_NONE, TRUNCATE, UPDATE
from penstock.testing.change_batches import UNCHANGED, changes, column, messages, relation

USERS = relation("public", "users", id="int8", name="text", key=("id",))


def test_a_batch_holds_what_it_was_made_of() -> None:
    batch = changes(
        USERS,
        [
            ("insert", {"id": 1, "name": "Ada"}),
            ("update", {"id": 2, "name": UNCHANGED}, {"id": 1}),
            ("delete", None, {"id": 2}),
            ("truncate",),
        ],
        lsn=0x100,
        sequence=5,
    )
    assert batch.op.tolist() == [INSERT, UPDATE, DELETE, TRUNCATE]
    assert batch.commit_lsn.tolist() == [0x100] * 4
    assert batch.sequence.tolist() == [5, 6, 7, 8]
    assert [array.to_pylist() for array in batch.new] == [["1", "2", None, None], ["Ada", None, None, None]]
    assert [array.to_pylist() for array in batch.old] == [[None, "1", "2", None], [None] * 4]
    assert batch.old_kind.tolist() == [OLD_NONE, OLD_KEY, OLD_KEY, OLD_NONE]
    assert {index: mask.tolist() for index, mask in batch.unchanged.items()} == {1: [False, True, False, False]}


def test_the_identity_decides_what_an_old_row_is() -> None:
    full = relation("public", "whole", a="text", b="bool", identity="f")
    batch = changes(full, [("delete", None, {"a": None, "b": True})])
    assert batch.old_kind.tolist() == [OLD_FULL]
    assert [array.to_pylist() for array in batch.old] == [[None], ["t"]]
    assert [c.in_identity for c in full.columns] == [True, True]
    assert [c.in_identity for c in USERS.columns] == [True, False]
    assert [c.in_identity for c in relation("public", "n", a="text", key=("a",), identity="n").columns] == [False]


def test_types_are_read_as_postgres_writes_them() -> None:
    assert (column("c", "numeric(10,2)").base, column("c", "numeric(10,2)").modifier) == ("numeric", (10 << 16 | 2) + 4)
    assert (column("c", "varchar(20)").type_oid, column("c", "varchar(20)").modifier) == (1043, 24)
    array = column("c", "int4[]")
    assert (array.base, array.element, array.type_name, array.modifier) == ("array", "int4", "int4[]", -1)
    with pytest.raises(ValueError, match="not a type"):
        column("c", "")


def test_columns_with_names_that_are_no_keywords_go_into_a_mapping() -> None:
    odd = relation("s", "t", {"drop table; --": "text", "key": "int8"}, more="bool", key=("key",))
    assert [c.name for c in odd.columns] == ["drop table; --", "key", "more"]
    assert odd.key == ("key",)


def test_a_slip_in_a_columns_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="nmae"):
        changes(USERS, [("insert", {"nmae": "Ada"})])


def test_messages_are_changes_of_their_own_relation() -> None:
    batch = messages([("prefix", b"\x01\xff")])
    assert batch.relation is MESSAGES
    assert batch.op.tolist() == [MESSAGE]
    assert [array.to_pylist() for array in batch.new] == [["prefix"], ["\\x01ff"]]
