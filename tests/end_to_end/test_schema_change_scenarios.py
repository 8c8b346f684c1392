"""Schema changes of all kinds, while the pipeline runs and while it is down, and beside a load that does not stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.end_to_end.schema_change_scenarios import SCENARIOS, perform, prepare
from tests.imports.pipeline_with_imports import PipelineWithImports

pytestmark = pytest.mark.spark

BUSY = "create schema busy; create table busy.t (id int primary key, v int, a text default 'a', b int)"
# One after the other, beside transactions that know of nothing but id and v.
ALTERING = (
    "alter table busy.t add c int default 3",
    "alter table busy.t rename a to a2",
    "alter table busy.t drop b",
    "alter table busy.t alter v type bigint",
    "alter table busy.t rename c to b",
    "alter table busy.t rename to t2; alter table busy.t2 rename to t",
    "alter table busy.t drop constraint t_pkey, add constraint other_key primary key (id)",
    "alter table busy.t add c text not null default 'new', drop a2",
)
_COLUMNS = """
select a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
    pg_get_expr(d.adbin, d.adrelid),
    exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary and a.attnum = any(i.indkey))
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by 1
"""
_TABLES = """
select c.relname::text from pg_class c where c.relnamespace = to_regnamespace(%s) and c.relkind in ('r', 'p')
and not c.relispartition order by 1
"""


@dataclass
class Replicas:
    source: str
    target: str
    lake: Path

    def differences(self, schema: str) -> list[str]:
        wrong = []
        with (
            psycopg.connect(self.source) as ours,
            psycopg.connect(self.target) as theirs,
            duckdb.connect(str(self.lake), read_only=True) as lake,
        ):
            tables = [name for (name,) in ours.execute(_TABLES, [schema])]
            assert tables
            for name in tables:
                table = sql.Identifier(schema, name)
                query = sql.SQL("select to_jsonb(t)::text from {} t order by 1").format(table)
                if ours.execute(query).fetchall() != theirs.execute(query).fetchall():
                    wrong.append(f"rows of {name} in Postgres")
                shapes = [side.execute(_COLUMNS, [table.as_string()]).fetchall() for side in (ours, theirs)]
                if shapes[0] != shapes[1]:
                    wrong.append(f"columns of {name} in Postgres: {shapes[1]}, not {shapes[0]}")
                wrong += self._in_duckdb(lake, ours, schema, name, [column for column, *_ in shapes[0]])
        return wrong

    @staticmethod
    def _in_duckdb(
        lake: duckdb.DuckDBPyConnection, ours: psycopg.Connection, schema: str, name: str, columns: list[str]
    ) -> Iterator[str]:
        texts = sql.SQL(", ").join(sql.SQL("{}::varchar").format(sql.Identifier(column)) for column in columns)
        query = sql.SQL("select {} from {}").format(texts, sql.Identifier(schema, name))
        try:
            found = lake.execute(query.as_string()).fetchall()
        except duckdb.Error as error:
            yield f"{name} in DuckDB: {error}"
        else:
            if sorted(map(repr, found)) != sorted(map(repr, ours.execute(query))):
                yield f"rows of {name} in DuckDB"


@pytest.fixture(scope="module", params=["while it runs", "while it is down"])
def replicas(
    request: pytest.FixtureRequest,
    postgres18: EmbeddedPostgres,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replicas]:
    source, target = postgres18.create_database("scenarios"), postgres18.create_database("scenarios_target")
    pipeline = PipelineWithImports(
        source,
        tmp_path_factory.mktemp("scenarios") / "p",
        target=target,
        target_settings=", on_drop: drop, on_error: dead_letter",
    )
    for name in SCENARIOS:
        prepare(source, name)
    pipeline.execute(BUSY)
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.await_arrival()
        if request.param == "while it runs":
            _act(source)
    if request.param == "while it is down":
        _act(source)
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.await_arrival(400)
    yield Replicas(source, target, pipeline.directory / "lake.duckdb")
    for name in ("scenarios", "scenarios_target"):
        postgres18.drop_database(name)


def _act(source: str) -> None:
    for name in SCENARIOS:
        perform(source, name)
    _alter_under_load(source)


def _alter_under_load(source: str) -> None:
    enough = threading.Event()

    def write() -> None:
        number = 0
        with psycopg.connect(source, autocommit=True) as connection:
            while not enough.is_set() or number < 50:
                number += 1
                connection.execute("insert into busy.t (id, v) values (%s, %s)", [number, number])
                connection.execute("update busy.t set v = v + 1 where mod(id, 7) = mod(%s, 7)", [number])
                connection.execute("delete from busy.t where id = %s", [number // 2])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with psycopg.connect(source, autocommit=True) as connection:
            for command in ALTERING:
                connection.execute(command.encode())
    finally:
        enough.set()
        writer.join(120)


@pytest.mark.parametrize("schema", [*SCENARIOS, "busy"])
def test_targets_follow_in_data_and_in_shape(schema: str, replicas: Replicas) -> None:
    assert replicas.differences(schema) == []


def test_no_row_is_a_dead_letter(replicas: Replicas) -> None:
    with psycopg.connect(replicas.target) as connection:
        assert connection.execute("select source_table, reason from penstock.dead_letters").fetchall() == []
