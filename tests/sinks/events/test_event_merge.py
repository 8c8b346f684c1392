from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sinks.events import EVENTS
from penstock.sinks.events import lines as merge
from penstock.sinks.events.lines import merged_lines
from tests.sinks.events.properties import steady

POSITIONS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=12).map(sorted)


def run(positions: list[tuple[int, int]], label: str = "") -> pa.RecordBatch:
    rows = [
        {"commit_lsn": lsn, "sequence": sequence, "line": f"{label}{lsn}.{sequence}"} for lsn, sequence in positions
    ]
    return pa.RecordBatch.from_pylist(rows, EVENTS)


def lines(runs: list[pa.RecordBatch]) -> list[str]:
    text = b"".join(buffer.to_pybytes() for buffer in merged_lines(runs)).decode()
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.mark.parametrize("slice_bytes", [1, 7, 1 << 20])
@steady
@given(runs=st.lists(POSITIONS, max_size=5))
def test_runs_come_out_in_commit_order_and_the_earlier_run_first(
    slice_bytes: int, runs: list[list[tuple[int, int]]]
) -> None:
    labelled = [(lsn, sequence, index) for index, run in enumerate(runs) for lsn, sequence in run]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "SLICE_BYTES", slice_bytes)
        merged = lines([run(positions, f"{index}:") for index, positions in enumerate(runs)])
    assert merged == [f"{index}:{lsn}.{sequence}" for lsn, sequence, index in sorted(labelled)]


def test_a_slice_is_no_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "SLICE_BYTES", 9)
    slices = list(merged_lines([run([(1, 1), (3, 1), (5, 1)]), run([(2, 1), (4, 1), (6, 1)])]))
    assert [buffer.to_pybytes() for buffer in slices] == [b"1.1\n2.1\n3.1\n", b"4.1\n5.1\n6.1\n"]


def test_a_run_may_be_a_part_of_a_larger_one() -> None:
    whole = run([(1, 1), (2, 1), (3, 1), (4, 1)])
    assert lines([whole.slice(2), whole.slice(0, 1)]) == ["1.1", "3.1", "4.1"]
