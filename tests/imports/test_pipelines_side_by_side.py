"""Two pipelines, of two sinks each, that import the same tables at once; one that is destroyed and begins again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.imports.living_pipeline import LivingPipeline

pytestmark = pytest.mark.spark

SETUP = """
create table items (id int primary key, v text, body text);
create table bag (a int, v text);
alter table bag replica identity full;
insert into items select n, 'v', repeat(md5(n::text), 90) from generate_series(1, 400) n;
insert into bag select mod(n, 5), 'same' from generate_series(1, 100) n;
"""
CHANGES = """
update items set v = v || '!' where mod(id, 3) = 0;
delete from items where mod(id, 11) = 0;
update items set id = -id where mod(id, 17) = 0;
insert into bag values (1, 'same'), (9, 'new');
delete from bag where ctid = (select min(ctid) from bag where a = 2);
"""


def test_two_pipelines_import_the_same_tables_at_once_and_do_not_disturb_each_other(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    first, second = (
        LivingPipeline(database, tmp_path / name, name=name, suffix=f"_{name}", copy="workers: 2, chunk_bytes: 16KiB")
        for name in ("first", "second")
    )
    first.execute(SETUP)
    with first.running(spark):
        with second.running(spark):
            first.execute(CHANGES)
            for pipeline in (first, second):
                pipeline.await_streaming()
            second.pipeline.resync_tables(["items", "bag"])
            first.execute(CHANGES)
            first.pipeline.remove_tables(["bag"])
            second.execute("insert into bag values (3, 'after')")
            second.await_streaming()
            for pipeline in (first, second):
                pipeline.await_arrival()
            assert first.wrong(first.tables("items")) == []
            assert second.wrong(second.tables("items", "bag")) == []
        removed = second.pipeline.destroy()
        assert "import jobs of second" in removed
        assert "schema penstock" not in removed
        first.execute(CHANGES)
        first.pipeline.add_tables(["bag"])
        first.await_streaming()
        first.await_arrival()
        assert first.wrong(first.tables("items", "bag")) == []
    assert "schema penstock" in first.pipeline.destroy()
    assert first.execute("select count(*) from pg_publication") == [(0,)]
    assert first.execute("select count(*) from pg_replication_slots where database = current_database()") == [(0,)]


def test_a_pipeline_that_was_destroyed_imports_into_the_same_files_again(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = LivingPipeline(database, tmp_path / "p", copy="workers: 2, chunk_bytes: 64KiB")
    pipeline.execute(SETUP)
    for _ in range(2):
        with pipeline.running(spark):
            pipeline.await_streaming()
            pipeline.execute(CHANGES)
            pipeline.await_arrival()
        pipeline.pipeline.destroy()
        pipeline.execute(CHANGES)  # which nobody captures
    with pipeline.running(spark):
        pipeline.execute(CHANGES)
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong(pipeline.tables("items", "bag")) == []


def test_a_table_that_is_copied_again_and_again_before_that_has_ended_comes_out_equal(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = LivingPipeline(database, tmp_path / "p", copy="workers: 2, chunk_bytes: 64KiB")
    pipeline.execute(SETUP)
    with pipeline.running(spark):
        for state in ("pending", "copying", "catching_up", "streaming"):
            pipeline.await_one_of({state, "streaming"}, "public.items")
            pipeline.pipeline.resync_tables(["items", "bag"])
            pipeline.execute(CHANGES)
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong(pipeline.tables("items", "bag")) == []
