from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from penstock.errors import LogFull, SinkError, SinkRefused, SparkLost
from penstock.rules.model import RuleSettings
from penstock.rules.passage import Passage
from penstock.sinks.contract import Sink
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.spark.deliveries import Deliveries
from penstock.spark.delivery import SinkDelivery
from penstock.state.pipeline_state import PipelineState
from penstock.testing import scripted_stream as script
from tests.changelog.log_scripts import LogScript, version, write_log
from tests.spark.sinks_for_tests import (
    BuggyCommit,
    BuggyPrepare,
    BuggySink,
    CountingSink,
    DyingOnce,
    ReceiptThatDoesNotPickle,
    RefusingSink,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    made = PipelineState(str(tmp_path / "state"))
    made.create()
    return made


def logged(state: PipelineState, transactions: int = 3) -> LogScript:
    """Each transaction changes three tables, and has a segment of its own."""
    scripted = LogScript()
    for xid in range(1, transactions + 1):
        scripted.transaction([("insert", 3 * xid + table, "") for table in range(3)], xid)
    ends = [at + 1 for at, message in enumerate(scripted.stream.messages) if message[25:26] == b"C"]
    write_log(Path(state.root.path, "log"), scripted.stream.messages, 1 << 20, cuts=ends)
    return scripted


def deliver(spark: SparkSession, state: PipelineState, *sinks: Sink[Any, Any]) -> None:
    Deliveries(spark, sinks, state).run(threading.Event(), available_now=True)


def test_a_micro_batch_is_one_spark_job_however_many_tables_changed(spark: SparkSession, state: PipelineState) -> None:
    scripted = logged(state, transactions=2)
    sink = CountingSink("counting")
    query = SinkDelivery(spark, sink, state).start(available_now=True)
    query.awaitTermination()
    assert [counted for _, counted in sink.batches] == [{"t0": 2, "t1": 2, "t2": 2}]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))) == 1
    known = state.sink("counting")
    assert known is not None
    assert (known.lsn, known.changes_total) == (scripted.stream.end, 6)

    progress = [found for found in query.recentProgress if found["observedMetrics"]]
    metrics = progress[0]["observedMetrics"]["penstock"].asDict()
    assert metrics["changes"] == 6
    assert metrics["bytes"] > 0


@pytest.mark.parametrize(("table", "jobs"), [("absent", 1), ("t1", 3)])
def test_only_batches_with_changes_of_a_table_with_sql_take_more_jobs(
    spark: SparkSession, state: PipelineState, table: str, jobs: int
) -> None:
    scripted = logged(state, transactions=2)
    sink = CountingSink("counting")
    rule = RuleSettings.model_validate({"tables": [f"*.{table}"], "sql": "select * from changes"})
    query = SinkDelivery(spark, sink, state, rules=Passage([rule])).start(available_now=True)
    query.awaitTermination()
    assert [counted for _, counted in sink.batches] == [{"t0": 2, "t1": 2, "t2": 2}]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))) == jobs
    known = state.sink("counting")
    assert known is not None
    assert (known.lsn, known.changes_total) == (scripted.stream.end, 6)


def test_batches_grow_no_larger_than_asked_and_follow_each_other(spark: SparkSession, state: PipelineState) -> None:
    scripted = logged(state, transactions=3)
    sink = CountingSink("counting")
    sink.settings = sink.settings.model_copy(update={"batch": sink.settings.batch.model_copy(update={"max_bytes": 1})})
    deliver(spark, state, sink)
    assert [sum(counted.values()) for _, counted in sink.batches] == [3, 3, 3]
    ends = [batch.end for batch, _ in sink.batches]
    assert [batch.start for batch, _ in sink.batches] == [0, *ends[:-1]]
    assert ends[-1] == scripted.stream.end


def test_a_sink_that_refuses_does_not_stop_the_other(spark: SparkSession, state: PipelineState) -> None:
    scripted = logged(state)
    good = CountingSink("good")
    with pytest.raises(SinkRefused, match="full of eels") as caught:
        deliver(spark, state, RefusingSink("bad"), good)
    assert caught.value.advice == "Remove the eels."
    assert sum(sum(counted.values()) for _, counted in good.batches) == 9
    good_state, bad_state = state.sink("good"), state.sink("bad")
    assert good_state is not None
    assert bad_state is not None
    assert (good_state.lsn, good_state.state) == (scripted.stream.end, "stopped")
    assert (bad_state.state, bad_state.error) == ("failed", "The table is full of eels. Remove the eels.")


@pytest.mark.parametrize("kind", [BuggySink, BuggyCommit, BuggyPrepare, ReceiptThatDoesNotPickle])
def test_an_exception_in_somebodys_own_sink_is_shown_with_its_text(
    spark: SparkSession, state: PipelineState, kind: type[CountingSink]
) -> None:
    logged(state, transactions=1)
    with pytest.raises(SinkError, match=r"Sink own failed: .*(a slip in|pickle)") as caught:
        deliver(spark, state, kind("own"))
    assert "Traceback" in "".join(caught.value.__notes__)
    found = state.sink("own")
    assert found is not None
    assert found.state == "failed"


def test_a_batch_that_spark_gives_up_is_told_of_and_made_again(
    spark: SparkSession, state: PipelineState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of such an error is long, and names errors of Java."""
    scripted = logged(state)
    sink = DyingOnce("dying", tmp_path / "died")
    deliver(spark, state, sink)
    assert sum(sum(counted.values()) for _, counted in sink.batches) == 9
    assert 'Sink "dying": Spark gave up a batch: org.apache.spark.SparkException: Job aborted' in caplog.text
    known = state.sink("dying")
    assert known is not None
    assert known.lsn == scripted.stream.end


def test_without_a_checkpoint_a_sinks_own_record_says_where_to_go_on(
    spark: SparkSession, state: PipelineState, tmp_path: Path
) -> None:
    scripted = logged(state)
    sink = DuckDBSink(DuckDBSink.Settings(name="lake", path=tmp_path / "lake.duckdb"))
    deliver(spark, state, sink)
    state.root.child("checkpoints").delete_all()
    before = scripted.stream.end
    scripted.transaction([("insert", 30, "")], xid=9)
    later = [script.xlog_data(script.relation(version(0, 0))), *scripted.stream.messages[-3:]]
    write_log(Path(state.root.path, "log"), later, 1 << 20, start=before)
    deliver(spark, state, sink)
    with duckdb.connect(tmp_path / "lake.duckdb", read_only=True) as connection:
        rows = connection.execute("select id from public.t0 order by id").fetchall()
    assert rows == [(3,), (6,), (9,), (30,)]


@pytest.mark.parametrize(
    ("said", "kind"),
    [("java.io.IOException: No space left on device", LogFull), ("java.lang.OutOfMemoryError", SparkLost)],
)
def test_a_full_disk_under_sparks_checkpoint_is_told_as_such(
    said: str, kind: type, spark: SparkSession, state: PipelineState
) -> None:
    error = SinkDelivery(spark, CountingSink("counting"), state).diagnose(RuntimeError(f"Query failed: {said}"))
    assert type(error) is kind
    assert ("checkpoints/counting" in str(error)) == (kind is LogFull)
