"""One pipeline that copies every awkward table there is while they change, and many looks at the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.end_to_end.awkward_tables import FIRST, SECOND, SETUP
from tests.end_to_end.mirrored import Mirrored
from tests.imports.awkward_tables import HUGE, KINDS, LEFT_OUT, TYPES, VALUES, VIRTUAL
from tests.imports.living_pipeline import LivingPipeline

pytestmark = pytest.mark.spark

SCHEMAS = ["a.b", "a", "drop table; --", 'Ünï 🐘 "x" y', "select", "public"]
# Partitions, what is left out, and what has tests of its own.
NOT_COMPARED = (
    "parted_low", "parted_high", "deep_eu", "deep_eu_1", "deep_eu_2", "deep_other", "draft", "looked", "kept", "away",
    "computed", "virtual_column", "copied", "streamed", "huge", "parent",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    version: int
    pipeline: LivingPipeline
    mirrored: Mirrored  # for its looks at source and targets
    left_out: str  # what `check` said


@pytest.fixture(scope="module", params=[18, 16])
def result(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Result]:
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{request.param}")
    name = "copied 'names\" ü"
    pipeline = LivingPipeline(
        server.create_database(name), tmp_path_factory.mktemp("awkward"),
        copy="workers: 2, chunk_bytes: 64KiB", lake="unrepresentable: text",
    )  # fmt: skip
    mirrored = Mirrored(spark, pipeline.url, pipeline.directory)
    mirrored.execute(*SETUP, *FIRST, *KINDS, *TYPES, *(VIRTUAL + HUGE if request.param == 18 else ()))
    mirrored.execute(*(f"insert into copied {rows}" for rows in VALUES))
    with psycopg.connect(pipeline.url, autocommit=True) as other:
        other.execute("create temporary table scratch (id int primary key)")
        left_out = "; ".join(f.message for f in pipeline.pipeline.check() if f.name == "left out")
    with pipeline.running(spark):
        mirrored.execute(*SECOND)
        pipeline.await_streaming()
        mirrored.execute(*(f"insert into streamed {rows}" for rows in VALUES))
        pipeline.await_arrival()
    yield Result(request.param, pipeline, mirrored, left_out)
    server.drop_database(name)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_source_and_target_are_equal(result: Result, schema: str) -> None:
    differences = result.mirrored.differences(schema, without=NOT_COMPARED)
    assert differences
    assert {table: rows for table, rows in differences.items() if rows} == {}


# Without arrays, whose text JSON has another form for.
REPLAYED = (
    "Users", "users", "nulls", "wide", "bag", "lines", "by_index", "long_keys", "full_rows", "large", "parted", "saved",
    "evolving", "evolving_later", "empty", "emptied", "child", "by_identity", "lone_column", "nullable", "deep",
    "hashed",
)  # fmt: skip


def test_the_events_replayed_in_order_rebuild_the_tables(result: Result) -> None:
    assert result.pipeline.wrong_in("events", result.pipeline.tables(*REPLAYED)) == []


@pytest.mark.parametrize("name", ["empty", "emptied", "hashed"])
def test_a_table_without_rows_is_there_with_its_columns(result: Result, name: str) -> None:
    assert result.pipeline.lake(f"select id, v from public.{name}") == []


def test_a_table_without_columns_has_its_rows_in_the_events(result: Result) -> None:
    assert [(event["op"], event["after"]) for event in result.mirrored.events("nothing")] == [("read", {})]


def test_a_value_of_a_hundred_megabytes_is_copied_whole(result: Result) -> None:
    if result.version == 18:
        ((length, digest),) = result.pipeline.lake("select length(v), md5(v) from public.huge where id = 1")
        assert length == 100_000_000
        assert [(digest,)] == result.mirrored.source("select md5(v) from huge where id = 1")
        assert [len(event["after"]["v"]) for event in result.mirrored.events("huge")] == [100_000_000, 5]


def _rows(result: Result, table: str) -> tuple[list[str], list[str]]:
    """As DuckDB has them, and as the events have them; written out, since NaN is not equal to itself."""
    lake = result.pipeline.lake(f"select * from public.{table} order by id")
    events = [event["after"] for event in result.mirrored.events(table)]
    return [repr(row) for row in lake], [repr(row) for row in sorted(events, key=lambda row: int(row["id"]))]


def test_a_value_that_was_copied_is_as_one_that_was_streamed(result: Result) -> None:
    copied, streamed = _rows(result, "copied"), _rows(result, "streamed")
    assert [len(rows) for rows in copied] == [17, 17]
    for some, others in zip(copied, streamed, strict=True):
        assert [pair for pair in zip(some, others, strict=True) if pair[0] != pair[1]] == []
    assert {event["op"] for event in result.mirrored.events("copied")} == {"read"}
    assert {event["op"] for event in result.mirrored.events("streamed")} == {"insert"}


def test_generated_columns_are_copied_as_far_as_their_changes_come(result: Result) -> None:
    events = {name: [*result.mirrored.events(name)[0]["after"]] for name in ("computed",)}
    assert events["computed"] == (["id", "a", "b"] if result.version == 18 else ["id", "a"])
    assert result.pipeline.lake("select id, a from public.computed order by id") == [(1, 5), (2, None)]
    if result.version == 18:
        assert result.pipeline.lake("select b from public.computed order by id") == [(10,), (None,)]
        virtual = [event["after"] for event in result.mirrored.events("virtual_column")]
        assert virtual == [{"id": number, "a": number} for number in range(1, 11)]


def test_heirs_are_tables_of_their_own(result: Result) -> None:
    rows = result.mirrored.source("select id, v from only parent order by id")
    assert result.pipeline.lake("select * from public.parent order by id") == rows
    assert [(event["op"], event["after"]["v"]) for event in result.mirrored.events("parent")] == [
        ("read", "parent")
    ] * 30
    assert result.pipeline.lake("select count(*) from public.child") == [(41,)]


def test_partitions_are_in_their_root_alone(result: Result) -> None:
    targets = result.pipeline.lake(
        "select source_table from penstock.tables where source_table similar to '(deep|parted).*'"
    )
    assert sorted(targets) == [("deep",), ("parted",)]


def test_what_cannot_be_captured_is_left_out_and_check_says_so(result: Result) -> None:
    tables = {table.qualified_name for table in result.pipeline.pipeline.tables()}
    assert tables.isdisjoint(LEFT_OUT)
    assert [name for name in LEFT_OUT if name not in result.left_out] == []
