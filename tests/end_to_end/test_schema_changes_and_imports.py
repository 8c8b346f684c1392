"""Commands that come while a table is imported, and commands after which it has to be imported again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from penstock.delivery.import_delivery import ImportDelivery
from penstock.imports.handover import Manifest
from penstock.lsn import LSN
from penstock.postgres.connection import connect
from penstock.schema.kinds import RetypeColumn
from penstock.schema.log.recomputations import recomputations
from penstock.sinks.contract import Sink
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.sinks.postgres.sink import PostgresSink
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.comparison import differences, duckdb_rows, source_rows
from tests.recovery.workload import Table

pytestmark = pytest.mark.spark

# By table: a command, and the table's columns after it.
ALTERED = {
    "widened": ("alter table widened add column size int not null default 7", ("id", "label", "size")),
    "renamed": ("alter table renamed rename column label to name", ("id", "name")),
    "recomputed": ("alter table recomputed alter column label type int using label::int * 2", ("id", "label")),
}
COMPUTED = {
    "turned": ("alter table turned alter column label type int using -label::int", ("id", "label")),
    "drawn": ("alter table drawn add column chance float8 default random()", ("id", "label", "chance")),
    "counted": (
        "alter table counted add column number int generated always as identity", ("id", "label", "number")
    ),
    "hidden": (
        "create function f() returns void language sql as "
        "'alter table hidden alter column label type int using -label::int'; select f()", ("id", "label"),
    ),
}  # fmt: skip


def create(pipeline: PipelineWithImports, tables: Iterable[str]) -> None:
    for table in tables:
        pipeline.execute(f"create table {table} (id int primary key, label text)")
        pipeline.execute(f"insert into {table} select n, n::text from generate_series(1, 50) n")


def wrong(pipeline: PipelineWithImports, columns: dict[str, tuple[str, ...]]) -> list[str]:
    """How the targets that follow schema changes differ from the source."""
    tables = [Table("public", name, some, ("id",)) for name, some in columns.items()]
    lake = duckdb_rows(pipeline.directory / "lake.duckdb", tables)
    found = []
    assert pipeline.target is not None
    with psycopg.connect(pipeline.url) as ours, psycopg.connect(pipeline.target) as theirs:
        for table in tables:
            rows = source_rows(ours, table)
            found += differences("DuckDB", table, rows, lake[table])
            found += differences("the replica", table, rows, source_rows(theirs, table))
    return found


def test_a_table_that_is_altered_when_all_of_it_is_read_is_read_again(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database)
    create(pipeline, ALTERED)
    catch_up, altered = ImportDelivery._catch_up, set[str]()

    def altering_first(delivery: ImportDelivery, manifest: Manifest) -> bool:
        table = manifest.relation.table
        if manifest.state == "catching_up" and table not in altered:
            altered.add(table)
            pipeline.execute(ALTERED[table][0])
            pipeline.execute(f"delete from {table} where id = 1")
            return False  # and comes again
        return catch_up(delivery, manifest)

    monkeypatch.setattr(ImportDelivery, "_catch_up", altering_first)
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.pipeline.reconcile()  # what another sink had already complete
        pipeline.await_streaming()
        for table in ALTERED:
            pipeline.execute(f"insert into {table} (id) values (99)")
        pipeline.await_arrival()
    assert altered == {*ALTERED}
    assert wrong(pipeline, {table: columns for table, (_, columns) in ALTERED.items()}) == []


def test_a_table_whose_values_were_computed_anew_is_imported_again_once(
    database: str, target_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", target=target_database)
    create(pipeline, COMPUTED)
    with pipeline.running(spark):
        pipeline.await_streaming()
        for table, (command, _) in COMPUTED.items():
            for statement in command.split("; "):
                pipeline.execute(statement)
            pipeline.execute(f"delete from {table} where id = 1")
        pipeline.pipeline.reconcile()
        pipeline.await_streaming()
        pipeline.await_arrival()
        jobs = pipeline.execute("select id from penstock.import_jobs")
        pipeline.pipeline.reconcile()
        assert pipeline.execute("select id from penstock.import_jobs") == jobs
    assert wrong(pipeline, {table: columns for table, (_, columns) in COMPUTED.items()}) == []


def test_a_plain_cast_or_a_constant_is_no_reason_to_import_again(database: str, tmp_path: Path) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p")
    create(pipeline, ["parts"])
    pipeline.pipeline.init()
    pipeline.execute("alter table parts alter column id type bigint")
    pipeline.execute("alter table parts add column note text default 'none'")
    pipeline.execute("vacuum full parts")
    with connect(database) as connection:
        found = recomputations(connection, LSN(1))
    sinks: list[Sink[Any, Any]] = [
        DuckDBSink(DuckDBSink.Settings(name="lake", path=tmp_path)),
        PostgresSink(PostgresSink.Settings(name="replica", url=SecretStr(""))),
    ]
    assert [(command.computed, type(change)) for command in found for change in command.changes] == [
        (False, RetypeColumn)
    ]
    assert all(sink.recomputes(change) for sink in sinks for command in found for change in command.changes)


def test_partitions_that_are_rewritten_are_told_of_with_their_root(database: str, tmp_path: Path) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p")
    pipeline.execute("create table years (id int, at int) partition by list (at)")
    pipeline.execute("create table y1 partition of years for values in (1)")
    pipeline.pipeline.init()
    pipeline.execute("alter table years alter column id type bigint using id * 2")
    with connect(database) as connection:
        (root,) = connection.execute("select 'public.years'::regclass::oid::int").fetchone() or (0,)
        assert any(root in command.oids and command.computed for command in recomputations(connection, LSN(1)))
