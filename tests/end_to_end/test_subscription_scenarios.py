"""The subjects of Postgres's own tests of logical replication, into a target that the sink makes and one of the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.end_to_end.replicated import Streamed, execute, rows
from tests.end_to_end.subscription_tables import ROUNDS, SOURCE, made_by_the_user

pytestmark = pytest.mark.spark

Contents = dict[str, list[tuple[Any, ...]]]  # the rows of each table

TABLES = sorted(
    statement.split()[2]
    for statement in SOURCE
    if statement.startswith("create table ") and " partition of " not in statement
)
AS_INSERTED = "by_nothing"  # its updates and deletes are not sent
OTHERWISE = {"generated_there": "id, a", "virtual_here": "id, a"}  # what a target of the user's own has of the source's


@dataclass
class Replicas:
    source: str
    made: str
    own: str
    rounds: list[dict[str, Contents]] = field(default_factory=list)

    def look(self) -> None:
        self.rounds.append({name: self._contents(name) for name in ("source", "made", "own")})

    def _contents(self, name: str) -> Contents:
        return {table: rows(self._url(name), self._query(table)) for table in TABLES}

    def _url(self, name: str) -> str:
        return str(getattr(self, name))

    def _query(self, table: str) -> str:
        columns = OTHERWISE.get(table) or ", ".join(
            f"{name}::text"
            for (name,) in rows(
                self.source,
                f"select quote_ident(attname) from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 "
                "and not attisdropped order by attnum",
            )
        )
        return f"select {columns} from {table} order by {columns}" if columns else f"select from {table}"


@pytest.fixture(scope="module")
def replicas(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    settings = {"max_prepared_transactions": "5", "logical_decoding_work_mem": "64kB"}
    with EmbeddedPostgres(version=18, settings=settings) as server:
        source, made, own = (server.create_database(name) for name in ("source", "made", "own"))
        found = Replicas(source, made, own)
        targets: Mapping[str, Mapping[str, Any]] = {
            "made": {"url": found.made}, "own": {"url": found.own, "schema": "existing"},
        }  # fmt: skip
        pipeline = Streamed(spark, found.source, tmp_path_factory.mktemp("subscription"), targets)
        execute(found.source, *SOURCE)
        execute(found.own, *made_by_the_user())
        pipeline.init()
        for statements in ROUNDS:
            execute(found.source, *statements)
            pipeline.sync()
            found.look()
        yield found


def of_round(replicas: Replicas, number: int, where: str) -> Contents:
    return replicas.rounds[number - 1][where]


@pytest.mark.parametrize("where", ["made", "own"])
@pytest.mark.parametrize("table", [table for table in TABLES if table != AS_INSERTED])
def test_a_table_is_equal_after_every_round(replicas: Replicas, table: str, where: str) -> None:
    assert any(contents["source"][table] for contents in replicas.rounds)
    for number, contents in enumerate(replicas.rounds, 1):
        assert contents[where][table] == contents["source"][table], f"after round {number}"


@pytest.mark.parametrize("where", ["made", "own"])
def test_of_a_table_without_a_replica_identity_inserts_and_truncates_arrive_and_nothing_else(
    replicas: Replicas, where: str
) -> None:
    assert of_round(replicas, 2, "source")[AS_INSERTED] == [("1", "changed"), ("3", "later")]
    assert of_round(replicas, 2, where)[AS_INSERTED] == [("1", "as inserted"), ("2", "as inserted"), ("3", "later")]
    assert of_round(replicas, 3, where)[AS_INSERTED] == [("9", "after")]


def test_unlogged_and_temporary_tables_and_materialized_views_do_not_come_to_be(replicas: Replicas) -> None:
    found = rows(replicas.made, "select relname::text from pg_class where relnamespace = 'public'::regnamespace")
    assert {"not_logged", "passing", "seen"}.isdisjoint({name for (name,) in found})
    assert ("saved",) in found


def test_a_partitioned_table_is_made_as_an_ordinary_one_and_its_partitions_are_not_made(replicas: Replicas) -> None:
    kinds = rows(
        replicas.made,
        "select relname::text, relkind::text from pg_class where relname ~ '^parted' and relkind in ('r', 'p')",
    )
    assert sorted(kinds) == [("parted", "r"), ("parted_otherwise", "r")]


def test_rows_are_in_the_partitions_that_the_target_has_for_them(replicas: Replicas) -> None:
    placed = "select tableoid::regclass::text, id from {} order by id, 1"
    assert rows(replicas.own, placed.format("to_parted")) == [("to_parted_1", 4), ("to_parted_2", 40)]
    found = rows(replicas.own, placed.format("bag_to_parted"))
    assert found == [("bag_to_parted_1", 1), ("bag_to_parted_1", 1), ("bag_to_parted_2", 2), ("bag_to_parted_2", 2)]


def test_columns_that_only_the_target_has_get_their_defaults_and_keep_their_values(replicas: Replicas) -> None:
    found = rows(replicas.own, "select id, v, note, at is not null from extended order by id")
    assert found == [(1, "c", "mine", True), (2, "b", "mine", True), (3, "c", "mine", True)]


def test_a_column_that_only_the_target_generates_is_left_to_it(replicas: Replicas) -> None:
    assert rows(replicas.own, "select id, a, b from generated_there order by id") == [(1, 5, 15), (2, None, None)]


def test_a_column_that_only_the_source_generates_is_written(replicas: Replicas) -> None:
    assert rows(replicas.own, "select id, a, b from generated_here order by id") == [(1, 5, 10), (2, None, None)]


def test_a_virtual_column_is_made_as_one(replicas: Replicas) -> None:
    assert rows(replicas.made, "select id, a, b from virtual_here order by id") == [(1, 5, 10), (2, None, None)]
    kind = "select attgenerated::text from pg_attribute where attrelid = 'virtual_here'::regclass and attname = 'b'"
    assert rows(replicas.made, kind) == [("v",)]


def test_of_the_targets_triggers_only_those_enabled_for_replicas_and_always_fire(replicas: Replicas) -> None:
    fired = rows(replicas.own, "select what, count(*) from fired group by 1 order by 1")
    assert fired == [("always INSERT", 3), ("always UPDATE", 1), ("replica INSERT", 3)]


def test_foreign_keys_of_the_target_neither_cascade_nor_refuse(replicas: Replicas) -> None:
    assert rows(replicas.own, "select id, other from referring order by id") == [(1, 1), (2, 2)]
    assert rows(replicas.own, "select id from referred_to") == [(3,)]


def test_truncate_cascade_empties_every_table_that_it_empties_in_the_source(replicas: Replicas) -> None:
    for where in ("made", "own"):
        found = of_round(replicas, 2, where)
        assert (found["parents"], found["children"], found["grandchildren"]) == ([("7",)], [("7", "7")], [])


def test_sequences_stand_where_the_sources_stand_also_after_truncate_restart_identity(replicas: Replicas) -> None:
    for sequence in ("numbered_id_seq", "numbered_serial_id_seq", "alone_id_seq"):
        value = f"select last_value, is_called from {sequence}"
        assert rows(replicas.made, value) == rows(replicas.source, value)
    assert rows(replicas.made, "select last_value from alone_id_seq") == [(1,)]


def test_truncate_restart_identity_restarts_the_sequence_of_a_table_of_the_users_own(replicas: Replicas) -> None:
    assert rows(replicas.own, "select last_value, is_called from alone_id_seq") == [(101, False)]


def test_an_identity_that_is_always_generated_takes_the_sources_values(replicas: Replicas) -> None:
    kind = "select attidentity::text from pg_attribute where attrelid = 'numbered'::regclass and attname = 'id'"
    for where in (replicas.made, replicas.own):
        assert rows(where, kind) == [("a",)]
        assert rows(where, "select id, v from numbered order by id") == [(1, "c"), (3, "d"), (100, "c")]


def test_a_prepared_transaction_arrives_when_it_is_committed_and_not_when_it_is_rolled_back(replicas: Replicas) -> None:
    for where in ("made", "own"):
        assert [of_round(replicas, number, where)["prepared"] for number in (1, 2)] == [[("1",)], [("1",), ("3",)]]


def test_a_source_in_another_encoding_arrives_in_the_targets(
    spark: SparkSession, postgres18: EmbeddedPostgres, target_database: str, tmp_path: Path
) -> None:
    postgres18.execute("create database latin_source template template0 encoding latin1 lc_collate 'C' lc_ctype 'C'")
    source = postgres18.url_of("latin_source")
    pipeline = Streamed(spark, source, tmp_path, {"replica": {"url": target_database}})
    execute(source, "set client_encoding = utf8", 'create table "größe" (id int primary key, "maß" text)')
    pipeline.init()
    execute(source, "set client_encoding = utf8", "insert into \"größe\" values (1, 'Grüße'), (2, 'ÿ')")
    pipeline.sync()
    assert rows(target_database, 'select id, "maß" from "größe" order by id') == [(1, "Grüße"), (2, "ÿ")]
    postgres18.drop_database("latin_source")
