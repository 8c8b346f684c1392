from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import SegmentName
from penstock.errors import LogCorrupt, LogGap
from penstock.lsn import LSN, ZERO
from penstock.storage import Directory, FileEntry
from tests.changelog.log_scripts import START, LogScript, write_log


def empty_files(directory: Path, *names: str) -> ChangeLog:
    """Names as start-end-part-flags with short numbers: the listing alone is the index."""
    for name in names:
        start, end, part, flags = name.split("-")
        parsed = SegmentName(LSN(int(start)), LSN(int(end)), int(part), flags[0] == "c", flags[1:] == "s")
        (directory / str(parsed)).write_bytes(b"x" * 100)
    return ChangeLog(str(directory))


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    contents = ChangeLog(str(tmp_path / "nowhere")).contents()
    assert (list(contents.stretches), list(contents.unfinished), contents.bytes) == ([], [], 0)
    assert contents.start is contents.end is None


def test_parts_and_their_end_are_one_stretch(tmp_path: Path) -> None:
    contents = empty_files(tmp_path, "10-18-0-ps", "10-18-1-p", "10-20-2-c", "20-30-0-c").contents()
    assert [(s.start, s.end, len(s.segments), s.bytes) for s in contents.stretches] == [
        (10, 20, 3, 300),
        (20, 30, 1, 100),
    ]
    assert (contents.start, contents.end, contents.bytes) == (10, 30, 400)


def test_parts_without_their_end_are_invisible(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "10-20-0-c", "20-28-0-p", "20-28-1-p")
    contents = log.contents()
    assert contents.end == 20
    assert [name.part for name in contents.unfinished] == [0, 1]
    assert log.end_of_next_batch(LSN(20), None) == 20


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".writing-x").write_text("half")
    assert len(empty_files(tmp_path, "10-20-0-c").contents().stretches) == 1


def test_a_hole_is_corruption(tmp_path: Path) -> None:
    with pytest.raises(LogCorrupt, match="0/14 and 0/1E"):
        empty_files(tmp_path, "10-20-0-c", "30-40-0-c").contents()


def test_a_missing_part_is_corruption(tmp_path: Path) -> None:
    with pytest.raises(LogCorrupt, match=r"[Pp]arts"):
        empty_files(tmp_path, "10-18-0-p", "10-20-2-c").contents()


def test_a_listing_torn_by_the_writer_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory is not listed in one moment: a later file may show where an earlier one does not yet."""
    log = empty_files(tmp_path, "10-20-0-c", "20-30-0-c", "30-40-0-c")
    whole = log.directory.entries()
    torn = [entry for entry in whole if not entry.name.startswith(f"{20:016X}")]
    listings = [torn, whole]

    def entries(_directory: Directory) -> list[FileEntry]:
        return listings.pop(0)

    monkeypatch.setattr(Directory, "entries", entries)
    assert log.contents().end == 40


def test_a_log_of_which_much_is_deleted_at_the_moment_has_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the front, while it is listed: what the listing had passed is in it, what it came to later is gone."""
    log = empty_files(tmp_path, *(f"{n}-{n + 10}-0-c" for n in range(10, 100, 10)))
    whole = sorted(log.directory.entries(), key=lambda entry: entry.name)
    listings = [[whole[at], *whole[at + 2 :]] for at in range(6)] + [whole[7:]]

    def entries(_directory: Directory) -> list[FileEntry]:
        return listings.pop(0)

    monkeypatch.setattr(Directory, "entries", entries)
    assert log.contents().start == 80


def test_a_batch_ends_past_its_size(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "10-20-0-cs", "20-30-0-c", "30-40-0-c")
    assert log.end_of_next_batch(LSN(10), None) == 40
    assert log.end_of_next_batch(LSN(10), 1) == 20
    assert log.end_of_next_batch(LSN(10), 100) == 20
    assert log.end_of_next_batch(LSN(10), 101) == 30
    assert log.end_of_next_batch(LSN(40), 1) == 40


def test_a_batch_starts_within_a_segment_after_an_advance(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "10-20-0-c", "20-30-0-c")
    assert log.end_of_next_batch(LSN(15), 1) == 20


def test_a_batch_never_goes_across_a_schema_change(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "10-20-0-cs", "20-30-0-c", "30-40-0-cs", "40-50-0-c", "50-58-0-ps", "50-60-1-c")
    ends = [10]
    while (end := log.end_of_next_batch(LSN(ends[-1]), None)) > ends[-1]:
        ends.append(end)
    assert ends == [10, 30, 50, 60]


def test_a_batch_ends_at_the_target_at_the_latest(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "10-20-0-c", "20-30-0-c")
    assert log.end_of_next_batch(LSN(10), None, LSN(20)) == 20
    assert log.end_of_next_batch(LSN(10), None, LSN(19)) == 10


def test_what_retention_took_is_a_gap(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "20-30-0-c")
    with pytest.raises(LogGap, match="begins at 0/14"):
        log.after(LSN(10))
    assert [s.start for s in log.after(ZERO)] == [20]
    assert [s.start for s in log.after(LSN(20))] == [20]
    assert log.after(LSN(30)) == []


def test_a_range_that_the_log_does_not_reach_is_a_gap(tmp_path: Path) -> None:
    log = empty_files(tmp_path, "10-20-0-c")
    with pytest.raises(LogGap, match="0/1E"):
        log.after(LSN(10), LSN(30))


def test_a_killed_writers_parts_are_gone_once_deleted(tmp_path: Path) -> None:
    scripted = LogScript()
    scripted.transaction([("insert", 0, "x")], xid=1)
    scripted.transaction([("insert", 0, "y" * 40)] * 10, xid=2)
    log = write_log(tmp_path, scripted.stream.messages[:-1], segment_bytes=200, cuts=[6, 8, 10])
    contents = log.contents()
    assert contents.unfinished
    log.delete(contents.unfinished)
    assert not log.contents().unfinished
    assert log.contents().start == START
