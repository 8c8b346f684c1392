"""A table that left its publication and came back between two looks is imported again; one that did not is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.admission import Ready, read_admission, write_ready
from penstock.imports import jobs
from penstock.imports.jobs import Job
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres.connection import Connection
from tests.cli.command import write_config

SINKS = [
    {"name": "lake", "type": "duckdb", "path": "lake.duckdb"},
    {"name": "files", "type": "file", "path": "events"},
]
both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def a_pipeline(url: str, directory: Path, mode: str = "copy_and_stream", **source: Any) -> Pipeline:
    file = write_config(directory, url, SINKS, source={"url": url, "mode": mode, **source})
    return Pipeline.from_file(file)


def imported(pipeline: Pipeline, connection: Connection) -> dict[tuple[str, str], Job]:
    """As if all tables had been imported: the jobs, by sink and table."""
    pipeline.init()
    pipeline.reconcile()
    found = jobs.active_jobs(connection, "shop")
    for sink in ("lake", "files"):
        ready = {job.table_oid: Ready(job.id, LSN(0x1000)) for job in found if job.sink == sink}
        write_ready(pipeline.state.parts, sink, 1, ready, {})
    for job in found:
        jobs.begin(connection, job.id, LSN(0x1000), [])
        jobs.completed(connection, job.id)
    return by_name(connection)


def by_name(connection: Connection) -> dict[tuple[str, str], Job]:
    return {(job.sink, job.table_name): job for job in jobs.active_jobs(connection, "shop")}


def due(before: dict[tuple[str, str], Job], now: dict[tuple[str, str], Job]) -> set[str]:
    """Tables that are imported again, into both sinks."""
    again = {key for key, job in now.items() if key not in before or job.id != before[key].id}
    assert {(sink, table) for sink in ("lake", "files") for _, table in again} == again
    assert all(now[key].state == "pending" for key in again)
    return {table for _, table in again}


@pytest.fixture
def tables(connection: Connection) -> Connection:
    connection.execute("set search_path = public")
    connection.execute("create table t (id int primary key, v int, w int); create table u (id int primary key)")
    return connection


OWN = {
    "taken out and put back": (
        "table t, u", ("alter publication mine drop table t", "alter publication mine add table t"), {"t"},
    ),
    "another row filter": ("table t where (v > 1), u", ("alter publication mine set table t where (v > 2), u",), {"t"}),
    "no row filter": ("table t where (v > 1), u", ("alter publication mine set table t, u",), {"t"}),
    "another list of columns": ("table t (id, v), u", ("alter publication mine set table t (id, v, w), u",), {"t"}),
    "other operations": ("table t, u", ("alter publication mine set (publish = 'insert')",), {"t", "u"}),
    "made again": ("all tables", ("drop publication mine", "create publication mine for all tables"), {"t", "u"}),
    "the schema put back": (
        "tables in schema public",
        ("alter publication mine drop tables in schema public", "alter publication mine add tables in schema public"),
        {"t", "u"},
    ),
    "a table of the same name": ("all tables", ("drop table t", "create table t (id int primary key)"), {"t"}),
    "unlogged for a while": ("all tables", ("alter table t set unlogged", "alter table t set logged"), {"t"}),
    "one more table": ("table t", ("alter publication mine add table u",), {"u"}),
    "nothing": ("table t, u", ("alter publication mine set table t, u", "alter table t rename v to value"), set()),
}  # fmt: skip


@both_versions
@pytest.mark.parametrize("what", OWN)
def test_publications_of_the_user(tables: Connection, database: str, tmp_path: Path, what: str) -> None:
    held, statements, expected = OWN[what]
    tables.execute(f"create publication mine for {held}".encode())
    before = imported(a_pipeline(database, tmp_path, publication="mine"), tables)
    for statement in statements:
        tables.execute(statement.encode())
    # Another process: what is known is in the source, not in this one's memory.
    a_pipeline(database, tmp_path, publication="mine").reconcile()
    now = {key: job for key, job in by_name(tables).items() if job.state != "removed"}
    assert due(before, now) == expected
    a_pipeline(database, tmp_path, publication="mine").reconcile()
    assert due(now, {key: job for key, job in by_name(tables).items() if job.state != "removed"}) == set()


@both_versions
def test_a_sink_of_events_takes_no_change_of_the_table_before_its_new_import(
    tables: Connection, database: str, tmp_path: Path
) -> None:
    pipeline = a_pipeline(database, tmp_path)
    before = imported(pipeline, tables)
    tables.execute("alter publication shop drop table t; alter publication shop add table only t")
    pipeline.reconcile()
    now = by_name(tables)
    assert due(before, now) == {"t"}
    oid = now["files", "t"].table_oid
    assert read_admission(pipeline.state.parts, "files").after(oid) is None
    assert read_admission(pipeline.state.parts, "lake").after(oid) == LSN(0x1000)  # until the new one takes its place


@both_versions
def test_an_import_that_is_under_way_begins_again(tables: Connection, database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path)
    pipeline.init()
    pipeline.reconcile()
    before = by_name(tables)
    tables.execute("alter publication shop drop table t; alter publication shop add table only t")
    pipeline.reconcile()
    assert due(before, by_name(tables)) == {"t"}


def test_a_table_whose_import_failed_and_began_again_is_still_compared(
    tables: Connection, database: str, tmp_path: Path
) -> None:
    pipeline = a_pipeline(database, tmp_path)
    pipeline.init()
    pipeline.reconcile()
    pipeline.resync_tables(["t"])
    before = by_name(tables)
    pipeline.reconcile()
    assert due(before, by_name(tables)) == set()
    tables.execute("alter publication shop drop table t; alter publication shop add table only t")
    pipeline.reconcile()
    assert due(before, by_name(tables)) == {"t"}


@both_versions
@pytest.mark.parametrize("verb", ["init", "reconcile"])
def test_penstocks_own_edits_import_nothing_that_was_not_missed(
    tables: Connection, database: str, tmp_path: Path, verb: str
) -> None:
    pipeline = a_pipeline(database, tmp_path)
    before = imported(pipeline, tables)
    tables.execute("alter table t drop constraint t_pkey")  # so it moves to the publication of inserts
    getattr(pipeline, verb)()
    pipeline.reconcile()
    assert due(before, by_name(tables)) == set()
    tables.execute("alter table t add primary key (id)")  # its updates were not published meanwhile
    getattr(pipeline, verb)()
    pipeline.reconcile()
    assert due(before, by_name(tables)) == {"t"}


def test_an_edit_of_penstocks_does_not_hide_that_the_table_was_away_before(
    tables: Connection, database: str, tmp_path: Path
) -> None:
    pipeline = a_pipeline(database, tmp_path)
    before = imported(pipeline, tables)
    tables.execute("alter publication shop drop table t; alter publication shop add table only t")
    tables.execute("alter table t drop constraint t_pkey")
    pipeline.reconcile()
    assert due(before, by_name(tables)) == {"t"}


@both_versions
def test_in_mode_stream_where_nothing_is_imported_it_is_said(
    tables: Connection, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = a_pipeline(database, tmp_path, "stream")
    pipeline.init()
    pipeline.reconcile()
    tables.execute("alter table u drop constraint u_pkey")  # so Penstock moves it, which misses nothing
    for _ in range(2):
        a_pipeline(database, tmp_path, "stream").reconcile()
    assert caplog.messages == []
    tables.execute("alter publication shop drop table t; alter publication shop add table only t")
    for _ in range(2):
        a_pipeline(database, tmp_path, "stream").reconcile()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("public.t left its publication for a while")
