"""Where tables stand with sinks, by the queue in a real source and by the file that copiers write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.control.status import status
from penstock.errors import LogError
from penstock.imports import jobs
from penstock.imports.chunk_queue import chunks_staged
from penstock.imports.jobs import NewJob
from penstock.imports.progress import TableStatus
from penstock.pipeline import Pipeline
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading.chunks import plan_chunks
from penstock.postgres.reading.layout import table_layout
from penstock.state.pipeline_state import now
from tests.cli.command import write_config

SINKS = [{"name": name, "type": "file", "path": name} for name in ("lake", "files")]
MEMBERS = {
    "schema", "table", "sink", "state", "rows_copied", "rows_estimated", "bytes_copied", "bytes_estimated",
    "rows_per_second", "seconds_left", "phase", "waiting_for", "error",
}  # fmt: skip


def a_pipeline(url: str, directory: Path, mode: str = "copy_and_stream") -> Pipeline:
    return Pipeline.from_file(write_config(directory, url, SINKS, source={"url": url, "mode": mode}))


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> Pipeline:
    with connect(database) as connection:
        connection.execute("create table public.a (id int primary key); create table public.b (id int primary key)")
    made = a_pipeline(database, tmp_path)
    made.init()
    return made


def told(pipeline: Pipeline) -> dict[tuple[str, str], TableStatus]:
    return {(table.table, table.sink): table for table in status(pipeline.config).tables}


def oid_of(connection: Connection, table: str) -> int:
    (oid,) = connection.execute("select oid from pg_class where relname = %s", [table]).fetchone() or (0,)
    return int(oid)


def job_for(connection: Connection, table: str, sink: str = "lake") -> int:
    wanted = NewJob(sink, oid_of(connection, table), "public", table)
    (job,) = jobs.create_jobs(connection, "shop", [wanted])
    return job.id


def set_job(connection: Connection, job: int, **values: Any) -> None:
    for column, value in values.items():
        connection.execute(f"update penstock.import_jobs set {column} = %s where id = %s".encode(), [value, job])


def test_a_published_table_without_an_import_is_pending_for_every_sink(pipeline: Pipeline) -> None:
    found = status(pipeline.config)
    assert found.healthy
    assert [(t.table, t.sink, t.state) for t in found.tables] == [
        ("a", "lake", "pending"), ("a", "files", "pending"), ("b", "lake", "pending"), ("b", "files", "pending"),
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["pending", "copying", "catching_up", "streaming", "failed"])
def test_each_state_of_an_import_is_told(state: str, pipeline: Pipeline, database: str) -> None:
    with connect(database) as connection:
        set_job(connection, job_for(connection, "a"), state=state, error="a hitch", rows_estimated=70)
    found = status(pipeline.config)
    table = next(t for t in found.tables if (t.table, t.sink) == ("a", "lake"))
    assert (table.state, table.rows_estimated) == (state, 70)
    assert table.error == ("a hitch" if state != "streaming" else None)
    assert found.healthy is (state != "failed")
    assert set(found.to_json()["tables"][0]) == MEMBERS


def test_rate_and_time_left_are_those_of_a_table_that_is_being_copied(pipeline: Pipeline, database: str) -> None:
    with connect(database) as connection:
        job, layout = job_for(connection, "a"), table_layout(connection, oid_of(connection, "a"), ["shop"])
        assert layout is not None
        (chunk,) = plan_chunks(connection, layout, chunk_bytes=1 << 20)
        jobs.start_copying(connection, job, layout, [chunk, replace(chunk, number=2)])
        chunks_staged(connection, job, {1: (1000, 5000)})
        connection.execute("update penstock.import_jobs set started_at = now() - interval '10 s' where id = %s", [job])
        table = told(pipeline)["a", "lake"]
        assert (table.rows_copied, table.bytes_copied) == (1000, 5000)
        assert table.rows_per_second == pytest.approx(100, rel=0.5)
        assert table.seconds_left == pytest.approx(10, rel=0.5)
        set_job(connection, job, state="catching_up")
    table = told(pipeline)["a", "lake"]
    assert (table.rows_per_second, table.seconds_left) == (None, None)


def test_whom_an_import_waits_for_is_told_until_it_has_ended(pipeline: Pipeline, database: str) -> None:
    with connect(database) as connection, connect(database, autocommit=False) as holding:
        holding.execute("insert into public.b values (1)")
        job_for(connection, "a")
        waiting = told(pipeline)
        assert f"pid {holding.info.backend_pid}" in (waiting["a", "lake"].waiting_for or "")
        assert waiting["b", "lake"].waiting_for is None
        holding.rollback()
        assert told(pipeline)["a", "lake"].waiting_for is None


def test_many_transactions_are_named_by_the_first_few(pipeline: Pipeline, database: str) -> None:
    sessions = [connect(database, autocommit=False) for _ in range(5)]
    try:
        for session in sessions:
            session.execute("select pg_current_xact_id()")
        with connect(database) as connection:
            job_for(connection, "a")
            text = told(pipeline)["a", "lake"].waiting_for or ""
    finally:
        for session in sessions:
            session.close()
    assert text.count("pid ") == 3
    assert text.endswith(" and 2 more")


def test_a_table_that_left_is_removed_and_one_that_came_back_is_pending(pipeline: Pipeline, database: str) -> None:
    with connect(database) as connection:
        for table in ("a", "b"):
            set_job(connection, job_for(connection, table), state="streaming")
        connection.execute("alter publication shop drop table public.a; drop table public.b")
        assert {key: table.state for key, table in told(pipeline).items()} == {
            ("a", "lake"): "removed", ("b", "lake"): "removed",
        }  # fmt: skip
        jobs.remove_jobs(connection, "shop", [oid_of(connection, "a")])
        connection.execute("alter publication shop add table public.a")
        assert told(pipeline)["a", "lake"].state == "pending"


def test_a_table_that_was_dropped_is_not_told_of_once_another_has_its_name(pipeline: Pipeline, database: str) -> None:
    pipeline.reconcile()
    with connect(database) as connection:
        connection.execute("drop table public.a; create table public.a (id int primary key)")
    pipeline.reconcile()
    assert [(t.table, t.state) for t in pipeline.tables() if t.sink == "lake"] == [("a", "pending"), ("b", "pending")]


def test_a_renamed_table_is_told_by_its_present_name(pipeline: Pipeline, database: str) -> None:
    with connect(database) as connection:
        set_job(connection, job_for(connection, "a"), state="streaming")
        connection.execute("alter table public.a rename to z")
    assert {key[0] for key in told(pipeline)} == {"b", "z"}
    assert told(pipeline)["z", "lake"].state == "streaming"


def test_imports_of_other_pipelines_and_of_sinks_that_are_gone_are_not_told(pipeline: Pipeline, database: str) -> None:
    with connect(database) as connection:
        set_job(connection, job_for(connection, "a", sink="given_up"), state="failed", error="x")
        other = NewJob("lake", oid_of(connection, "b"), "public", "b")
        (job,) = jobs.create_jobs(connection, "elsewhere", [other])
        set_job(connection, job.id, state="failed", error="x")
    found = status(pipeline.config)
    assert found.healthy
    assert {table.state for table in found.tables} == {"pending"}


def test_in_mode_stream_every_table_streams_whatever_was_imported_before(
    pipeline: Pipeline, database: str, tmp_path: Path
) -> None:
    with connect(database) as connection:
        set_job(connection, job_for(connection, "a"), state="failed", error="x")
    found = status(a_pipeline(database, tmp_path, mode="stream").config)
    assert found.healthy
    assert [table.state for table in found.tables] == ["streaming"] * 4


def test_before_init_there_are_no_tables(database: str, tmp_path: Path) -> None:
    assert status(a_pipeline(database, tmp_path).config).tables == []


# By the file alone.


def written(pipeline: Pipeline, content: object) -> None:
    pipeline.state.create()
    Path(pipeline.state.parts.path, "copying.json").write_text(json.dumps(content))


def figures(**values: Any) -> dict[str, Any]:
    return {"schema": "public", "table": "a", "sink": "lake", "state": "copying", "rows_copied": 5, **values}


@pytest.fixture
def unreachable(tmp_path: Path) -> Pipeline:
    return a_pipeline("postgresql://me@127.0.0.1:1/shop", tmp_path)


@pytest.mark.parametrize("ask_source", [False, True])
def test_without_the_source_the_copiers_file_tells(unreachable: Pipeline, ask_source: bool) -> None:
    pace = {"rows_per_second": 2.5, "seconds_left": 4.0}
    written(unreachable, {"updated_at": now(), "tables": [figures(**pace), figures(sink="gone"), figures(later="x")]})
    found = status(unreachable.config, ask_source).tables
    assert [(t.table, t.sink, t.rows_copied) for t in found] == [("a", "lake", 5)] * 2
    assert (found[0].rows_per_second, found[0].seconds_left) == (2.5, 4.0)


def test_the_pace_of_a_copier_that_fell_silent_is_not_told(unreachable: Pipeline) -> None:
    pace = {"rows_per_second": 2.5, "seconds_left": 4.0}
    written(unreachable, {"updated_at": now() - 60, "tables": [figures(**pace)]})
    (table,) = status(unreachable.config, ask_source=False).tables
    assert (table.state, table.rows_copied, table.rows_per_second, table.seconds_left) == ("copying", 5, None, None)


def test_a_table_that_failed_is_not_healthy_without_the_source_either(unreachable: Pipeline) -> None:
    assert status(unreachable.config, ask_source=False).healthy
    written(unreachable, {"updated_at": now(), "tables": [figures(state="failed", error="x")]})
    assert not status(unreachable.config, ask_source=False).healthy


@pytest.mark.parametrize(
    "content",
    [
        {}, [], {"updated_at": 1}, {"updated_at": "x", "tables": []}, {"updated_at": 1, "tables": [3]},
        {"updated_at": 1, "tables": [{"schema": "x"}]},
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_as_such(unreachable: Pipeline, content: object) -> None:
    written(unreachable, content)
    with pytest.raises(LogError, match=r"copying\.json is damaged"):
        status(unreachable.config, ask_source=False)
