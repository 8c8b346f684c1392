"""A target that was emptied, when the log no longer reaches back: what the error tells the operator to do works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.changelog.log import ChangeLog
from penstock.error_policy import policy_for
from penstock.errors import LogGap
from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.workload import Table

pytestmark = pytest.mark.spark

ITEMS = Table("public", "items", ("id", "name"), ("id",))


def test_the_steps_that_a_log_gap_names_import_the_tables_of_an_emptied_target_again(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "pipeline")
    pipeline.execute("create table public.items (id int primary key, name text)")
    pipeline.execute("insert into public.items select n, 'old' from generate_series(1, 20) as n")
    with pipeline.running(spark):
        pipeline.await_streaming()
        begin = pipeline.state.capture()
        pipeline.execute("insert into public.items values (21, 'streamed')")
        pipeline.await_arrival()
        pipeline.execute("insert into public.items values (22, 'streamed')")
        pipeline.await_arrival()
        log = ChangeLog(pipeline.state.log_uri)
        wait_until(
            lambda: begin is not None and (log.contents().start or begin.begin) > begin.begin,
            what="the log to let go of its beginning",
        )
    remove(pipeline.directory / "lake.duckdb")

    with pytest.raises(LogGap) as stopped, pipeline.running(spark):
        wait_until(lambda: (state := pipeline.state.sink("lake")) and state.state == "failed", what="the sink to stop")
    advice = policy_for(stopped.value).advice
    paths = re.findall(r"[a-z]+/\S*<sink>\S*?(?=[ ,])", advice)
    assert len(paths) == 2, advice
    before = last_import(pipeline)[0]
    for path in paths:
        remove(Path(pipeline.state.root.path, path.replace("<sink>", "lake")))

    with pipeline.running(spark):
        wait_until(lambda: imported_again(pipeline, before), what="the table to be imported again")
    assert pipeline.wrong([ITEMS]) == []


def last_import(pipeline: PipelineWithImports) -> tuple[int, str]:
    """Of the table into the target: the job's id and state."""
    ((job, state),) = pipeline.execute(
        "select id, state from penstock.import_jobs where sink = 'lake' order by id desc limit 1"
    )
    return int(str(job)), str(state)


def imported_again(pipeline: PipelineWithImports, before: int) -> bool:
    pipeline.pipeline.reconcile()  # as `run` does all the while
    job, state = last_import(pipeline)
    return job > before and state == "streaming"


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    for each in (path, path.with_name(f"{path.name}.wal")):
        each.unlink(missing_ok=True)
