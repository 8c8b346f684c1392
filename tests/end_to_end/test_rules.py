"""Rules in a pipeline: imports and the stream alike bring what they let pass, into every kind of sink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import RuleError
from penstock.rules.transforms import parse_transform
from penstock.testing.conditions import wait_until
from tests.end_to_end.rows_in_sinks import in_any_order, in_file, in_target
from tests.imports.pipeline_with_imports import PipelineWithImports

RULES = """
rules:
  - tables: [public.people]
    where: {column: status, eq: active}
    columns:
      email: {transform: mask, kind: email}
      ssn: {transform: hash, salt: pepper}
      note: {exclude: true}
    rename: {table: persons, columns: {email: contact}}
  - tables: ["tenant_*.orders"]
    where: {column: amount, gt: 0}
    rename: {schema: everything, origin: {column: tenant, value: "{1}"}}
  - tables: [public.by_key, public.by_full, public.by_index]
    where: {any: [{column: amount, gte: 50}, {column: kind, in: [kept, "it's"]}]}
"""
SECRET = "123-45-6789"

PEOPLE = f"""
create table people (id int primary key, name text, email text, status text, ssn text, note text);
insert into people select n, 'name ' || n, 'someone.' || n || '@example.com',
    case when n % 3 = 0 then 'gone' else 'active' end, '{SECRET}-' || n, 'secret note ' || n from generate_series(1, 60) n;
"""
TENANTS = """
create schema tenant_a; create schema tenant_b;
create table tenant_a.orders (id int primary key, amount int, item text);
create table tenant_b.orders (id int primary key, amount int, item text);
insert into tenant_a.orders select n, n - 5, 'a' || n from generate_series(1, 20) n;
insert into tenant_b.orders select n, n - 5, 'b' || n from generate_series(1, 20) n;
"""
FILTERED = ("by_key", "by_full", "by_index")
BY_IDENTITY = """
create table {name} (id int primary key, code text not null unique, amount int, kind text, pad text);
insert into {name} select n, 'c' || n, n % 100, case n % 7 when 0 then 'kept' end, repeat('x', n % 50)
from generate_series(1, 300) n;
"""


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PEOPLE.encode())
        connection.execute(TENANTS)
        for name in FILTERED:
            connection.execute(BY_IDENTITY.format(name=name).encode())
        connection.execute("alter table by_full replica identity full")
        connection.execute("alter table by_index replica identity using index by_index_code_key")


def change(url: str, random: Random, times: int) -> None:
    """Rows come and go, and cross the filters in both directions, several times in one transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(times):
            with connection.transaction():
                for _ in range(random.randrange(1, 6)):
                    connection.execute(*_filtered_change(random))
                connection.execute(*_people_change(random))
                connection.execute(*_order_change(random))


def _filtered_change(random: Random) -> tuple[Any, Any]:
    name, key, other = random.choice(FILTERED), random.randrange(1, 320), random.randrange(400, 10**8)
    return random.choice(
        [
            (f"update {name} set amount = %s where id = %s", [random.randrange(100), key]),
            (f"update {name} set kind = %s where id between %s and %s", [random.choice(["kept", "it's", None]), key, key + 9]),
            (f"update {name} set id = %s, amount = %s where id = %s", [other, random.randrange(100), key]),
            (f"update {name} set code = %s where id = %s", [f"d{other}", key]),
            (f"delete from {name} where id = %s", [key]),
            (
                f"insert into {name} values (%s, %s, %s, null, 'new') on conflict (id) do update set amount = excluded.amount",
                [key, f"e{other}", random.randrange(100)],
            ),
        ]
    )  # fmt: skip


def _people_change(random: Random) -> tuple[Any, Any]:
    key = random.randrange(1, 80)
    return random.choice(
        [
            ("update people set status = %s where id = %s", [random.choice(["active", "gone"]), key]),
            ("update people set email = %s where id = %s", [f"x{key}@example.org", key]),
            (
                "insert into people values (%s, 'new', 'new@example.com', 'active', %s, 'secret note') "
                "on conflict (id) do update set ssn = excluded.ssn",
                [key, f"{SECRET}-{key}-b"],
            ),
            ("delete from people where id = %s", [key]),
        ]
    )


def _order_change(random: Random) -> tuple[Any, Any]:
    schema, key = random.choice(["tenant_a", "tenant_b"]), random.randrange(1, 30)
    return random.choice(
        [
            (f"update {schema}.orders set amount = %s where id = %s", [random.randrange(-5, 9), key]),
            (f"delete from {schema}.orders where id = %s", [key]),
            (
                f"insert into {schema}.orders values (%s, %s, 'new') on conflict do nothing",
                [key, random.randrange(-5, 9)],
            ),
        ]
    )


def _transformed(settings: dict[str, Any], value: str) -> str:
    made: str = parse_transform(settings).apply(pa.array([value]), None)[0].as_py()  # type: ignore[arg-type]
    return made


def _mask(email: str) -> str:
    return _transformed({"transform": "mask", "kind": "email"}, email)


def _hash(value: str) -> str:
    return _transformed({"transform": "hash", "salt": "pepper"}, value)


def expected(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        people = connection.execute(
            "select id, name, email, status, ssn from people where status = 'active'"
        ).fetchall()
        orders = connection.execute(
            "select id, amount, item, 'a' from tenant_a.orders where amount > 0 union all "
            "select id, amount, item, 'b' from tenant_b.orders where amount > 0"
        ).fetchall()
        found = {
            "public.persons": [(i, name, _mask(email), status, _hash(ssn)) for i, name, email, status, ssn in people],
            "everything.orders": orders,
        }
        for name in FILTERED:
            query = f"select id, code, amount, kind, pad from {name} where amount >= 50 or kind in ('kept', 'it''s')"
            found[f"public.{name}"] = connection.execute(query.encode()).fetchall()
    return {table: in_any_order(rows) for table, rows in found.items()}


COLUMNS = {
    "public.persons": "id, name, contact, status, ssn",
    "everything.orders": "id, amount, item, tenant",
    **{f"public.{name}": "id, code, amount, kind, pad" for name in FILTERED},
}


@pytest.fixture(scope="module")
def names(postgres18: Any) -> Iterator[tuple[str, str]]:
    yield postgres18.create_database("ruled"), postgres18.create_database("ruled_target")
    for name in ("ruled", "ruled_target"):
        postgres18.drop_database(name)


@pytest.fixture(scope="module")
def ran(names: tuple[str, str], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> PipelineWithImports:
    """Imported under changes, changed, imported again under changes, changed."""
    url, target = names
    prepare(url)
    pipeline = PipelineWithImports(
        url, tmp_path_factory.mktemp("ruled"), "workers: 2, chunk_bytes: 8KiB", target=target, sinks=RULES
    )
    random = Random(7)
    with pipeline.running(spark):
        change(url, random, 60)
        pipeline.await_streaming()
        change(url, random, 60)
        pipeline.pipeline.resync_tables(["tenant_a.orders", "public.people", "public.by_key"])
        change(url, random, 40)
        wait_until(lambda: "streaming" in set(pipeline.states().values()))
        pipeline.await_streaming()
        change(url, random, 20)
        pipeline.execute("alter table people add age int default 30")
        pipeline.execute("update people set age = 31 where id = 1")
        pipeline.await_arrival()
    return pipeline


def test_the_duckdb_file_holds_just_what_the_rules_let_pass(ran: PipelineWithImports) -> None:
    assert in_file(ran.directory / "lake.duckdb", COLUMNS) == expected(ran.url)


def test_the_replica_holds_just_what_the_rules_let_pass(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    assert in_target(ran.target, COLUMNS) == expected(ran.url)


def test_verify_finds_both_equal_to_what_the_rules_make_of_the_source(ran: PipelineWithImports) -> None:
    found = {(report.sink, report.qualified_name): report for report in ran.pipeline.verify(sinks=["lake", "replica"])}
    assert {table for _, table in found} == {
        "public.people", "tenant_a.orders", "tenant_b.orders", *(f"public.{name}" for name in FILTERED)
    }  # fmt: skip
    assert {place: report.state for place, report in found.items()} == dict.fromkeys(found, "equal")
    assert all(report.rows > 0 for report in found.values())


def test_the_rules_let_some_pass_and_hold_some_back(ran: PipelineWithImports) -> None:
    """Otherwise the tests above would say little."""
    found = expected(ran.url)
    for name in FILTERED:
        ((count,),) = ran.execute(f"select count(*) from {name}")
        assert 20 < len(found[f"public.{name}"]) < int(str(count)) - 20
    assert {row[3] for row in found["everything.orders"]} == {"a", "b"}


def test_events_have_the_names_and_values_of_the_rules(ran: PipelineWithImports) -> None:
    events = [
        json.loads(line)
        for file in sorted((ran.directory / "events").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    tables = {(event["schema"], event["table"]) for event in events if event["op"] not in ("schema", "message")}
    assert tables == {tuple(table.split(".")) for table in COLUMNS}
    rows = [event["after"] for event in events if event["table"] == "persons" and event.get("after")]
    assert {"id", "name", "contact", "status", "ssn"} <= set(rows[0])
    assert all("note" not in row and "email" not in row and "*" in row["contact"] for row in rows)


def test_a_new_column_comes_with_what_rows_have_in_it_already(ran: PipelineWithImports) -> None:
    assert ran.target is not None
    with duckdb.connect(str(ran.directory / "lake.duckdb"), read_only=True) as connection:
        in_file = set(connection.execute("select id, age from public.persons").fetchall())
    with psycopg.connect(ran.target) as target:
        in_target = set(target.execute("select id, age from persons").fetchall())
    assert in_file == in_target == set(ran.execute("select id, age from people where status = 'active'"))


def test_no_raw_value_is_in_a_sink_or_beside_it(ran: PipelineWithImports) -> None:
    """The change log alone has the source's own data."""
    assert ran.target is not None
    looked_at = [
        file
        for file in ran.directory.rglob("*")
        if file.is_file() and not file.is_relative_to(ran.directory / "state" / "log")
    ]
    assert any(file.suffix == ".jsonl" for file in looked_at)
    raw = (SECRET.encode(), b"secret note")
    assert [file for file in looked_at if any(value in file.read_bytes() for value in raw)] == []
    with psycopg.connect(ran.target) as connection:
        found = connection.execute("select p::text from persons p").fetchall()
    assert not any(value.decode() in row for (row,) in found for value in raw)


STRICT = """
rules:
  - tables: ["public.*"]
    coverage: strict
    columns: {{id: {{keep: true}}, ssn: {{transform: hash, salt: pepper}}{more}}}
"""


def test_a_new_column_that_no_rule_mentions_stops_a_strict_sink_before_it_leaks(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("create table people (id int primary key, ssn text); insert into people values (1, 'one')")
    pipeline = PipelineWithImports(database, tmp_path, sinks=STRICT.format(more=""))
    with pytest.raises(RuleError, match=r"No rule mentions the column nick of public\.people"):
        _add_a_column(pipeline, spark)
    log = tmp_path / "state" / "log"
    held = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_relative_to(log)]
    assert [file for file in held if b"leaks" in file.read_bytes()] == []

    mended = STRICT.format(more=", nick: {transform: literal, value: hidden}")
    pipeline = PipelineWithImports(database, tmp_path, sinks=mended)
    with pipeline.running(spark):
        pipeline.await_arrival()
    with duckdb.connect(str(tmp_path / "lake.duckdb"), read_only=True) as lake:
        assert lake.execute("select id, nick from public.people order by id").fetchall() == [
            (1, "hidden"),
            (2, "hidden"),
        ]


def _add_a_column(pipeline: PipelineWithImports, spark: SparkSession) -> None:
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.execute("alter table people add nick text default 'leaks'")
        pipeline.execute("insert into people values (2, 'two', 'leaks')")
        wait_until(
            lambda: all(
                (state := pipeline.state.sink(name)) and state.state == "failed" for name in ("lake", "events")
            ),
            what="both sinks to stop",
        )
