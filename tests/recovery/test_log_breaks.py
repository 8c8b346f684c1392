"""What can happen to the change log: its files, its disk, its bound."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import LogCorrupt, SourceGap
from penstock.testing.conditions import wait_until
from tests.recovery.pipeline_under_test import PipelineUnderTest, flip_a_bit

pytestmark = pytest.mark.spark


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> PipelineUnderTest:
    pipeline = PipelineUnderTest(database, tmp_path, "segment_bytes: 1KiB")
    pipeline.begin()
    return pipeline


def segments(pipeline: PipelineUnderTest) -> list[Path]:
    return sorted(Path(pipeline.log.directory.path).glob("*.arrow"))


def delete_log(pipeline: PipelineUnderTest) -> None:
    shutil.rmtree(pipeline.log.directory.path)


def test_a_deleted_log_is_captured_again_when_sinks_acknowledge(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    pipeline.insert_one_by_one(1, 5)
    pipeline.capture_all()
    pipeline.deliver(spark)
    pipeline.insert_one_by_one(6, 10, size=900)
    pipeline.capture_all()
    delete_log(pipeline)

    pipeline.insert_one_by_one(11, 15)
    pipeline.capture_all()
    pipeline.deliver(spark)

    assert pipeline.wrong() == []


def test_a_deleted_log_that_a_sink_still_needed_is_a_gap_when_the_log_acknowledges(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineUnderTest(database, tmp_path, "acknowledge: log")
    pipeline.begin()
    pipeline.insert(1, 5)
    pipeline.capture_all()
    pipeline.deliver(spark)
    pipeline.insert(6, 10)
    with pipeline.capturing() as capture:
        behind = pipeline.committed_now()
        capture.reach(behind)
        wait_until(lambda: pipeline.confirmed() >= behind, what="the log to acknowledge")
    delete_log(pipeline)

    error = pipeline.why_capture_stops()

    assert isinstance(error, SourceGap)
    assert "log is empty" in str(error)


@pytest.mark.parametrize("damage", ["cut short", "flipped bit", "emptied"])
def test_a_damaged_segment_is_named_and_capturing_the_log_again_mends_it(
    pipeline: PipelineUnderTest, spark: SparkSession, damage: str
) -> None:
    pipeline.insert(1, 50)
    pipeline.capture_all()
    victim = segments(pipeline)[0]
    content = victim.read_bytes()
    if damage == "flipped bit":
        flip_a_bit(victim, content.index(b"xxxx"))
    else:
        victim.write_bytes(content[: len(content) // 2] if damage == "cut short" else b"")

    with pytest.raises(LogCorrupt, match=victim.name.replace("-", r"\-")):
        pipeline.deliver(spark)

    delete_log(pipeline)
    pipeline.capture_all()
    pipeline.deliver(spark)
    assert pipeline.wrong() == []


def test_a_missing_segment_in_the_middle_is_a_hole_for_readers_and_for_capture(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    for number in range(1, 4):
        pipeline.insert(number, number)
        pipeline.capture_all()
    assert len(segments(pipeline)) == 3
    segments(pipeline)[1].unlink()

    with pytest.raises(LogCorrupt, match="hole"):
        pipeline.deliver(spark)
    assert isinstance(pipeline.why_capture_stops(), LogCorrupt)

    delete_log(pipeline)
    pipeline.capture_all()
    pipeline.deliver(spark)
    assert pipeline.wrong() == []


def test_a_full_disk_is_waited_for_while_the_server_is_answered(
    database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = PipelineUnderTest(database, tmp_path)
    pipeline.begin()
    name = database.rpartition("/")[2]
    pipeline.execute(f"alter database {name} set wal_sender_timeout = '2s'")
    really_sync, full, refused = os.fsync, [True], []

    def sync(descriptor: int) -> None:
        if full[0]:
            refused.append(descriptor)
            raise OSError(errno.ENOSPC, "No space left on device")
        really_sync(descriptor)

    pipeline.insert(1, 5)
    pipeline.capture_all()
    with pipeline.capturing() as capture:
        walsender = wait_until(lambda: reader(pipeline), what="capture to connect")
        pipeline.insert(6, 1000)
        monkeypatch.setattr(os, "fsync", sync)
        pipeline.insert(1001, 2000)
        begun = pipeline.execute("select clock_timestamp()")[0][0]
        answered = "select 1 from pg_stat_replication where pid = %s and reply_time > %s::timestamptz + interval '5 s'"
        wait_until(lambda: refused and pipeline.execute(answered, walsender, begun), what="answers beyond the timeout")
        assert pipeline.confirmed() <= pipeline.position()
        full[0] = False
        capture.reach(pipeline.committed_now())
        assert reader(pipeline) == walsender, "the connection was lost on the way"

    pipeline.deliver(spark)
    assert pipeline.wrong() == []


def reader(pipeline: PipelineUnderTest) -> object:
    """The server process that reads our slot."""
    return pipeline.execute("select active_pid from pg_replication_slots where slot_name = %s", pipeline.slot)[0][0]


def test_at_its_bound_the_log_waits_for_the_sinks_and_goes_on_when_they_have_caught_up(
    database: str, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = PipelineUnderTest(database, tmp_path, "segment_bytes: 10KiB, max_bytes: 40KiB")
    pipeline.begin()
    with pipeline.capturing() as capture:
        for number in range(1, 6):
            pipeline.insert(10 * number, 10 * number + 9, size=1000)
            wait_until(lambda: pipeline.log.contents().bytes >= min(number, 4) * 10_000, what="the next segment")  # noqa: B023
        wait_until(lambda: "log.max_bytes" in caplog.text, what="the warning")
        goal = pipeline.committed_now()
        assert pipeline.position() < goal
        with pipeline.delivering(spark):
            capture.reach(goal)
            wait_until(lambda: pipeline.sink_lsn("lake") >= goal, what="the sink to catch up")

    pipeline.deliver(spark)
    assert pipeline.wrong() == []


def test_a_transaction_larger_than_the_logs_bound_still_gets_through(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    """No sink can make room for it: it is read by none before its end is there."""
    pipeline = PipelineUnderTest(database, tmp_path, "segment_bytes: 256KiB, max_bytes: 512KiB")
    pipeline.begin()
    pipeline.insert(1, 20000, size=1000)  # more than is read ahead while the writer is busy
    pipeline.insert(20001, 20010, size=1000)
    pipeline.capture_all()

    pipeline.deliver(spark)
    assert pipeline.wrong() == []
