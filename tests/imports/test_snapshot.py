from __future__ import annotations

import numpy as np
import pytest

from penstock.postgres.reading.read_chunk import seen_by


@pytest.mark.parametrize(
    ("snapshot", "xids", "seen"),
    [
        ("100:100:", [99, 100, 101], [True, False, False]),
        ("100:105:100,103", [99, 100, 101, 103, 104, 105], [True, False, True, False, True, False]),
    ],
)
def test_a_snapshot_sees_what_was_committed_before_it_and_not_what_was_running(
    snapshot: str, xids: list[int], seen: list[bool]
) -> None:
    assert seen_by(snapshot, np.array(xids, np.uint32)).tolist() == seen


def test_ids_in_the_wal_have_32_bits_and_wrap_around() -> None:
    epoch = 1 << 32
    xids = np.array([2**32 - 5, 2**32 - 1, 3, 4, 5], np.uint32)
    assert seen_by(f"{2 * epoch - 5}:{2 * epoch + 5}:{2 * epoch + 4}", xids).tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_nothing_to_ask_for_is_no_error() -> None:
    assert seen_by("1:1:", np.array([], np.uint32)).tolist() == []
