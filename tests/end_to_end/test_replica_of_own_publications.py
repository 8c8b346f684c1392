"""Publications of the user's own, copied and streamed into a replica: row filters, column lists, partitions by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.end_to_end.replicated import Replicated, execute, rows

pytestmark = pytest.mark.spark

_LONG = "(select string_agg(md5((n + {0})::text), '') from generate_series(1, 400) n)"

SOURCE = (
    "create table filtered (id int primary key, v text)",
    "create table filtered_full (id int primary key, keep bool, big text)",
    "alter table filtered_full replica identity full",
    "create table listed (id int primary key, a text, secret text not null default 'hidden', b int)",
    "create table only_inserts (id int primary key, v text)",
    "create table leafy (id int primary key, v text) partition by range (id)",
    "create table leafy_low partition of leafy for values from (0) to (100)",
    "create table leafy_high partition of leafy for values from (100) to (200)",
    "create table rooted (id int primary key, v text) partition by range (id)",
    "create table rooted_low partition of rooted for values from (0) to (100)",
    "create table rooted_high partition of rooted for values from (100) to (200)",
    "create table later (id int primary key, v text, twice int generated always as (id * 2) stored)",
    "create type mood as enum ('sad', 'fine')", "create table moody (id int primary key, mood mood, moods mood[])",
    "create table moody_later (id int primary key, mood mood)",
    "create table unpublished (id int primary key)",
    "insert into filtered select n, 'copied' from generate_series(1, 20) n",
    f"insert into filtered_full select n, n % 2 = 0, {_LONG.format(1)} from generate_series(1, 6) n",
    "insert into listed select n, 'copied', 'hidden', n from generate_series(1, 3) n",
    "insert into only_inserts values (1, 'copied'), (2, 'copied')",
    "insert into leafy values (1, 'copied'), (2, 'copied'), (150, 'copied'), (151, 'copied')",
    "insert into rooted values (1, 'copied'), (2, 'copied'), (150, 'copied')",
    "insert into later select n, 'copied' from generate_series(1, 1000) n",
    "create publication most for table filtered where (id > 10), filtered_full where (keep), listed (id, a, b), leafy, moody "
    "with (publish_via_partition_root = false)",
    "create publication rooted_only for table rooted with (publish_via_partition_root = true)",
    "create publication inserts_only for table only_inserts with (publish = 'insert')",
)  # fmt: skip
# Partitioned on both sides, and otherwise than in the source.
TARGET = (
    "create table leafy (v text, id int primary key) partition by range (id)",
    "create table leafy_low partition of leafy for values from (0) to (100)",
    "create table leafy_high partition of leafy for values from (100) to (200)",
    "create table rooted (id int primary key, v text) partition by hash (id)",
    "create table rooted_0 partition of rooted for values with (modulus 2, remainder 0)",
    "create table rooted_1 partition of rooted for values with (modulus 2, remainder 1)",
)
CHANGES = (
    "update filtered set v = 'changed' where id in (5, 15)",
    "update filtered set id = 3000 where id = 3; update filtered set id = 0 where id = 20",
    "insert into filtered values (-9, 'not'), (30, 'inserted'); delete from filtered where id in (4, 14)",
    # Out of the filter, into it; the long value is not touched.
    "update filtered_full set keep = not keep where id in (1, 2); update filtered_full set id = 40 where id = 4",
    f"delete from filtered_full where id in (5, 6); update filtered_full set big = {_LONG.format(2)} where id = 40",
    "update listed set secret = 'more'; update listed set a = 'changed' where id = 1; delete from listed where id = 2",
    "insert into listed values (9, 'inserted', 'x', 9); update listed set id = 30 where id = 3",
    "update only_inserts set v = 'changed'; delete from only_inserts where id = 1; insert into only_inserts values (3, 'new')",
    "update leafy set id = 160 where id = 1; update leafy set v = 'changed' where id = 150",
    "truncate leafy_low", "insert into leafy values (3, 'after')",
    "update rooted set id = 160 where id = 1; update rooted set v = 'changed' where id = 150; delete from rooted where id = 2",
    "insert into moody values (1, 'fine', '{sad}')", "alter type mood add value 'so-so' before 'fine'",
    "alter type mood add value 'happy'", "insert into moody values (2, 'so-so', '{happy,so-so}')",
    "alter type mood add value 'elated'", "insert into moody_later values (1, 'elated')",
    "insert into unpublished values (1)",
)  # fmt: skip
# Between two looks: one table is away for a while, another gets a row filter that lets other rows through.
INTERRUPTIONS = (
    "alter publication most drop table listed",
    "insert into listed values (50, 'while it was away', 'x', 50); delete from listed where id = 9; update listed set b = 7",
    "alter publication most add table listed (id, a, b)",
    "alter publication most drop table filtered",
    "insert into filtered values (3, 'while it was away'), (31, 'while it was away'); delete from filtered where id = 12",
    "alter publication most add table filtered where (id < 16 or id = 31)",
)

LATER = ("later", "moody_later")
QUERIES = {
    "filtered": "select * from filtered where id > 10 order by id",
    "filtered_full": "select * from filtered_full where keep order by id",
    "listed": "select id, a, b from listed order by id",
    "leafy": "select tableoid::regclass::text, id, v from leafy order by id",
    "rooted": "select id, v from rooted order by id",
    "moody": "select id, mood::text, moods::text from moody order by mood",
    "moody_later": "select id, mood::text from moody_later",
    "later": "select id, v, twice from later order by id",
}


@dataclass
class Looks:
    source: str
    target: str
    steps: dict[str, list[tuple[Any, Any]]] = field(
        default_factory=dict
    )  # by table: the source's rows and the target's

    def look(self, *tables: str) -> None:
        for table in tables:
            query = QUERIES[table]
            self.steps.setdefault(table, []).append((rows(self.source, query), rows(self.target, query)))


@pytest.fixture(scope="module")
def looks(
    spark: SparkSession, postgres18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Looks]:
    names = "own_publications", "own_publications_copy"
    source, target = (postgres18.create_database(name) for name in names)
    execute(source, *SOURCE)
    execute(target, *TARGET)
    pipeline = Replicated(
        source, tmp_path_factory.mktemp("publications"), {"replica": {"url": target}},
        publication=["most", "rooted_only", "inserts_only"],
    )  # fmt: skip
    found = Looks(source, target)
    with pipeline.running(spark):
        pipeline.await_streaming(timeout=90)
        found.look(*(table for table in QUERIES if table not in LATER))
        execute(source, *CHANGES, f"alter publication most add table {', '.join(LATER)}")
        pipeline.pipeline.reconcile()
        execute(source, "update later set v = 'changed' where id = 7")
        wait_until(
            lambda: all(pipeline.states().get((f"public.{table}", "replica")) == "streaming" for table in LATER),
            timeout=90,
            what="the new tables",
        )
        execute(source, "delete from later where id = 8")
        pipeline.await_arrival(timeout=60)
        found.look(*QUERIES)
        execute(source, *INTERRUPTIONS)
        pipeline.pipeline.reconcile()
        pipeline.await_streaming(timeout=90)
        execute(source, "update listed set a = 'after' where id = 50; update filtered set v = 'after' where id = 31")
        pipeline.await_arrival(timeout=60)
        found.look("listed")
    yield found
    for name in names:
        postgres18.drop_database(name)


@pytest.mark.parametrize("table", QUERIES)
def test_a_table_is_as_its_publication_has_it_once_it_is_copied_and_after_changes(looks: Looks, table: str) -> None:
    assert len(looks.steps[table]) == (1 if table in LATER else 3 if table == "listed" else 2)
    assert looks.steps[table][-1][0]
    for source, target in looks.steps[table]:
        assert target == source


def test_what_a_row_filter_leaves_out_is_not_in_the_target(looks: Looks) -> None:
    assert rows(looks.target, "select * from filtered_full where keep is not true") == []


def test_rows_that_another_row_filter_lets_through_take_the_place_of_those_that_it_does_not(looks: Looks) -> None:
    query = "select * from filtered{} order by id"
    expected = rows(looks.source, query.format(" where id < 16 or id = 31"))
    assert {3, 31} < {id for id, _ in expected}
    assert rows(looks.target, query.format("")) == expected


def test_what_a_column_list_leaves_out_is_not_in_the_target(looks: Looks) -> None:
    names = "select attname::text from pg_attribute where attrelid = 'listed'::regclass and attnum > 0 order by attnum"
    assert rows(looks.target, names) == [("id",), ("a",), ("b",)]


def test_of_a_publication_of_inserts_the_rows_that_were_there_and_the_inserts_arrive(looks: Looks) -> None:
    found = rows(looks.target, "select id, v from only_inserts order by id")
    assert found == [(1, "copied"), (2, "copied"), (3, "new")]


def test_a_table_of_no_publication_is_not_in_the_target(looks: Looks) -> None:
    assert rows(looks.target, "select to_regclass('unpublished')") == [(None,)]


def test_partitions_by_themselves_follow_a_truncate_of_one_of_them(looks: Looks) -> None:
    found = rows(looks.target, "select id, v from leafy order by id")
    assert found == [(3, "after"), (150, "changed"), (151, "copied"), (160, "copied")]


def test_labels_that_an_enum_got_meanwhile_are_in_the_targets_too_in_their_order(looks: Looks) -> None:
    labels = "select enum_range(null::mood)::text"
    assert rows(looks.target, labels) == rows(looks.source, labels) == [("{sad,so-so,fine,happy,elated}",)]
