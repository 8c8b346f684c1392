"""Code in rules in a pipeline: rows of imports and changes go through it, on the way to every kind of sink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.testing.conditions import wait_until
from tests.end_to_end.rows_in_sinks import in_any_order, in_file, in_target
from tests.imports.pipeline_with_imports import PipelineWithImports

RULES = """
rules:
  - tables: [public.by_sql, public.by_sql_full]
    sql: "select *, amount * 100 as cents from changes where amount > 0"
  - tables: [public.joined]
    columns: {{note: {{transform: hash, salt: pepper}}}}
    sql: >-
      select c.*, r.label, upper(c.note) as loud from changes c left join parquet.`{labels}` r on r.kind = c.kind
      where c.amount > 0 or c._op = 'never'
    rename: {{table: labelled, columns: {{label: kind_label}}}}
  - tables: [public.by_python]
    python: rules_of_the_shop:in_python
  - tables: [public.by_frame]
    python_frame: rules_of_the_shop:in_spark
"""
MODULE = """
import pyarrow.compute as pc


def in_python(table):
    kept = table.filter(pc.greater(table["amount"], 0))
    return kept.append_column("cents", pc.cast(pc.multiply(kept["amount"], 100), "int64", safe=False))


def in_spark(changes):
    from pyspark.sql import functions as F

    return changes.where("amount > 0").withColumn("cents", (F.col("amount") * 100).cast("bigint"))
"""
TABLES = ("by_sql", "by_sql_full", "joined", "by_python", "by_frame", "untouched")
TABLE = """
create table {name} (id int primary key, amount numeric(10,2), kind text, note text, made timestamptz, raw numeric);
insert into {name} select n, n % 7 - 3, case n % 3 when 0 then 'a' when 1 then 'b' end, 'note ' || n,
    timestamptz '2024-01-01' + n * interval '1 minute', n * 1.10 from generate_series(1, {rows}) n;
"""
TARGETS = {
    **{f"public.{name}": f"select id, amount, kind, note, made, raw, (amount * 100)::numeric from {name} where amount > 0"
       for name in ("by_sql", "by_sql_full", "by_python", "by_frame")},
    "public.labelled": "select id, amount, kind, case kind when 'a' then 'first' when 'b' then 'second' end, made, raw "
    "from joined where amount > 0",
    "public.untouched": "select id, amount, kind, note, made, raw from untouched",
}  # fmt: skip
COLUMNS = {
    **{f"public.{name}": "id, amount, kind, note, made, raw, cents"
       for name in ("by_sql", "by_sql_full", "by_python", "by_frame")},
    "public.labelled": "id, amount, kind, kind_label, made, raw",
    "public.untouched": "id, amount, kind, note, made, raw",
}  # fmt: skip


def prepare(url: str, directory: Path) -> str:
    """Returns the rules of the config."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name in TABLES:
            connection.execute(TABLE.format(name=name, rows=300 if name == "by_sql" else 150).encode())
        connection.execute("alter table by_sql_full replica identity full")
    labels = directory / "labels.parquet"
    pq.write_table(pa.table({"kind": ["a", "b"], "label": ["first", "second"]}), labels)
    (directory / "rules_of_the_shop.py").write_text(MODULE)
    return RULES.format(labels=labels)


def change(url: str, random: Random, times: int) -> None:
    """Rows come and go, change their keys, and cross the filters in both directions, several times in a transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(times):
            with connection.transaction():
                for _ in range(random.randrange(1, 8)):
                    connection.execute(*_change(random))


def _change(random: Random) -> tuple[Any, Any]:
    name, key, other = random.choice(TABLES), random.randrange(1, 170), random.randrange(400, 10**8)
    amount = random.randrange(-400, 400) / 100
    return random.choice(
        [
            (f"update {name} set amount = %s where id = %s", [amount, key]),
            (f"update {name} set amount = -amount where id between %s and %s", [key, key + 9]),
            (f"update {name} set kind = %s where id = %s", [random.choice(["a", "b", None]), key]),
            (f"update {name} set id = %s, amount = %s where id = %s", [other, amount, key]),
            (f"delete from {name} where id = %s", [key]),
            (
                f"insert into {name} values (%s, %s, 'a', 'new', now(), 1.50) "
                "on conflict (id) do update set amount = excluded.amount",
                [key, amount],
            ),
        ]
    )


def _as_text(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Numbers by their value, whatever type a target has for them."""
    return in_any_order([(*row[:4], row[4].timestamp(), *(float(value) for value in row[5:])) for row in rows])


def expected(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        return {table: _as_text(connection.execute(query.encode()).fetchall()) for table, query in TARGETS.items()}


@pytest.fixture(scope="module")
def names(postgres18: Any) -> Iterator[tuple[str, str]]:
    yield postgres18.create_database("coded"), postgres18.create_database("coded_target")
    for name in ("coded", "coded_target"):
        postgres18.drop_database(name)


@pytest.fixture(scope="module")
def ran(names: tuple[str, str], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> PipelineWithImports:
    """Imported under changes, changed, imported again under changes, changed."""
    url, target = names
    directory = tmp_path_factory.mktemp("coded")
    rules = prepare(url, directory)
    pipeline = PipelineWithImports(url, directory, "workers: 2, chunk_bytes: 16KiB", target=target, sinks=rules)
    random = Random(11)
    with pipeline.running(spark):
        change(url, random, 20)
        pipeline.await_streaming()
        change(url, random, 60)
        pipeline.execute("truncate by_frame")
        change(url, random, 20)
        pipeline.pipeline.resync_tables(["public.by_sql", "public.by_python"])
        change(url, random, 20)
        wait_until(lambda: "streaming" in set(pipeline.states().values()))
        pipeline.await_streaming()
        change(url, random, 20)
        pipeline.execute("insert into by_sql values (2000000001, 5, 'a', 'late', now(), 1.00)")
        pipeline.execute("alter table joined add extra int")
        pipeline.execute("update joined set extra = 31 where id = 100")
        pipeline.execute("insert into joined values (2000000001, 5, 'a', 'late', now(), 1.00, 32)")
        pipeline.await_arrival()
    return pipeline


def test_the_duckdb_file_holds_just_what_the_code_makes_of_the_rows(ran: PipelineWithImports) -> None:
    assert in_file(ran.directory / "lake.duckdb", COLUMNS, _as_text) == expected(ran.url)


def test_the_replica_holds_just_what_the_code_makes_of_the_rows(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    assert in_target(ran.target, COLUMNS, _as_text) == expected(ran.url)


def test_the_code_lets_some_pass_and_holds_some_back(ran: PipelineWithImports) -> None:
    """Otherwise the tests above would say little."""
    found = expected(ran.url)
    for name, target in (("by_sql", "by_sql"), ("joined", "labelled"), ("by_python", "by_python")):
        ((count,),) = ran.execute(f"select count(*) from {name}")
        assert 20 < len(found[f"public.{target}"]) < int(str(count)) - 20
    assert {row[3] for row in found["public.labelled"]} == {"first", "second", None}


def test_a_value_that_the_code_leaves_alone_arrives_as_it_was_written(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    with psycopg.connect(ran.target) as connection:
        target = connection.execute("select id, raw::text, note from by_sql order by id").fetchall()
    assert target == ran.execute("select id, raw::text, note from by_sql where amount > 0 order by id")


def test_columns_of_the_target_have_types_of_postgres(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    with psycopg.connect(ran.target) as connection:
        types: dict[str, str] = dict(
            connection.execute(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute "
                "where attrelid = 'by_sql'::regclass and attnum > 0"
            ).fetchall()
        )
    assert types == {
        "id": "integer", "amount": "numeric(10,2)", "kind": "text", "note": "text", "made": "timestamp with time zone",
        "raw": "numeric", "cents": types["cents"],
    }  # fmt: skip
    assert types["cents"].startswith("numeric(")


def test_code_sees_what_transforms_leave(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    with psycopg.connect(ran.target) as connection:
        found = connection.execute("select note, loud from labelled").fetchall()
    assert found
    assert all(loud == note.upper() and "NOTE" not in loud for note, loud in found)


def test_events_have_the_columns_that_the_code_makes(ran: PipelineWithImports) -> None:
    events = [
        json.loads(line)
        for file in sorted((ran.directory / "events").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    rows = [event["after"] for event in events if event["table"] == "by_sql" and event.get("after")]
    assert {tuple(row) for row in rows} == {("id", "amount", "kind", "note", "made", "raw", "cents")}
    assert {event["op"] for event in events if event["table"] == "by_sql"} >= {"read", "insert", "update", "delete"}


def test_a_new_column_comes_with_the_rows_that_are_written_from_then_on(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    wanted = ran.execute("select id, extra from joined where extra is not null and amount > 0 order by id")
    with duckdb.connect(str(ran.directory / "lake.duckdb"), read_only=True) as connection:
        query = "select id, extra from public.labelled where extra is not null order by id"
        assert connection.execute(query).fetchall() == wanted
    with psycopg.connect(ran.target) as replica:
        assert replica.execute(query.encode()).fetchall() == wanted
    assert (2000000001, 32) in wanted


def test_nothing_of_the_rows_is_left_beside_the_sinks(ran: PipelineWithImports) -> None:
    left = [file for file in (ran.directory / "state" / "staging").rglob("*") if file.is_file()]
    assert left == []


def test_code_that_does_not_fit_a_table_holds_up_that_table_alone(
    database: str, spark: SparkSession, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for name in ("fitting", "other"):
            connection.execute(f"create table {name} (id int primary key); insert into {name} values (1)".encode())
    rules = """
rules:
  - tables: [public.other]
    sql: select nope from changes
  - tables: [public.fitting]
    sql: select * from changes
"""
    pipeline = PipelineWithImports(database, tmp_path / "unfit", sinks=rules)
    with pipeline.running(spark):
        wanted = {("public.fitting", "lake"): "streaming", ("public.other", "lake"): "failed"}
        wait_until(lambda: wanted.items() <= pipeline.states().items(), what="one table to stream, the other to fail")
        errors = {table.error for table in pipeline.pipeline.tables() if table.state == "failed"}
    assert errors
    assert all(error is not None and "rules[0].sql: Spark does not understand it" in error for error in errors)
