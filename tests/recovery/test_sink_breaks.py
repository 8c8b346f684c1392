"""What can happen to a sink behind our back: locked, deleted, put back from a backup."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import LogGap
from penstock.lsn import LSN, ZERO
from penstock.testing.conditions import wait_until
from tests.recovery.pipeline_under_test import PipelineUnderTest

pytestmark = pytest.mark.spark

_HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> PipelineUnderTest:
    pipeline = PipelineUnderTest(database, tmp_path, "retention: 1h")
    pipeline.begin()
    return pipeline


@contextmanager
def held_by_another_process(path: Path) -> Iterator[None]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield


def delivered(pipeline: PipelineUnderTest, spark: SparkSession, first: int, last: int) -> None:
    pipeline.insert(first, last)
    pipeline.capture_all()
    pipeline.deliver(spark)


def test_a_locked_file_is_waited_for_without_stopping_other_sinks(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    delivered(pipeline, spark, 1, 5)
    pipeline.insert(6, 10)
    pipeline.capture_all()
    captured = pipeline.state.capture()
    assert captured is not None
    with pipeline.delivering(spark):
        with held_by_another_process(pipeline.lake):
            wait_until(lambda: pipeline.sink_lsn("events") >= captured.log_end, what="the other sink")
            wait_until(lambda: "retrying" in state_of(pipeline), what="the sink to say that it waits")
            assert "lock" in state_of(pipeline)
        wait_until(lambda: pipeline.sink_lsn("lake") >= captured.log_end, what="the sink to go on")

    assert pipeline.wrong() == []


def state_of(pipeline: PipelineUnderTest) -> str:
    known = pipeline.state.sink("lake")
    return f"{known.state}: {known.error}" if known else ""


def test_a_deleted_file_is_made_again_from_a_log_that_reaches_back(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    delivered(pipeline, spark, 1, 5)
    remove(pipeline.lake)
    delivered(pipeline, spark, 6, 10)

    assert pipeline.wrong() == []


def test_an_older_copy_gets_what_it_lacks_from_the_log(pipeline: PipelineUnderTest, spark: SparkSession) -> None:
    delivered(pipeline, spark, 1, 5)
    backup = pipeline.lake.with_suffix(".backup")
    shutil.copy(pipeline.lake, backup)
    delivered(pipeline, spark, 6, 10)
    backup.replace(pipeline.lake)
    delivered(pipeline, spark, 11, 15)

    assert pipeline.wrong() == []


@pytest.mark.parametrize("restored", ["nothing", "an older copy"])
def test_a_file_that_lacks_more_than_the_log_has_is_a_gap(
    database: str, tmp_path: Path, spark: SparkSession, restored: str
) -> None:
    pipeline = PipelineUnderTest(database, tmp_path, "retention: 0s")
    pipeline.begin()
    delivered(pipeline, spark, 1, 5)
    backup = pipeline.lake.with_suffix(".backup")
    shutil.copy(pipeline.lake, backup)
    delivered(pipeline, spark, 6, 10)
    delivered(pipeline, spark, 11, 15)
    with pipeline.capturing():
        wait_until(lambda: len(pipeline.log.contents().stretches) == 1, what="the log to let go of the rest")
    remove(pipeline.lake)
    if restored == "an older copy":
        backup.replace(pipeline.lake)

    with pytest.raises(LogGap):
        delivered(pipeline, spark, 16, 20)


def test_a_log_and_a_file_that_are_both_gone_are_a_gap_even_while_nothing_happens(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    delivered(pipeline, spark, 1, 5)
    with pipeline.capturing():
        wait_until(lambda: pipeline.confirmed() >= pipeline.sink_lsn("lake"), what="the source to let go of it")
    shutil.rmtree(pipeline.log.directory.path)
    remove(pipeline.lake)

    with pytest.raises(LogGap):
        pipeline.deliver(spark)


@pytest.mark.parametrize("restored", ["nothing", "an older copy"])
def test_a_file_that_is_replaced_between_two_batches_gets_what_it_lacks(
    pipeline: PipelineUnderTest, spark: SparkSession, restored: str
) -> None:
    delivered(pipeline, spark, 1, 5)
    backup = pipeline.lake.with_suffix(".backup")
    shutil.copy(pipeline.lake, backup)
    with pipeline.delivering(spark), pipeline.capturing():
        pipeline.insert(6, 10)
        before = rest(pipeline, after=pipeline.log.contents().end or ZERO)
        remove(pipeline.lake)
        if restored == "an older copy":
            shutil.copy(backup, pipeline.lake)
        pipeline.insert(11, 15)
        rest(pipeline, after=before)

    assert pipeline.wrong() == []


def remove(path: Path) -> None:
    """With DuckDB's own log beside it."""
    path.unlink()
    path.with_name(f"{path.name}.wal").unlink(missing_ok=True)


def rest(pipeline: PipelineUnderTest, after: LSN) -> LSN:
    """Waits until the log has grown past ``after`` and both sinks hold all of it, so that no batch is under way."""

    def end_if_delivered() -> LSN:
        end = pipeline.log.contents().end or ZERO
        delivered = all(pipeline.sink_lsn(name) >= end for name in ("lake", "events"))
        return end if end > after and delivered else ZERO

    return wait_until(end_if_delivered, what="the sinks to hold everything")


def test_a_checkpoint_that_stands_past_an_older_file_is_not_believed_even_without_our_own_notes(
    pipeline: PipelineUnderTest, spark: SparkSession, tmp_path: Path
) -> None:
    delivered(pipeline, spark, 1, 5)
    backup = shutil.copy(pipeline.lake, tmp_path / "backup.duckdb")
    delivered(pipeline, spark, 6, 10)
    remove(pipeline.lake)
    shutil.copy(backup, pipeline.lake)
    Path(pipeline.state.root.path, "parts", "sink-lake.json").unlink()
    delivered(pipeline, spark, 11, 15)

    assert pipeline.wrong() == []


def test_a_checkpoint_without_its_file_and_our_notes_is_not_believed(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    delivered(pipeline, spark, 1, 5)
    remove(pipeline.lake)
    Path(pipeline.state.root.path, "parts", "sink-lake.json").unlink()
    delivered(pipeline, spark, 6, 10)

    assert pipeline.wrong() == []
