from __future__ import annotations

from pathlib import Path

from penstock.changelog.log import ChangeLog
from penstock.changelog.upkeep import Retention
from penstock.lsn import LSN
from penstock.testing.change_batches import FIRST_COMMIT_TIME
from tests.changelog.log_scripts import LogScript, write_log

COMMITTED = FIRST_COMMIT_TIME / 1_000_000


def log_of_four(directory: Path) -> ChangeLog:
    """Four segments; the third is of a large transaction, in parts."""
    scripted = LogScript()
    scripted.redefine(0)  # a first definition with a column for text
    for xid, count in ((1, 1), (2, 1), (3, 6), (4, 1)):
        scripted.transaction([("insert", 0, "y" * 40)] * count, xid)
    log = write_log(directory, scripted.stream.messages, 300, cuts=list(range(100)))
    assert [len(stretch.segments) > 1 for stretch in log.contents().stretches] == [False, False, True, False]
    return log


def ends(log: ChangeLog) -> list[LSN]:
    return [stretch.end for stretch in log.contents().stretches]


def test_what_every_sink_holds_goes_and_what_one_needs_stays(tmp_path: Path) -> None:
    log = log_of_four(tmp_path)
    before = ends(log)
    kept = Retention(log, seconds=0).enforce(before[1], now=COMMITTED)
    assert ends(log) == before[2:]
    assert kept == log.contents().bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_position_within_a_segment_keeps_it(tmp_path: Path) -> None:
    log = log_of_four(tmp_path)
    before = ends(log)
    Retention(log, seconds=0).enforce(LSN(before[1] - 1), now=COMMITTED)
    assert ends(log) == before[1:]


def test_the_last_segment_stays_so_that_the_log_knows_its_end(tmp_path: Path) -> None:
    log = log_of_four(tmp_path)
    before = ends(log)
    Retention(log, seconds=0).enforce(LSN(before[-1] + 100), now=COMMITTED + 1e9)
    assert ends(log) == before[-1:]
    assert not log.contents().unfinished


def test_a_window_keeps_what_is_younger(tmp_path: Path) -> None:
    log = log_of_four(tmp_path)
    before = ends(log)
    retention = Retention(log, seconds=60)
    retention.enforce(before[-1], now=COMMITTED + 59)
    assert ends(log) == before
    retention.enforce(before[-1], now=COMMITTED + 61)
    assert ends(log) == before[-1:]


def test_an_empty_log_has_nothing_to_let_go(tmp_path: Path) -> None:
    assert Retention(ChangeLog(str(tmp_path)), seconds=0).enforce(LSN(100), now=COMMITTED) == 0
