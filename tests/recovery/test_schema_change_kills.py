"""Delivery that is killed in the middle of following schema changes: started again, it follows all of them, once."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock import failpoints
from tests.recovery.comparison import differences, duckdb_rows, source_rows
from tests.recovery.deaths import dies
from tests.recovery.pipeline_under_test import PipelineUnderTest
from tests.recovery.workload import Table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_left_running")]

# Done twice, or half, each of these shows: the default's moment, the names, which are swapped, and the values.
COMMANDS = """
insert into items values (11, 'before');
alter table items add column at timestamptz not null default now();
alter table items add column amount int default 5;
update items set amount = id where id < 4;
alter table items rename column value to label;
alter table items rename column amount to value;
insert into items (id, label, value) values (12, 'after', 6);
alter table items alter column value type text;
alter table items rename column label to t;
alter table items rename column value to label;
alter table items rename column t to value;
delete from items where id = 5;
"""
ITEMS = Table("public", "items", ("id", "value", "at", "label"), ("id",))


@pytest.mark.parametrize("sink", ["lake", "replica"])
def test_a_target_equals_the_source_wherever_in_the_schema_changes_its_delivery_dies(
    sink: str, database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineUnderTest(database, tmp_path, target=target_database)
    pipeline.begin()
    pipeline.insert(1, 10)
    pipeline.capture_all()
    pipeline.deliver(spark)
    pipeline.execute(COMMANDS)
    pipeline.capture_all()
    for change in (2, 7):
        dies(pipeline, "deliver", f"{failpoints.SCHEMA_FOLLOWED}:{change}", "--once", "--sink", sink)
    pipeline.deliver(spark, sink)

    with psycopg.connect(database) as connection, psycopg.connect(target_database) as target:
        wanted = source_rows(connection, ITEMS)
        found = duckdb_rows(pipeline.lake, [ITEMS])[ITEMS] if sink == "lake" else source_rows(target, ITEMS)
    assert len(wanted) == 11
    assert differences(sink, ITEMS, wanted, found) == []
