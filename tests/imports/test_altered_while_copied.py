"""Tables that are altered, rewritten, renamed, emptied or dropped when half of them is copied: one run, many looks at it.

Each case has two tables, one that is acted on between its two chunks for DuckDB, one between those for the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.imports.living_pipeline import HeldCopies, LivingPipeline

pytestmark = pytest.mark.spark

ROWS = 40  # on two pages, which are a chunk each


@dataclass(frozen=True)
class Case:
    """What is done to a table, each statement in a transaction of its own; and what the table is called then."""

    actions: tuple[str, ...]
    then: str = "{t}"
    schema: str = "public"


CASES = {
    "attached": Case(("create table {t}_more (id int primary key, v text, pad text); "
                      "insert into {t}_more select n, 'more', 'x' from generate_series(1000, 1010) n; "
                      "alter table {t} attach partition {t}_more for values from (1000) to (2000)",
                      "insert into {t} values (1500, 'later', '')", "update {t} set v = 'changed' where id = 1001")),
    "clustered": Case(("create index on {t} (v)", "cluster {t} using {t}_v_idx")),
    "column_added": Case(("alter table {t} add w int not null default 7", "update {t} set w = 8 where id in (1, 40)")),
    "column_dropped": Case(("alter table {t} drop v",)),
    "detached": Case(("alter table {t} detach partition {t}_high",)),
    "dropped": Case(("drop table {t}",)),
    "emptied": Case(("truncate {t}",)),
    "emptied_and_attached": Case((
        "truncate {t}; create table {t}_more (id int primary key, v text, pad text); "
        "insert into {t}_more select n, 'more', 'x' from generate_series(1000, 1010) n; "
        "alter table {t} attach partition {t}_more for values from (1000) to (2000)",)),
    "handed_on": Case(("alter table {t} rename to {t}_old; create table {t} (id int primary key, v text, pad text); "
                       "insert into {t} select n, 'new', repeat('x', 300) from generate_series(21, 60) n",)),
    "moved": Case(("alter table {t} set schema elsewhere",), schema="elsewhere"),
    "refilled": Case(("truncate {t}; insert into {t} values (1, 'again', 'x')", "update {t} set v = 'and again'")),
    "rekeyed": Case(("alter table {t} drop constraint {t}_pkey, add primary key (v)", "delete from {t} where id = 2")),
    "renamed": Case(("alter table {t} rename to {t}_now", "delete from {t}_now where id = 30"), then="{t}_now"),
    "retyped": Case(("alter table {t} alter id type bigint using id * 1000000000000",
                     "delete from {t} where id = 3000000000000")),
    "unkeyed": Case(("alter table {t} drop constraint {t}_pkey, replica identity full", "update {t} set v = '' where id < 9")),
    "vacuumed": Case(("delete from {t} where id <= 20", "vacuum full {t}")),
}  # fmt: skip

PARTITIONED = ("attached", "detached", "emptied_and_attached")
# In the middle of the files' import; and on an older Postgres.
FOR_EVENTS = ("column_added", "dropped", "refilled", "renamed", "vacuumed")
ON_16 = ("attached", "renamed", "unkeyed", "vacuumed")


def _create(case: str, table: str) -> str:
    columns, parts = "(id int primary key, v text, pad text)", ""
    if case in PARTITIONED:
        columns += " partition by range (id)"
        parts = (
            f"create table {table}_low partition of {table} for values from (0) to (21);"
            f"create table {table}_high partition of {table} for values from (21) to (41);"
        )
    # So that another order turns the pages round.
    filling = f"insert into {table} select n, (1000 - n)::text, repeat('x', 300) from generate_series(1, {ROWS}) n"
    return f"create table {table} {columns}; {parts} {filling}"


def _places(version: int) -> list[tuple[str, str, str]]:
    """Table, sink and case."""
    cases = CASES if version == 18 else ON_16
    held = [("lake", sorted(cases, key=lambda case: f"{case}_lake")), ("events", sorted({*cases} & {*FOR_EVENTS}))]
    return [(f"{case}_{sink}", sink, case) for sink, some in held for case in some]


def run(url: str, directory: Path, spark: SparkSession, version: int) -> LivingPipeline:
    pipeline = LivingPipeline(url, directory)
    pipeline.execute("create schema elsewhere")
    for table, _, case in _places(version):
        pipeline.execute(_create(case, table))
    pipeline.pipeline.init()
    cases = {(table, sink, 2): CASES[case] for table, sink, case in _places(version)}
    with HeldCopies(pipeline.url) as copies:
        for chunk in cases:
            copies.hold(*chunk)
        with pipeline.running(spark):
            while cases:  # whichever the copier takes next: it passes over a sink that does not keep up
                chunk = copies.await_copier(*cases)
                for action in cases.pop(chunk).actions:
                    pipeline.execute(action.format(t=chunk[0]))
                copies.release(*chunk)
            pipeline.pipeline.reconcile()
            pipeline.await_settled()
            pipeline.await_arrival()
    return pipeline


@pytest.fixture(scope="module")
def pipelines(
    postgres18: EmbeddedPostgres,
    postgres16: EmbeddedPostgres,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[int, LivingPipeline]]:
    servers = {18: postgres18, 16: postgres16}
    yield {
        version: run(server.create_database("altered"), tmp_path_factory.mktemp("altered"), spark, version)
        for version, server in servers.items()
    }
    for server in servers.values():
        server.drop_database("altered")


EQUAL = [(version, *place) for version in (18, 16) for place in _places(version) if place[2] != "dropped"]


@pytest.mark.parametrize(("version", "table", "sink", "case"), EQUAL)
def test_a_table_that_changes_between_two_chunks_comes_out_equal(
    pipelines: dict[int, LivingPipeline], version: int, table: str, sink: str, case: str
) -> None:
    pipeline = pipelines[version]
    (found,) = pipeline.tables(CASES[case].then.format(t=table), schema=CASES[case].schema)
    assert pipeline.wrong_in(sink, [found]) == []


def test_both_tables_are_there_when_a_name_is_handed_on(pipelines: dict[int, LivingPipeline]) -> None:
    tables = pipelines[18].tables("handed_on_lake", "handed_on_lake_old")
    assert pipelines[18].wrong(tables) == []


def test_a_dropped_table_leaves_and_nothing_waits_for_it(pipelines: dict[int, LivingPipeline]) -> None:
    pipeline = pipelines[18]
    found = {(t.table, t.sink): t.state for t in pipeline.pipeline.tables() if t.table.startswith("dropped")}
    assert set(found.values()) == {"removed"}
    assert len(found) == 4
    manifests = [
        path for sink in ("lake", "events") for path in pipeline.directory.glob(f"state/imports/{sink}/*.json")
    ]
    assert manifests == [], "these would keep the log"
