from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import SegmentName
from penstock.errors import LogCorrupt
from penstock.lsn import LSN
from tests.changelog.log_scripts import LoggedRow, LogScript, rows_of, write_log

LSNS = st.integers(0, (1 << 64) - 1).map(LSN)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(LSNS, LSNS, st.integers(0, 999_999), st.booleans(), st.booleans())
def test_a_name_reads_as_it_was_written(start: LSN, end: LSN, part: int, complete: bool, changed: bool) -> None:
    name = SegmentName(start, end, part, complete, changed)
    assert SegmentName.parse(str(name)) == name


@pytest.mark.parametrize("text", [
    "", "x.arrow", ".writing-0000000000001000-0000000000001100-000000-c.arrow",
    "0000000000001000-0000000000001100-000000-x.arrow", "0000000000001000-0000000000001100-000000-c.arrow.tmp",
    "000000000000100g-0000000000001100-000000-c.arrow", "0000000000001000-0000000000001100-000000-c.arrow\n",
])  # fmt: skip
def test_other_files_are_not_taken_for_segments(text: str) -> None:
    assert SegmentName.parse(text) is None


def test_names_sort_in_the_order_of_the_log() -> None:
    names = [
        SegmentName(LSN(1), LSN(5), 0, False, True), SegmentName(LSN(1), LSN(5), 1, False, False),
        SegmentName(LSN(1), LSN(6), 2, True, False), SegmentName(LSN(6), LSN(9), 0, True, False),
    ]  # fmt: skip
    assert sorted(names) == names
    assert sorted(map(str, names)) == list(map(str, names))


def small_log(directory: Path) -> tuple[ChangeLog, list[LoggedRow]]:
    scripted = LogScript()
    steps = [("insert", 0, "abc"), ("insert", 1, ""), ("delete", 0, ""), ("truncate", 1, ""), ("message", 0, "m")]
    scripted.transaction(steps, xid=5)
    return write_log(directory, scripted.stream.messages, 1 << 20), scripted.rows


def test_a_segment_that_vanished_says_so(tmp_path: Path) -> None:
    log, _ = small_log(tmp_path)
    ((name,),) = [stretch.segments for stretch in log.contents().stretches]
    log.delete([name])
    with pytest.raises(LogCorrupt, match="missing"):
        log.open(name)


@pytest.mark.parametrize("kept", [0, 1, 7, 100, -1])
def test_a_segment_cut_short_is_damaged(tmp_path: Path, kept: int) -> None:
    log, _ = small_log(tmp_path)
    ((name,),) = [stretch.segments for stretch in log.contents().stretches]
    path = tmp_path / str(name)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(LogCorrupt, match="damaged"):
        log.open(name)


def test_one_flipped_bit_anywhere_is_found_out_or_changes_nothing(tmp_path: Path) -> None:
    log, rows = small_log(tmp_path)
    ((name,),) = [stretch.segments for stretch in log.contents().stretches]
    path = tmp_path / str(name)
    whole = path.read_bytes()
    expected = rows_of(log)
    (times,) = {row.commit_time for row in rows}
    found_out = 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 7
        path.write_bytes(damaged)
        try:
            assert rows_of(log) == expected, f"byte {at}"
            assert log.open(name).last_commit_time == times, f"byte {at}"
        except LogCorrupt:
            found_out += 1
    assert found_out > 1000
