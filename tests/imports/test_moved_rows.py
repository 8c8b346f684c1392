from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changes import ChangeBatch, Relation
from penstock.imports import moved_rows
from penstock.imports.moved_rows import Keys, distinct, keys_to_read_again, may_lack_values, row_chunks
from penstock.imports.plan import Chunk
from penstock.postgres.connection import Connection
from penstock.testing.change_batches import UNCHANGED, changes, relation

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
PAIRS = relation("public", "pairs", a="text", b="text", doc="text", key=("b", "a"))
WHOLE = relation("public", "whole", id="int8", bio="text", key=("id",), identity="f")


def found(*batches: ChangeBatch, only_key_changes: bool = False) -> list[tuple[str | None, ...]] | None:
    keys = keys_to_read_again(iter(batches), only_key_changes)
    return None if keys is None else tuples(keys)


def tuples(keys: Keys) -> list[tuple[str | None, ...]]:
    return list(zip(*(column.to_pylist() for column in keys), strict=True))


def test_only_updates_that_lack_a_value_are_looked_at() -> None:
    batch = changes(
        USERS,
        [
            ("insert", {"id": 1, "name": "Ada", "bio": "long"}),
            ("update", {"id": 2, "name": "Bob", "bio": UNCHANGED}),
            ("update", {"id": 3, "name": "Cy", "bio": "new"}),
            ("delete", None, {"id": 4}),
            ("truncate",),
            ("update", {"id": 5, "name": UNCHANGED, "bio": None}),
            ("update", {"id": 2, "name": "Rob", "bio": UNCHANGED}),
        ],
    )
    assert found(batch) == [("2",), ("5",)]


def test_it_is_the_new_key_that_is_read_again() -> None:
    batch = changes(USERS, [("update", {"id": 7, "name": "Ada", "bio": UNCHANGED}, {"id": 1})])
    assert found(batch) == [("7",)]


def test_a_second_look_is_for_changes_of_the_key() -> None:
    batch = changes(
        PAIRS,
        [
            ("update", {"a": "1", "b": "x", "doc": UNCHANGED}),
            ("update", {"a": "2", "b": "y", "doc": UNCHANGED}, {"a": "2", "b": "x"}),
            ("update", {"a": "3", "b": "z", "doc": "new"}, {"a": "0", "b": "z"}),
            ("update", {"a": "4", "b": "z", "doc": UNCHANGED}, {"a": "4", "b": "z"}),  # sent since the key is TOASTed
        ],
    )
    assert found(batch) == [("x", "1"), ("y", "2"), ("z", "4")]
    assert found(batch, only_key_changes=True) == [("y", "2")]


def test_a_whole_old_row_has_the_value() -> None:
    old = {"id": 1, "bio": "long"}
    assert found(changes(WHOLE, [("update", {"id": 1, "bio": UNCHANGED}, old)])) is None


def test_nothing_to_read_again_is_none() -> None:
    assert found() is None
    assert found(changes(USERS, [("insert", {"id": 1})])) is None
    assert row_chunks([], 5) == []


KEY = st.tuples(st.sampled_from(["", "a", "b", "c,d", "é"]), st.sampled_from(["", "a", "b", "1"]))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    batches=st.lists(st.lists(st.tuples(KEY, st.booleans()), min_size=1, max_size=10), max_size=5),
    tidy=st.integers(1, 9),
)
def test_each_key_comes_once_in_the_order_of_the_changes(
    batches: list[list[tuple[tuple[str, str], bool]]], tidy: int
) -> None:
    made = [
        changes(PAIRS, [("update", {"a": a, "b": b, "doc": UNCHANGED if lacks else "x"}) for (b, a), lacks in batch])
        for batch in batches
    ]
    expected = list(dict.fromkeys(key for batch in batches for key, lacks in batch if lacks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moved_rows, "_TIDY_EVERY", tidy)
        assert (found(*made) or []) == expected


def keys_of(values: Sequence[str]) -> Keys:
    keys = keys_to_read_again(iter([changes(USERS, [("update", {"id": v, "bio": UNCHANGED}) for v in values])]))
    assert keys is not None
    return keys


def test_chunks_are_numbered_and_bounded_and_hold_each_key_once() -> None:
    results = [keys_of(["1", "2", "3"]), keys_of(["3", "4", "5"])]
    assert row_chunks(results, 8, keys_per_chunk=2) == [
        Chunk(8, "rows", keys=(("1",), ("2",))), Chunk(9, "rows", keys=(("3",), ("4",))), Chunk(10, "rows", keys=(("5",),)),
    ]  # fmt: skip


def test_what_an_executor_found_travels_to_the_driver() -> None:
    keys = pickle.loads(pickle.dumps(keys_of(["1", "2"])))
    assert tuples(distinct([keys, keys_of(["2", "3"])])) == [("1",), ("2",), ("3",)]


@pytest.mark.parametrize(
    ("table", "may"),
    [
        (USERS, True),
        (WHOLE, False),
        (relation("public", "t", id="int8", at="timestamptz", mood="enum", ok="bool", key=("id",)), False),
        (relation("public", "t", id="int8", price="numeric(10,2)", key=("id",)), True),
        (relation("public", "t", id="int8", code="varchar(3)", key=("id",)), True),
        (relation("public", "t", id="int8", some="int4[]", key=("id",)), True),
        (relation("public", "t", id="int8", odd="other", key=("id",)), True),
        (relation("public", "t", name="text", count="int4", key=("name",)), False),
        (relation("public", "t"), False),
    ],
)
def test_a_table_of_fixed_widths_never_lacks_a_value(table: Relation, may: bool) -> None:
    assert may_lack_values(table) is may


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_the_widths_are_fixed_in_postgres(connection: Connection) -> None:
    names = sorted(moved_rows._FIXED_WIDTH - {"enum"})
    rows = connection.execute(
        "select typname::text from pg_type where typname = any(%s) and typlen > 0 "
        "and typnamespace = 'pg_catalog'::regnamespace order by typname collate \"C\"",
        [names],
    ).fetchall()
    assert [name for (name,) in rows] == names
