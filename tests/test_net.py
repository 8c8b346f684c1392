from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changes.batch import ChangeBatch, Relation
from penstock.changes.buckets import in_bucket, linked_keys
from penstock.changes.net import NetChanges, codes, net, with_values_from_batch
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.testing.change_batches import UNCHANGED, changes
from tests.import_histories import ImportHistory, import_histories, parts_of
from tests.table_histories import FULL, SINGLE, WITHOUT_KEY, History, Row, Rows, bag, histories

steady = settings(max_examples=150, derandomize=True, deadline=None)


class NoRowToKeepFrom(Exception):
    """What a sink says: a value was not sent again, and there is no row that has it."""


def applied(start: Rows, several: list[NetChanges]) -> Rows:
    """What NetChanges' docstring tells its callers to do."""
    state = list(start)
    truncated_at = max((change.truncated_at for change in several if change.truncated_at), default=None)
    if truncated_at is not None:
        several = [change for change in several if change.last_at >= truncated_at]
        state = []
    for change in several:
        state = _applied_one(state, change)
    return state


def _applied_one(state: Rows, change: NetChanges, *, may_exist: bool = False) -> Rows:
    table = change.relation
    names = [column.name for column in table.columns]
    upserts = _rows(names, change.upserts)
    absent = set()
    for index, mask in change.unchanged.items():
        origins = _rows(list(table.key), change.kept_from)
        for place in np.flatnonzero(mask).tolist():
            found = _by_key(table, state, origins[place])
            if not may_exist and not found:
                raise NoRowToKeepFrom
            assert may_exist or len(found) == 1
            if found:
                upserts[place][names[index]] = found[0][names[index]]
            else:
                absent.add(place)
    upserts = [row for place, row in enumerate(upserts) if place not in absent]
    gone = _rows(list(table.key), change.deletes)
    state = [row for row in state if {name: row[name] for name in table.key} not in gone] if table.key else list(state)
    for row in _rows(names, change.removed):
        state.remove(row)
    return state + upserts


def _rows(names: list[str], columns: object) -> Rows:
    values = [column.to_pylist() for column in columns]  # type: ignore[attr-defined]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _by_key(table: Relation, state: Rows, key: Row) -> Rows:
    return [row for row in state if {name: row[name] for name in table.key} == key]


def replayed(state: Rows, batches: list[ChangeBatch]) -> Rows:
    """What ``may_exist`` is for: changes over a table that may have seen them."""
    for batch in batches:
        reduced = net(batch, may_exist=True)
        state = _applied_one([] if reduced.truncated_at else state, reduced, may_exist=True)
    return state


def batch_of(history: History) -> ChangeBatch:
    return changes(history.table, history.changes, lsn=[0x200 + at // 3 for at in range(history.length)])


def chunks_of(batch: ChangeBatch, cuts: list[int]) -> list[ChangeBatch]:
    places = sorted({0, len(batch), *(cut % (len(batch) + 1) for cut in cuts)})
    return [batch.take(np.arange(a, b)) for a, b in itertools.pairwise(places)]


def by_bucket(chunks: list[ChangeBatch], buckets: int) -> list[list[ChangeBatch]]:
    linked = np.unique(np.concatenate([np.empty(0, np.uint64), *(linked_keys(chunk) for chunk in chunks)]))
    divided = [
        [c.take(np.flatnonzero(in_bucket(c, bucket, buckets, linked))) for c in chunks] for bucket in range(buckets)
    ]
    return [[chunk for chunk in some if len(chunk)] for some in divided]


@steady
@given(histories())
def test_the_net_of_a_batch_gives_what_its_changes_give_one_by_one(history: History) -> None:
    if history.changes:
        assert bag(applied(history.start, [net(batch_of(history))])) == bag(history.end)


@steady
@given(histories(), st.lists(st.integers(0, 100), max_size=4))
def test_values_filled_in_from_the_batch_come_to_the_same(history: History, cuts: list[int]) -> None:
    filled = [with_values_from_batch(chunk) for chunk in chunks_of(batch_of(history), cuts) if len(chunk)]
    assert bag(applied(history.start, [net(chunk) for chunk in filled])) == bag(history.end)


@steady
@given(histories((WITHOUT_KEY,)))
def test_a_table_without_a_key_keeps_count_of_equal_rows(history: History) -> None:
    if history.changes:
        assert bag(applied(history.start, [net(batch_of(history))])) == bag(history.end)


@steady
@given(histories(), st.lists(st.integers(0, 100), max_size=4), st.integers(1, 4))
def test_chunks_and_buckets_come_to_the_same(history: History, cuts: list[int], buckets: int) -> None:
    divided = by_bucket(chunks_of(batch_of(history), cuts), buckets)
    several = [net(chunk) for some in divided for chunk in some]
    assert bag(applied(history.start, several)) == bag(history.end)


@settings(steady, max_examples=400)
@given(import_histories(), st.lists(st.integers(0, 100), max_size=3), st.lists(st.integers(0, 100), max_size=3))
def test_changes_replayed_over_rows_read_at_any_time_since_converge(
    imported: ImportHistory, cuts: list[int], later_cuts: list[int]
) -> None:
    table = imported.table
    state = replayed(imported.seen, parts_of(table, imported.while_read, 0x100, cuts))
    if imported.seen_again:
        state = replayed(state, [changes(table, [("read", row) for row in imported.seen_again])])
    state = replayed(state, parts_of(table, imported.afterwards, 0x200, later_cuts))
    assert bag(state) == bag(imported.history.end)


@steady
@given(histories())
def test_one_row_per_key_and_a_delete_for_no_key_twice(history: History) -> None:
    if history.changes:
        reduced = net(batch_of(history))
        key = [column.name for column in history.table.columns]
        keys = Counter(tuple(row[name] for name in history.table.key) for row in _rows(key, reduced.upserts))
        assert set(keys.values()) <= {1}
        deletes = Counter(tuple(row.values()) for row in _rows(list(history.table.key), reduced.deletes))
        assert set(deletes.values()) <= {1}


@settings(steady, max_examples=25)
@given(histories() | histories((WITHOUT_KEY,)), st.lists(st.integers(0, 100), max_size=3), st.integers(1, 3))
def test_duckdb_ends_where_the_source_does(history: History, cuts: list[int], buckets: int) -> None:
    chunks = chunks_of(batch_of(history), cuts)
    tasks = by_bucket(chunks, buckets) if history.table.key else [[chunk for chunk in chunks if len(chunk)]]
    with TemporaryDirectory() as directory:
        path = Path(directory, "mirror.duckdb")
        sink = DuckDBSink(DuckDBSink.Settings(name="mirror", path=path))
        sink.prepare()
        loaded = [changes(history.table, [("insert", row) for row in history.start])] if history.start else []
        first, second = (Batch(n, LSN(a), LSN(b), f"{directory}/{n}") for n, a, b in ((0, 0, 0x180), (1, 0x180, 0x300)))
        sink.commit(first, [sink.write(first, iter(loaded))])
        sink.commit(second, [sink.write(second, iter(task)) for task in tasks])
        assert bag(mirrored(path, history.table)) == bag(history.end)


def mirrored(path: Path, table: Relation) -> Rows:
    with duckdb.connect(path, read_only=True) as connection:
        if not connection.execute("from duckdb_tables() where table_name = ?", [table.table]).fetchall():
            return []
        found = connection.execute(f"from {table.schema}.{table.table}")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def test_a_value_is_filled_in_from_an_earlier_change_of_the_same_row_only() -> None:
    batch = changes(
        SINGLE,
        [
            ("update", {"id": "1", "note": "a", "bio": "of one"}),
            ("update", {"id": "2", "note": "b", "bio": UNCHANGED}, {"id": "1"}),
            ("insert", {"id": "1", "note": "c", "bio": UNCHANGED}),
            ("update", {"id": "3", "note": "d", "bio": UNCHANGED}),
        ],
    )
    filled = with_values_from_batch(batch)
    assert filled.new[2].to_pylist() == ["of one", "of one", None, None]
    assert filled.unchanged[2].tolist() == [False, False, True, True]


def test_a_value_that_moved_away_is_not_taken_for_the_row_that_moved_in() -> None:
    """Two rows swap keys by way of a third, and TOAST values are not sent: each keeps its own."""
    start: Rows = [{"id": "1", "note": "a", "bio": "of one"}, {"id": "2", "note": "b", "bio": "of two"}]
    batch = changes(
        SINGLE,
        [
            ("update", {"id": "1", "note": "a", "bio": "new of one"}),
            ("update", {"id": "t", "note": "a", "bio": UNCHANGED}, {"id": "1"}),
            ("update", {"id": "1", "note": "b", "bio": UNCHANGED}, {"id": "2"}),
            ("update", {"id": "2", "note": "a", "bio": UNCHANGED}, {"id": "t"}),
        ],
    )
    expected: Rows = [{"id": "1", "note": "b", "bio": "of two"}, {"id": "2", "note": "a", "bio": "new of one"}]
    assert bag(applied(start, [net(batch)])) == bag(expected)


def test_an_unchanged_value_is_followed_through_a_chain_of_keys() -> None:
    start: Rows = [{"id": "1", "note": None, "bio": "kept"}]
    moves = [("update", {"id": b, "note": b, "bio": UNCHANGED}, {"id": a}) for a, b in itertools.pairwise("1234")]
    reduced = net(changes(SINGLE, moves))
    assert applied(start, [reduced]) == [{"id": "4", "note": "4", "bio": "kept"}]
    assert [column.to_pylist() for column in reduced.kept_from] == [["1"]]


def test_the_old_row_of_replica_identity_full_fills_what_was_not_sent() -> None:
    old = {"id": "1", "note": "a", "bio": "long"}
    reduced = net(changes(FULL, [("update", {"id": "1", "note": "b", "bio": UNCHANGED}, old)]))
    assert not reduced.unchanged
    assert [column.to_pylist() for column in reduced.upserts] == [["1"], ["b"], ["long"]]


def test_a_truncate_voids_what_came_before_it() -> None:
    reduced = net(changes(SINGLE, [("insert", {"id": "1"}), ("truncate",), ("insert", {"id": "2"})], sequence=5))
    assert reduced.truncated_at == (0x100, 6)
    assert reduced.last_at == (0x100, 7)
    assert reduced.upserts[0].to_pylist() == ["2"]


def test_identity_restarts_if_any_truncate_of_the_batch_says_so() -> None:
    assert net(changes(SINGLE, [("truncate restart identity",), ("truncate",)])).restarts_identity
    assert not net(changes(SINGLE, [("truncate",), ("insert", {"id": "1"})])).restarts_identity


def test_a_batch_that_ends_with_a_truncate_leaves_nothing() -> None:
    reduced = net(changes(SINGLE, [("insert", {"id": "1"}), ("truncate",)]))
    assert reduced.upsert_count == 0
    assert reduced.truncated_at == reduced.last_at


@pytest.mark.parametrize("wide", [False, True])
def test_codes_are_equal_just_where_all_columns_are(wide: bool) -> None:
    """Wide: so many distinct values that the product of their counts does not fit 64 bits."""
    width = 9 if wide else 2
    count = 400
    columns = [
        changes(SINGLE, [("insert", {"id": (row * (at + 1)) % 199}) for row in range(count)]).new[0]
        for at in range(width)
    ]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    coded = codes(columns).tolist()
    assert len(set(coded)) == len(set(rows))
    assert len(set(zip(coded, rows, strict=True))) == len(set(rows))
