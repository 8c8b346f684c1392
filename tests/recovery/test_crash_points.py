"""The named points at which a process may die: after each, the rest arrives, once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import failpoints
from penstock.changelog import upkeep as merging
from penstock.state.pipeline_state import SinkState, now
from penstock.testing.conditions import wait_until
from tests.recovery.deaths import dies
from tests.recovery.pipeline_under_test import PipelineUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_left_running")]


_CODE = 'rules: [{tables: [public.items], sql: "select * from changes"}]\n'


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> PipelineUnderTest:
    """The log has some rows."""
    pipeline = PipelineUnderTest(database, tmp_path, "segment_bytes: 256KiB")
    pipeline.begin()
    pipeline.insert(1, 10)
    pipeline.capture_all()
    return pipeline


@pytest.mark.parametrize("segment", [1, 2])
@pytest.mark.parametrize("point", [failpoints.SEGMENT_WRITTEN, failpoints.SEGMENT_VISIBLE])
def test_capture_that_dies_around_a_segment_writes_each_change_once(
    pipeline: PipelineUnderTest, spark: SparkSession, point: str, segment: int
) -> None:
    pipeline.insert(11, 6000, size=1000)  # a transaction of several segments
    pipeline.insert(6001, 6010)

    dies(pipeline, "capture", f"{point}:{segment}")
    pipeline.capture_all()
    pipeline.deliver(spark)

    assert pipeline.wrong() == []
    assert not list(Path(pipeline.log.directory.path).glob(".*")), "temporary files are left"


def test_capture_that_dies_while_it_merges_segments_loses_nothing(
    database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the union is visible, right after, and with a part of the small segments deleted. Then a batch that was planned
    before comes again: the events' sink has no other record of it than Spark's."""
    pipeline = PipelineUnderTest(database, tmp_path, "linger: 1ms")
    pipeline.begin()
    monkeypatch.setattr(merging, "_LOOK_SECONDS", 1e6)
    with pipeline.capturing() as capture:
        for number in range(1, 14):
            pipeline.insert(number, number)
            capture.reach(pipeline.committed_now())
    assert len(pipeline.log.contents().stretches) >= 12
    dies(pipeline, "deliver", f"{failpoints.BATCH_STAGED}:1", "--once", "--sink", "events")

    for point in (failpoints.UNION_WRITTEN, failpoints.UNION_VISIBLE, f"{failpoints.MERGED_DELETED}:3"):
        dies(pipeline, "capture", point)
    assert len(pipeline.log.contents().stretches) < 12
    pipeline.insert(14, 20)
    pipeline.capture_all()
    pipeline.deliver(spark)

    assert pipeline.wrong() == []
    assert not list(Path(pipeline.log.directory.path).glob(".*")), "temporary files are left"


@pytest.mark.parametrize("point", [failpoints.BATCH_STAGED, failpoints.BATCH_COMMITTED])
def test_delivery_that_dies_around_a_commit_delivers_each_change_once(
    pipeline: PipelineUnderTest, spark: SparkSession, point: str
) -> None:
    pipeline.deliver(spark)
    pipeline.execute("update items set value = 'changed' where id < 6")
    pipeline.execute("delete from items where id = 9")
    pipeline.capture_all()

    dies(pipeline, "deliver", f"{point}:1", "--once")
    pipeline.insert(11, 20)
    pipeline.capture_all()
    pipeline.deliver(spark)

    assert pipeline.wrong() == []
    assert pipeline.staged() == []


@pytest.mark.parametrize("rules", ["", _CODE], ids=["", "through code of a rule"])
def test_a_replica_has_each_change_once_wherever_its_delivery_dies(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession, rules: str
) -> None:
    """Before the target's transaction, inside it, and after it, one after the other."""
    pipeline = PipelineUnderTest(database, tmp_path, target=target_database, rules=rules)
    pipeline.begin()
    pipeline.insert(1, 10)
    pipeline.capture_all()
    for number, point in enumerate([failpoints.BATCH_STAGED, failpoints.BATCH_APPLIED, failpoints.BATCH_COMMITTED], 1):
        dies(pipeline, "deliver", point, "--once", "--sink", "replica")
        pipeline.insert(10 * number + 1, 10 * number + 10)
        pipeline.execute("update items set value = value || '!' where id %% 3 = 0")
        pipeline.execute("delete from items where id = %s", 10 * number - 1)
        pipeline.capture_all()
    pipeline.deliver(spark)

    assert pipeline.wrong() == []


def test_a_batch_that_spark_does_not_know_of_is_not_looked_for_in_a_log_that_let_go_of_it(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    """Killed between the sinks' commit and Spark's checkpoint; then capture runs on and deletes what all sinks hold."""
    dies(pipeline, "deliver", f"{failpoints.BATCH_COMMITTED}:1", "--once", "--sink", "lake")
    pipeline.deliver(spark, "events")
    end = pipeline.log.contents().end
    assert end is not None
    pipeline.state.save(SinkState(end, now()), "lake")  # as if it had come just that much further
    pipeline.insert(11, 20)
    with pipeline.capturing() as capture:
        capture.reach(pipeline.committed_now())
        wait_until(lambda: len(pipeline.log.contents().stretches) == 1, what="the log to let go of the batch")

    pipeline.deliver(spark)

    assert pipeline.wrong() == []


def test_a_log_that_was_lost_with_a_batch_under_way_may_be_cut_differently(
    pipeline: PipelineUnderTest, spark: SparkSession
) -> None:
    """Spark's checkpoint still has a batch that ends where a segment of the old log did, amid one of the new log."""
    pipeline.deliver(spark)
    pipeline.insert(11, 20)
    pipeline.capture_all()
    end = pipeline.log.contents().end
    dies(pipeline, "deliver", f"{failpoints.BATCH_STAGED}:1", "--once", "--sink", "events")
    shutil.rmtree(pipeline.log.directory.path)
    for number in range(1, 41):
        pipeline.insert(100 * number, 100 * number + 99, size=1000)
    patient = PipelineUnderTest(pipeline.url, pipeline.directory, "segment_bytes: 256KiB, linger: 1000000s")
    with patient.capturing():  # with such a linger, segments end by their size alone
        wait_until(lambda: pipeline.log.contents().stretches, what="the first segment")
    assert end not in {stretch.end for stretch in pipeline.log.contents().stretches}

    pipeline.capture_all()
    pipeline.deliver(spark)

    assert pipeline.wrong() == []
