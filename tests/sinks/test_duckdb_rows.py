"""Which row of the DuckDB file a change concerns, and what is written where that is in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SinkRefused, UnrepresentableValue
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.sinks.duckdb_files import Lake

MOMENTS = relation("public", "moments", at="timestamptz", seen="timestamptz", key=("at",))
USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
PLAIN, INFINITE = "2020-01-01 00:00:00+00", "infinity"


@pytest.mark.parametrize(
    "change",
    [
        ("insert", {"at": INFINITE}),
        ("update", {"at": INFINITE}),
        ("update", {"at": PLAIN}, {"at": INFINITE}),
        ("delete", None, {"at": INFINITE}),
    ],
)
def test_a_key_that_cannot_be_held_stops_the_sink_though_values_become_null(
    tmp_path: Path, change: tuple[object, ...]
) -> None:
    lake = Lake(tmp_path, unrepresentable="null")
    lake.deliver(changes(MOMENTS, [("insert", {"at": PLAIN, "seen": INFINITE})]))
    with pytest.raises(UnrepresentableValue, match="part of the key") as stopped:
        lake.deliver(changes(MOMENTS, [change], lsn=0x1100))
    assert "unrepresentable: {tables: {public.moments: {at: text}}}" in (stopped.value.advice or "")
    assert lake.rows("select seen from public.moments") == [(None,)]


def test_an_unchanged_toast_value_of_a_row_that_is_not_there_stops_the_sink(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada", "bio": "long"})]))
    touched = [("update", {"id": id, "name": "touched", "bio": UNCHANGED}) for id in (1, 7)]
    with pytest.raises(SinkRefused, match=r"public\.users where id = 7 keeps a value of bio") as refused:
        lake.deliver(changes(USERS, touched, lsn=0x1100))
    assert "itself || ''" in (refused.value.advice or "")
    assert lake.rows("from public.users") == [(1, "Ada", "long")]


def test_a_toast_value_written_anew_after_the_touch_lets_the_sink_go_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    rows = [
        ("update", {"id": 7, "name": "touched", "bio": UNCHANGED}),
        ("update", {"id": 7, "name": "touched", "bio": "written anew"}),
    ]
    lake.deliver(changes(USERS, rows))
    assert lake.rows("from public.users") == [(7, "touched", "written anew")]


BAG = relation("public", "bag", i="interval", f="float8", many="float4[]", identity="f")
UNLIKE = [
    {"i": "1 mon", "f": "1", "many": "{1}"}, {"i": "30 days", "f": "1", "many": "{1}"},
    {"i": "1 day", "f": "0", "many": "{0}"}, {"i": "1 day", "f": "-0", "many": "{0}"},
    {"i": "1 day", "f": "0", "many": "{-0}"}, {"i": "24:00:00", "f": "0", "many": "{0}"},
]  # fmt: skip


@pytest.mark.parametrize("gone", range(len(UNLIKE)))
def test_without_a_key_rows_that_duckdb_calls_equal_are_told_apart(tmp_path: Path, gone: int) -> None:
    lake = Lake(tmp_path)
    lake.deliver(changes(BAG, [("insert", row) for row in UNLIKE]))
    before = lake.rows("select i::varchar, f::varchar, many::varchar from public.bag")
    lake.deliver(changes(BAG, [("delete", None, UNLIKE[gone])], lsn=0x1100))
    after = lake.rows("select i::varchar, f::varchar, many::varchar from public.bag")
    assert sorted(after) == sorted(before[:gone] + before[gone + 1 :])


def test_without_a_key_each_of_several_unlike_rows_goes_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(changes(BAG, [("insert", row) for row in UNLIKE * 2]))
    lake.deliver(changes(BAG, [("delete", None, row) for row in UNLIKE], lsn=0x1100))
    assert lake.rows("select count(distinct (i::varchar, f::varchar, many::varchar)), count(*) from public.bag") == [
        (len(UNLIKE), len(UNLIKE))
    ]
