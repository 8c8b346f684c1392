"""Tables, publication and imports are kept in step: which imports become due, and which sinks wait for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.changelog.admission import Ready, read_admission, write_holds, write_ready
from penstock.errors import ConfigError, SourceRefused
from penstock.imports import jobs
from penstock.imports.handover import Handover, Manifest
from penstock.imports.jobs import Job
from penstock.imports.manager import Choices, choices
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres.connection import Connection
from penstock.postgres.reading.layout import table_layout
from tests.cli.command import write_config

SINKS = [
    {"name": "lake", "type": "duckdb", "path": "lake.duckdb"},
    {"name": "files", "type": "file", "path": "events"},
]
FROM = LSN(0x1000)


def a_pipeline(url: str, directory: Path, mode: str = "copy_and_stream", **source: Any) -> Pipeline:
    file = write_config(directory, url, SINKS, source={"url": url, "mode": mode, **source})
    return Pipeline.from_file(file)


@pytest.fixture
def pipeline(database: str, connection: Connection, tmp_path: Path) -> Pipeline:
    connection.execute("create table public.t (id int primary key); create table public.u (id int primary key)")
    made = a_pipeline(database, tmp_path)
    made.init()
    made.reconcile()
    return made


def oid_of(connection: Connection, table: str = "public.t") -> int:
    (oid,) = connection.execute("select %s::regclass::oid", [table]).fetchone() or (0,)
    return int(oid)


def job_of(connection: Connection, sink: str, table: str = "t") -> Job:
    found = [j for j in jobs.active_jobs(connection, "shop") if (j.sink, j.table_name) == (sink, table)]
    return found[0]


def complete(pipeline: Pipeline, connection: Connection, sink: str = "files") -> Job:
    """As if the table had been imported."""
    job = job_of(connection, sink)
    jobs.completed(connection, job.id)
    write_ready(pipeline.state.parts, sink, 1, {job.table_oid: Ready(job.id, FROM)}, {})
    return job


def test_what_is_complete_stays_as_it_is(pipeline: Pipeline, connection: Connection) -> None:
    job = complete(pipeline, connection)
    pipeline.reconcile()
    assert job_of(connection, "files").id == job.id
    assert read_admission(pipeline.state.parts, "files").after(job.table_oid) == FROM


def test_a_sink_that_is_to_be_filled_anew_waits_even_if_the_import_before_ends_meanwhile(
    pipeline: Pipeline, connection: Connection
) -> None:
    before = job_of(connection, "files")
    pipeline.resync_tables(["t"])
    write_ready(pipeline.state.parts, "files", 1, {before.table_oid: Ready(before.id, FROM)}, {})
    admission = read_admission(pipeline.state.parts, "files")
    assert admission.after(before.table_oid) is None
    assert admission.holds[before.table_oid] <= job_of(connection, "files").id


def test_a_sink_that_swaps_tables_goes_on_with_the_old_one(pipeline: Pipeline, connection: Connection) -> None:
    job = complete(pipeline, connection, "lake")
    pipeline.resync_tables(["t"])
    assert read_admission(pipeline.state.parts, "lake").after(job.table_oid) == FROM


def test_a_sink_that_waits_for_an_import_that_nobody_queued_gets_one(
    pipeline: Pipeline, connection: Connection
) -> None:
    job = complete(pipeline, connection)
    write_holds(pipeline.state.parts, "files", {job.table_oid: job.id + 1})
    pipeline.reconcile()
    made = job_of(connection, "files")
    assert (made.state, made.id > job.id, made.again) == ("pending", True, True)
    assert read_admission(pipeline.state.parts, "files").holds[job.table_oid] <= made.id


def test_a_table_that_was_away_in_mode_stream_is_imported_again_later(
    pipeline: Pipeline, connection: Connection, database: str, tmp_path: Path
) -> None:
    job = complete(pipeline, connection)
    streaming = a_pipeline(database, tmp_path, "stream")
    streaming.remove_tables(["t"])
    streaming.add_tables(["t"])
    a_pipeline(database, tmp_path).reconcile()
    assert job_of(connection, "files").id > job.id
    assert read_admission(pipeline.state.parts, "files").after(job.table_oid) is None


def test_a_table_that_comes_back_to_a_users_publication_is_imported_before_its_changes_are_taken(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    connection.execute("create table public.t (id int primary key); create publication mine for table public.t")
    pipeline = a_pipeline(database, tmp_path, publication="mine")
    pipeline.init()
    pipeline.reconcile()
    job = complete(pipeline, connection)
    connection.execute("alter publication mine drop table public.t")
    pipeline.reconcile()
    assert job_of(connection, "files").state == "removed"
    connection.execute("alter publication mine add table public.t")
    pipeline.reconcile()
    assert job_of(connection, "files").state == "pending"
    assert read_admission(pipeline.state.parts, "files").after(job.table_oid) is None


def test_what_is_left_of_imports_that_ended_goes(pipeline: Pipeline, connection: Connection) -> None:
    handover = Handover(pipeline.state.root, "files")
    for table in ("t", "u"):
        job = job_of(connection, "files", table)
        layout = table_layout(connection, job.table_oid, ["shop"])
        assert layout is not None
        handover.write_manifest(Manifest(job.id, layout.relation, FROM))
    pipeline.resync_tables(["t"])
    pipeline.reconcile()
    assert [manifest.relation.table for manifest in handover.manifests()] == ["u"]


def test_a_choice_that_cannot_be_carried_out_is_not_kept(
    connection: Connection, database: str, guest: str, tmp_path: Path
) -> None:
    connection.execute("create table public.secret (id int primary key)")
    connection.execute(
        sql.SQL("alter role {0} replication; grant create on database {1} to {0}; create schema own authorization {0}").format(
            sql.Identifier(guest), sql.Identifier(connection.info.dbname)
        )
    )  # fmt: skip
    pipeline = a_pipeline(make_conninfo(database, user=guest), tmp_path, tables={"include": ["own.*"]})
    pipeline.init()
    with pytest.raises(SourceRefused, match="must be owner"):
        pipeline.add_tables(["secret"])
    assert choices(connection, "shop") == Choices()
    pipeline.reconcile()


def test_what_cannot_be_done_to_a_table_is_a_mistake_of_who_asks(pipeline: Pipeline, connection: Connection) -> None:
    connection.execute("create table public.parted (id int primary key) partition by range (id)")
    connection.execute("create table public.part partition of public.parted for values from (0) to (9)")
    with pytest.raises(ConfigError, match=r"a partition of public\.parted"):
        pipeline.add_tables(["part"])
    pipeline.remove_tables(["t"])
    for verb in (pipeline.remove_tables, pipeline.resync_tables):
        with pytest.raises(ConfigError, match="no table t in the subscription"):
            verb(["t"])
    with pytest.raises(ConfigError, match="no table nosuch"):  # and nothing is done to the other one
        pipeline.resync_tables(["u", "nosuch"])
    assert {table.state for table in pipeline.tables() if table.table == "u"} == {"pending"}


def test_a_users_publication_is_his_own_to_edit(connection: Connection, database: str, tmp_path: Path) -> None:
    connection.execute("create table public.t (id int primary key); create publication mine for table public.t")
    pipeline = a_pipeline(database, tmp_path, publication="mine")
    pipeline.init()
    for verb in (pipeline.add_tables, pipeline.remove_tables):
        with pytest.raises(ConfigError, match="publications of yours"):
            verb(["t"])
    assert pipeline.resync_tables(["t"]) == ['public.t will be copied again to "lake", "files".']


def test_of_two_tables_whose_names_look_alike_the_one_with_the_shorter_schema_is_meant(
    pipeline: Pipeline, connection: Connection
) -> None:
    connection.execute('create schema a; create schema "a.b"')
    connection.execute('create table a."b.c" (id int primary key); create table "a.b".c (id int primary key)')
    pipeline.add_tables(["a.b.c"])
    assert {(table.schema, table.table) for table in pipeline.tables()} >= {("a", "b.c")}
    connection.execute("insert into penstock.table_choices values ('shop', 'a.b', 'c', 'add')")
    pipeline.reconcile()
    pipeline.remove_tables(["a.b.c"])
    left = {(table.schema, table.table): table.state for table in pipeline.tables()}
    assert (left["a", "b.c"], left["a.b", "c"]) == ("removed", "pending")
