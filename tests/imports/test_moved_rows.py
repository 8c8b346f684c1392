from __future__ import annotations

import json
import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changes.batch import ChangeBatch, Relation
from penstock.changes.toast import FIXED_WIDTH
from penstock.imports import moved_rows
from penstock.imports.moved_rows import (
    Keys,
    distinct,
    key_changes,
    keys_to_read_again,
    may_lack_values,
    moved_on,
    row_chunks,
)
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.postgres.reading.chunks import Chunk
from penstock.testing.change_batches import UNCHANGED, changes, relation

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
PAIRS = relation("public", "pairs", a="text", b="text", doc="text", key=("b", "a"))
WHOLE = relation("public", "whole", id="int8", bio="text", key=("id",), identity="f")


def found(*batches: ChangeBatch) -> list[tuple[str | None, ...]] | None:
    keys = keys_to_read_again(iter(batches))
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
    changed = key_changes(iter([batch]))
    assert changed is not None
    assert (tuples(changed[0]), tuples(changed[1])) == ([("x", "2")], [("y", "2")])


def moves(*pairs: tuple[str, str]) -> ChangeBatch:
    return changes(USERS, [("update", {"id": new, "bio": UNCHANGED}, {"id": old}) for old, new in pairs])


def where(asked: Sequence[str], *batches: ChangeBatch) -> list[str | None]:
    """Each batch as another executor finds it."""
    moved = moved_on(keys_of(asked), [changed for batch in batches if (changed := key_changes(iter([batch])))])
    return [] if moved is None else [key for (key,) in tuples(moved)]


def test_a_second_look_is_for_the_rows_that_were_read_and_no_others() -> None:
    """Or it would never end where keys change all the time."""
    assert where(["1", "2"], moves(("1", "11"), ("3", "13"))) == ["11"]
    assert where(["1", "2"], moves(("3", "13"))) == []
    assert where(["1", "2"]) == []


def test_a_row_is_followed_through_all_its_keys_whoever_found_them() -> None:
    assert where(["1"], moves(("5", "6"), ("7", "8")), moves(("1", "5"), ("6", "7"))) == ["6", "8", "5", "7"]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    asked=st.sets(st.integers(0, 6), min_size=1),
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] != pair[1]), max_size=8),
    cut=st.integers(0, 8),
)
def test_whatever_moves_where_a_row_is_found_again(asked: set[int], pairs: list[tuple[int, int]], cut: int) -> None:
    now = {key: {key} for key in asked}  # for each row, the keys that it may have
    for old, new in pairs:
        for keys in now.values():
            if old in keys:
                keys.add(new)
    texts = [(str(old), str(new)) for old, new in pairs]
    moved = where([str(key) for key in sorted(asked)], *(moves(*some) for some in (texts[:cut], texts[cut:]) if some))
    assert {int(key) for keys in now.values() for key in keys} <= {*asked, *(int(key or 0) for key in moved)}
    assert not pairs or set(moved) <= {new for _, new in texts}


def test_a_whole_old_row_has_the_value() -> None:
    old = {"id": 1, "bio": "long"}
    assert found(changes(WHOLE, [("update", {"id": 1, "bio": UNCHANGED}, old)])) is None


def test_nothing_to_read_again_is_none() -> None:
    assert found() is None
    assert found(changes(USERS, [("insert", {"id": 1})])) is None
    assert key_changes(iter([changes(USERS, [("update", {"id": 1, "bio": UNCHANGED})])])) is None
    assert row_chunks([], 5, LSN(1)) == []


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
    assert row_chunks(results, 8, LSN(7), keys_per_chunk=2) == [
        Chunk(8, "rows", keys=(("1",), ("2",)), after=LSN(7)), Chunk(9, "rows", keys=(("3",), ("4",)), after=LSN(7)),
        Chunk(10, "rows", keys=(("5",),), after=LSN(7)),
    ]  # fmt: skip


def test_a_chunk_survives_the_queue_with_the_place_that_it_belongs_to() -> None:
    (chunk,) = row_chunks([keys_of(["1"])], 8, LSN(7))
    again = Chunk.from_json(json.loads(json.dumps(chunk.to_json())))
    assert again == chunk
    assert isinstance(again.after, LSN)


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
    names = sorted(FIXED_WIDTH - {"enum"})
    rows = connection.execute(
        "select typname::text from pg_type where typname = any(%s) and typlen > 0 "
        "and typnamespace = 'pg_catalog'::regnamespace order by typname collate \"C\"",
        [names],
    ).fetchall()
    assert [name for (name,) in rows] == names
