"""One pipeline, two rounds of awkward changes, many looks at the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.end_to_end.awkward_tables import FIRST, SECOND, SETUP
from tests.end_to_end.mirrored import Mirrored

pytestmark = pytest.mark.spark

NOT_COMPARED = ("computed", "typed", "parted_low", "parted_high")  # those have tests of their own


@pytest.fixture(scope="module", params=[18, 16])
def mirrored(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirrored]:
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{request.param}")
    name = "awkward 'names\" ü"
    pipeline = Mirrored(spark, server.create_database(name), tmp_path_factory.mktemp("awkward"))
    pipeline.execute(*SETUP)
    pipeline.init()
    for changes in (FIRST, SECOND):
        pipeline.execute(*changes)
        pipeline.sync()
    yield pipeline
    server.drop_database(name)


@pytest.mark.parametrize("schema", ["a.b", "a", "drop table; --", 'Ünï 🐘 "x" y', "select", "public"])
def test_source_and_target_are_equal(mirrored: Mirrored, schema: str) -> None:
    differences = mirrored.differences(schema, without=NOT_COMPARED)
    assert differences
    assert {table: rows for table, rows in differences.items() if rows} == {}


def test_names_that_only_differ_in_capitals_stay_apart(mirrored: Mirrored) -> None:
    columns = mirrored.target(
        "select target_table, columns from lake.penstock.tables where source_table in ('Users', 'users')"
    )
    assert sorted(table.lower() for table, _ in columns) == ["users", "users_2"]
    rows = [row for table, _ in columns for row in mirrored.target(f'select * from "{table}"')]
    assert sorted(rows, key=repr) == [(1, "Countess", "ada"), (2, None, "")]


def test_a_table_without_columns_is_in_the_events(mirrored: Mirrored) -> None:
    assert [(event["op"], event["after"]) for event in mirrored.events("nothing")] == [("insert", {})]


def test_null_stays_apart_from_an_empty_string_in_events(mirrored: Mirrored) -> None:
    inserted = [event["after"] for event in mirrored.events("nulls", ["insert"])]
    assert [(row["v"], row["w"]) for row in inserted] == [
        (None, ""), ("", None), ("NULL", "\\N"), ("null", '""'), ("\t\n\r", " "),
    ]  # fmt: skip


def test_a_partitioned_table_is_one_table(mirrored: Mirrored) -> None:
    assert {event["table"] for event in mirrored.events() if str(event.get("table")).startswith("parted")} == {"parted"}


def test_a_generated_column_is_right_where_the_server_sends_it(mirrored: Mirrored) -> None:
    names = [name for (name,) in mirrored.target("select column_name from (describe computed)")]
    assert names[:2] == ["id", "a"]
    assert mirrored.target("select id, a from computed order by id") == [(1, 5), (2, None)]
    if "b" in names:
        assert mirrored.target("select b from computed order by id") == [(10,), (None,)]


def test_domains_and_enums_have_their_base_types(mirrored: Mirrored) -> None:
    rows = mirrored.target("select * from typed order by id")
    moods = ["sad", "happy, or so", None, '"quoted"', "sad"]
    assert rows == [(1, 8, "abc", "sad", moods, [1, None, 3]), (2, None, "", '"quoted"', [], None)]


def test_what_was_rolled_back_never_shows(mirrored: Mirrored) -> None:
    inserted = [event["after"]["id"] for event in mirrored.events("saved", ["insert"])]
    assert inserted == [1, 3, 4, 5, 7]


def test_a_truncate_of_two_tables_is_one_event_for_each(mirrored: Mirrored) -> None:
    truncates = [event for event in mirrored.events(ops=["truncate"]) if event["schema"] == "public"]
    assert Counter(event["table"] for event in truncates) == {"saved": 1, "lines": 1}
    assert len({(event["lsn"], event["sequence"]) for event in truncates}) == 1


def test_messages_arrive_and_our_own_do_not(mirrored: Mirrored) -> None:
    messages = mirrored.events(ops=["message"])
    assert len(messages) == 2
    assert [message["xid"] > 0 for message in messages] == [True, False]


def test_changes_are_numbered_within_their_transaction_and_in_order(mirrored: Mirrored) -> None:
    places = [(event["lsn"].zfill(20), event["sequence"]) for event in mirrored.events()]
    assert places == sorted(places)
    large = [event for event in mirrored.events("large") if event["op"] != "insert"]
    assert [event["sequence"] for event in large] == [1, 2, 3, 4, 5]


def test_an_unchanged_large_value_is_named_and_not_sent(mirrored: Mirrored) -> None:
    update = mirrored.events("large", ["update"])[0]
    assert update["unchanged"] == ["big"]
    assert "big" not in update["after"]


def test_an_update_of_a_row_with_a_key_kept_out_of_line_says_its_key(mirrored: Mirrored) -> None:
    ((key,),) = mirrored.source("select k from long_keys")
    assert [event["key"] for event in mirrored.events("long_keys", ["update"])] == [{"k": key}] * 2


def test_delivering_again_changes_nothing(mirrored: Mirrored) -> None:
    before = [path.name for path in sorted(Path(mirrored.files).iterdir())]
    mirrored.deliver()
    assert [path.name for path in sorted(Path(mirrored.files).iterdir())] == before
