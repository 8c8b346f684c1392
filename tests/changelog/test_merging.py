"""Merging small segments: the log has fewer files, and every reader reads what it would have read without it."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog import upkeep as merging
from penstock.changelog.log import ChangeLog, Stretch
from penstock.changelog.segment import SegmentFile, SegmentName
from penstock.changelog.units import change_batches, plan, truncated_since
from penstock.changelog.upkeep import FEWEST, GRACE_SECONDS, Merger, Retention, group_to_merge
from penstock.errors import LogError, LogFull, LogGap, SegmentMissing
from penstock.lsn import LSN
from penstock.storage import Directory
from penstock.testing.conditions import wait_until
from tests.changelog.log_scripts import START, LoggedRow, LogScript, log_scripts, rows_of, write_log

steady = settings(max_examples=60, derandomize=True, deadline=None)

LARGE = 1 << 30


def small_segments(directory: Path, count: int = 30) -> ChangeLog:
    """As many segments as transactions, each with a row of one of three tables."""
    scripted = LogScript()
    for xid in range(1, count + 1):
        scripted.transaction([("insert", xid, "")], xid)
    log = in_small_segments(directory, scripted)
    assert len(log.contents().stretches) == count
    return log


def in_small_segments(directory: Path, scripted: LogScript) -> ChangeLog:
    """One of each transaction."""
    messages = scripted.stream.messages
    return write_log(directory, messages, 1 << 20, cuts=list(range(len(messages))))


def merger_of(log: ChangeLog, union_bytes: int = LARGE) -> Merger:
    return Merger(log.directory.uri, union_bytes, threading.Lock())


def merge_all(log: ChangeLog, union_bytes: int = LARGE, clock: float = 1000.0) -> Merger:
    """Until there is no group left. The segments that were merged are still there."""
    merger = merger_of(log, union_bytes)
    while merger.step(clock):
        pass
    return merger


def files(log: ChangeLog) -> list[str]:
    return sorted(entry.name for entry in log.directory.entries())


def all_rows(log: ChangeLog) -> list[LoggedRow]:
    return sorted(
        (row for rows in rows_of(log) for row in rows), key=lambda row: (row.relation.oid, row.commit_lsn, row.sequence)
    )


def stretches(*sizes: int, schema_changes: tuple[int, ...] = (), parts: tuple[int, ...] = ()) -> list[Stretch]:
    made = []
    for number, size in enumerate(sizes):
        start, end = LSN(10 * number), LSN(10 * number + 10)
        name = SegmentName(start, end, 1 if number in parts else 0, True, number in schema_changes)
        first = (SegmentName(start, LSN(end - 1), 0, False, False),) if number in parts else ()
        made.append(Stretch((*first, name), size))
    return made


def numbers(group: object) -> list[int]:
    assert isinstance(group, list | tuple)
    return [stretch.start // 10 for stretch in group]


def test_many_small_neighbours_are_a_group() -> None:
    assert numbers(group_to_merge(stretches(*[1] * 20), 1000)) == list(range(19))


def test_few_small_segments_are_left_alone() -> None:
    assert numbers(group_to_merge(stretches(*[1] * FEWEST), 1000)) == []


def test_the_last_stretch_is_not_merged() -> None:
    assert numbers(group_to_merge(stretches(*[1] * (FEWEST + 1)), 1000)) == list(range(FEWEST))


def test_a_group_does_not_go_across_a_schema_change() -> None:
    assert numbers(group_to_merge(stretches(*[1] * 20, schema_changes=(0, 5)), 1000)) == list(range(5, 19))


def test_a_transaction_in_parts_is_not_merged() -> None:
    assert numbers(group_to_merge(stretches(*[1] * 20, parts=(4,)), 1000)) == list(range(5, 19))


def test_a_union_is_not_larger_than_asked_for() -> None:
    assert numbers(group_to_merge(stretches(*[10] * 30), 100)) == list(range(10))


def test_what_is_large_already_is_left_alone() -> None:
    assert numbers(group_to_merge(stretches(60, 60, 60, 60), 100)) == []


def test_two_that_make_a_large_one_are_merged() -> None:
    assert numbers(group_to_merge(stretches(40, 40, 1), 100)) == [0, 1]


def test_a_large_segment_is_not_written_again_for_a_few_small_ones() -> None:
    sizes = [400, *[1] * FEWEST, 1]
    assert numbers(group_to_merge(stretches(*sizes), 1000)) == list(range(1, FEWEST + 1))
    assert numbers(group_to_merge(stretches(*sizes), 1000, quiet=True)) == list(range(FEWEST + 1))


def test_segments_that_cannot_be_merged_separate_groups() -> None:
    made = stretches(*[1] * 20)
    assert numbers(group_to_merge(made, 1000, apart={made[5].segments[0]})) == list(range(6, 19))


@pytest.mark.parametrize("count", [10_000])
def test_however_many_small_segments_come_few_files_are_left(count: int) -> None:
    """Each kilobyte, with a union of at most 32 MiB; grouped as they come, thirty at a time."""
    sizes: list[int] = []
    written = 0
    for _ in range(count // 30):
        sizes += [1] * 30
        while group := group_to_merge(stretches(*sizes), 32 << 10):
            first = group[0].start // 10
            total = sum(stretch.bytes for stretch in group)
            sizes[first : first + len(group)] = [total]
            written += total
    assert len(sizes) <= 50
    assert written <= 8 * count


@steady
@given(log_scripts(), st.sampled_from([1, 200, 1 << 20]), st.lists(st.integers(0, 100), max_size=20))
def test_a_merged_log_holds_the_same_rows(scripted: LogScript, size: int, cuts: list[int]) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FEWEST", 2)
        log = write_log(Path(directory), scripted.stream.messages, size, cuts)
        before, contents = all_rows(log), log.contents()
        merger = merge_all(log)
        for clock in range(2000, 9000, 1000):
            while merger.step(clock):
                pass
        after = ChangeLog(directory)
        assert all_rows(after) == before
        assert not after.contents().merged
        assert (after.contents().start, after.contents().end) == (contents.start, contents.end)
        assert [s.start for s in after.contents().stretches if s.schema_change] == [
            s.start for s in contents.stretches if s.schema_change
        ]


@steady
@given(log_scripts(), st.integers(1, 3), st.integers(0, 7), st.integers(0, 7))
def test_what_was_planned_before_is_read_from_the_union(
    scripted: LogScript, parallelism: int, first: int, last: int
) -> None:
    """Any range between two ends of segments, planned before the merge or after it, read after the small ones are gone."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FEWEST", 2)
        log = in_small_segments(Path(directory), scripted)
        ends = [LSN(START), *(stretch.end for stretch in log.contents().stretches)]
        start, end = sorted((ends[first % len(ends)], ends[last % len(ends)]))
        if start == end:
            return
        planned = plan(log, start, end, parallelism)
        before = [list(change_batches(log, units, start, end)) for units in planned]
        merge_all(log).step(2000.0)
        merged = ChangeLog(directory)

        after = [list(change_batches(merged, units, start, end)) for units in planned]
        again = [list(change_batches(merged, units, start, end)) for units in plan(merged, start, end, parallelism)]

        def places(tasks: list[list[object]]) -> list[tuple[int, int, int]]:
            return sorted(
                (batch.relation.oid, int(lsn), int(sequence))  # type: ignore[attr-defined]
                for task in tasks
                for batch in task
                for lsn, sequence in zip(batch.commit_lsn, batch.sequence, strict=True)  # type: ignore[attr-defined]
            )

        assert places(after) == places(before)  # type: ignore[arg-type]
        assert places(again) == places(before)  # type: ignore[arg-type]


def test_the_merged_segments_stay_for_a_while(tmp_path: Path) -> None:
    log = small_segments(tmp_path)
    before = files(log)
    merger = merge_all(log, clock=1000.0)
    assert set(before) < set(files(log))
    merger.step(1000.0 + GRACE_SECONDS - 0.1)
    assert set(before) < set(files(log))
    merger.step(1000.0 + GRACE_SECONDS)
    assert len(files(log)) < FEWEST


def test_a_log_left_by_a_kill_is_the_same_whatever_was_deleted(tmp_path: Path) -> None:
    """After the union became visible, killed after any number of deletions, in any order."""
    log = small_segments(tmp_path, 20)
    rows = all_rows(log)
    merge_all(log)
    for name in [*ChangeLog(str(tmp_path)).contents().merged][::-2]:
        log.directory.delete(str(name))
        assert all_rows(ChangeLog(str(tmp_path))) == rows
    merger = merge_all(log, clock=5000.0)
    merger.step(5000.0 + GRACE_SECONDS)
    assert not ChangeLog(str(tmp_path)).contents().merged
    assert all_rows(ChangeLog(str(tmp_path))) == rows


def test_retention_deletes_a_union_with_what_was_merged_into_it(tmp_path: Path) -> None:
    log = small_segments(tmp_path, 20)
    merge_all(log)
    end = log.contents().end
    assert end is not None
    Retention(ChangeLog(str(tmp_path)), seconds=0).enforce(end, now=1e12)
    assert len(files(log)) == 1


def test_a_union_does_not_appear_after_its_segments_were_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention comes between reading the group and writing the union: a union there would leave a hole behind it."""
    log = small_segments(tmp_path, 20)
    end = log.contents().end
    made = merging.union

    def union_with_retention(*arguments: object) -> object:
        content = made(*arguments)  # type: ignore[arg-type]
        assert end is not None
        Retention(ChangeLog(str(tmp_path)), seconds=0).enforce(end, now=1e12)
        return content

    monkeypatch.setattr(merging, "union", union_with_retention)
    merger_of(log).step(1000.0)
    assert len(files(log)) == 1
    assert ChangeLog(str(tmp_path)).contents().end == end


def test_a_segment_that_is_in_no_union_is_missing(tmp_path: Path) -> None:
    log = small_segments(tmp_path, 3)
    name = log.contents().stretches[0].segments[0]
    log.directory.delete(str(name))
    with pytest.raises(SegmentMissing):
        log.open(name)


def test_a_union_is_read_and_checked_once_for_all_that_was_merged_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = small_segments(tmp_path, 40)
    units = [unit for task in plan(log, LSN(START), log.contents().end or LSN(0), 1) for unit in task]
    merge_all(log).step(1e6)
    opened: list[SegmentName] = []
    made = SegmentFile.__init__

    def counted(self: SegmentFile, directory: Directory, name: SegmentName) -> None:
        made(self, directory, name)
        opened.append(name)

    monkeypatch.setattr(SegmentFile, "__init__", counted)
    assert sum(len(batch) for batch in change_batches(ChangeLog(str(tmp_path)), units, LSN(START))) == 40
    assert len(opened) == len(set(opened))


def test_a_batch_planned_up_to_the_former_end_of_a_segment_ends_there(tmp_path: Path) -> None:
    log = small_segments(tmp_path, 20)
    end = log.contents().stretches[9].end
    merge_all(log).step(1e6)
    log = ChangeLog(str(tmp_path))
    units = [unit for task in plan(log, LSN(START), end, 1) for unit in task]
    assert sum(len(batch) for batch in change_batches(log, units, LSN(START), end)) == 10
    assert log.end_of_stretch_at(end) == log.contents().stretches[0].end


def test_a_full_disk_leaves_the_log_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = small_segments(tmp_path)
    before = files(log)

    def full(*_arguments: object, **_named: object) -> int:
        raise LogFull("No space left.")

    monkeypatch.setattr(Directory, "write", full)
    with pytest.raises(LogFull):
        merger_of(log).step(1000.0)
    assert files(log) == before


def test_a_damaged_segment_stays_apart_and_the_others_are_merged(tmp_path: Path) -> None:
    log = small_segments(tmp_path, 40)
    damaged = log.contents().stretches[20].segments[0]
    (tmp_path / str(damaged)).write_bytes(b"damaged")
    merger = merger_of(log)
    for _ in range(3):
        try:
            while merger.step(1000.0):
                pass
        except LogError:
            continue
    merger.step(1000.0 + GRACE_SECONDS)
    assert str(damaged) in files(log)


def test_what_the_log_no_longer_holds_is_a_gap_also_within_a_union(tmp_path: Path) -> None:
    log = small_segments(tmp_path, 40)
    start = log.contents().stretches[0].start
    middle = log.contents().stretches[30].start
    for stretch in log.contents().stretches[:10]:
        log.delete(stretch.segments)
    merge_all(ChangeLog(str(tmp_path))).step(1e6)
    log = ChangeLog(str(tmp_path))
    assert log.after(middle)
    with pytest.raises(LogGap):
        log.after(LSN(start + 1))


def test_a_union_knows_when_the_first_transaction_after_a_position_was_committed(tmp_path: Path) -> None:
    """So that the lag of a sink in the middle of it is that of the oldest change that the sink lacks."""
    log = small_segments(tmp_path, 20)
    names = [stretch.segments[0] for stretch in log.contents().stretches]
    before = [log.open(name).last_commit_time for name in names]
    merge_all(log).step(1e6)
    (union, _last) = (stretch.segments[0] for stretch in ChangeLog(str(tmp_path)).contents().stretches)
    segment = log.open(union)
    assert [segment.first_commit_time(name.start) for name in names[:-1]] == before[:-1]
    assert segment.first_commit_time(names[-1].start) is None


def test_a_truncate_counts_from_its_own_place_also_within_a_union(tmp_path: Path) -> None:
    scripted = LogScript()
    for xid in range(1, 21):
        scripted.transaction([("truncate" if xid == 9 else "insert", 0, "")], xid)
    log = in_small_segments(tmp_path, scripted)
    ends = [stretch.end for stretch in log.contents().stretches]
    merge_all(log).step(1e6)
    log = ChangeLog(str(tmp_path))
    assert len(log.contents().stretches) == 2
    assert [truncated_since(log, 100, end) for end in ends[6:10]] == [True, True, False, False]


def test_merging_continues_after_a_deletion_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = small_segments(tmp_path)
    delete, refusals = Directory.delete, list[str]()

    def refused_once(directory: Directory, name: str) -> None:
        if not refusals:
            refusals.append(name)
            raise PermissionError(13, "Permission denied")
        delete(directory, name)

    for name in ("_LOOK_SECONDS", "_RETRY_SECONDS", "GRACE_SECONDS"):
        monkeypatch.setattr(merging, name, 0.001)
    monkeypatch.setattr(Directory, "delete", refused_once)
    merger = merger_of(log)
    merger.start()
    try:
        wait_until(lambda: len(files(log)) < FEWEST, what="the merged segments to be deleted")
    finally:
        merger.stop()
    assert refusals
