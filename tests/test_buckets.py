from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changes.buckets import hash_text, in_bucket, linked_keys
from penstock.testing.change_batches import changes
from tests.table_histories import KEYED, SINGLE, History, histories

steady = settings(max_examples=120, derandomize=True, deadline=None)


@steady
@given(histories(), st.integers(1, 5))
def test_every_change_is_in_one_bucket_and_a_truncate_in_all(history: History, buckets: int) -> None:
    batch = changes(history.table, history.changes)
    linked = linked_keys(batch)
    times = sum(
        (in_bucket(batch, bucket, buckets, linked).astype(int) for bucket in range(buckets)), np.zeros(len(batch))
    )
    expected = [buckets if change[0] == "truncate" else 1 for change in history.changes]
    assert times.tolist() == expected


@steady
@given(histories(KEYED), st.integers(2, 5))
def test_all_changes_of_a_key_and_of_the_keys_it_turned_into_meet(history: History, buckets: int) -> None:
    batch = changes(history.table, history.changes)
    linked = linked_keys(batch)
    bucket_of: dict[tuple[object, ...], set[int]] = {}
    for bucket in range(buckets):
        for row in np.flatnonzero(in_bucket(batch, bucket, buckets, linked)).tolist():
            _op, new, old = (*history.changes[row], None, None)[:3]
            for values in (new, old):
                if values:
                    bucket_of.setdefault(tuple(values[name] for name in history.table.key), set()).add(bucket)
    assert all(len(found) == 1 for found in bucket_of.values())


@steady
@given(st.lists(st.none() | st.text(max_size=200), max_size=20), st.integers(0, 5))
def test_equal_texts_have_equal_hashes_wherever_they_stand(texts: list[str | None], before: int) -> None:
    alone = [int(hash_text(pa.array([text], pa.string()))[0]) for text in texts]
    together = pa.array([*(["x"] * before), *texts], pa.string())
    assert hash_text(together)[before:].tolist() == alone
    assert hash_text(together.slice(before)).tolist() == alone


def test_hashes_tell_texts_apart_and_spread_them() -> None:
    texts = [str(number) for number in range(20_000)] + ["ab", "ba", "a" * 64, "a" * 65, "a" * 128, "a" * 129]
    hashes = hash_text(pa.array(texts))
    assert len(np.unique(hashes)) == len(texts)
    sizes = np.bincount((hashes % np.uint64(8)).astype(np.int64), minlength=8)
    assert sizes.min() > 0.8 * len(texts) / 8


@pytest.mark.parametrize("buckets", [2, 3, 7])
def test_hashes_are_the_same_in_every_process(buckets: int) -> None:
    """Executors divide the work by them without talking to each other."""
    assert (hash_text(pa.array(["1", "2", "key", "ünï"])) % np.uint64(buckets)).tolist() == {
        2: [1, 0, 1, 0], 3: [0, 1, 0, 1], 7: [1, 4, 5, 6],
    }[buckets]  # fmt: skip


def test_a_row_that_does_not_change_its_key_is_not_linked() -> None:
    batch = changes(SINGLE, [("update", {"id": "1", "note": "x"}, {"id": "1"})])
    assert linked_keys(batch).tolist() == []
