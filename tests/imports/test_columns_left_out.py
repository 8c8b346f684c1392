"""``exclude: source``: neither capture nor imports read the column, and what that asks of imports when tables change."""

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
from penstock.postgres.reading.chunks import chunk_query, plan_chunks
from penstock.postgres.reading.layout import table_layout
from tests.cli.command import write_config

FILES = {"name": "files", "type": "file", "path": "events"}
PUBLICATIONS = ("shop", "shop_inserts")
both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def a_pipeline(url: str, directory: Path, column: str | None = "ssn", tables: str = "public.*") -> Pipeline:
    rule = {"tables": [tables], "columns": {column: {"exclude": "source"}}}
    rules: list[Any] = [rule] if column else []
    source = {"url": url, "mode": "copy_and_stream"}
    return Pipeline.from_file(write_config(directory, url, [FILES], source=source, rules=rules))


@pytest.fixture
def pipeline(database: str, connection: Connection, tmp_path: Path) -> Pipeline:
    connection.execute("create table public.users (id int primary key, email text, ssn text)")
    made = a_pipeline(database, tmp_path)
    made.init()
    made.reconcile()
    return made


def job(connection: Connection) -> Job:
    (found,) = jobs.active_jobs(connection, "shop")
    return found


def complete(pipeline: Pipeline, connection: Connection) -> Job:
    """As if the table had been imported."""
    done = job(connection)
    jobs.completed(connection, done.id)
    write_ready(pipeline.state.parts, "files", 1, {done.table_oid: Ready(done.id, LSN(0x1000))}, {})
    return done


def columns_read(connection: Connection) -> list[str]:
    """By an import, which are those of changes as well."""
    layout = table_layout(connection, job(connection).table_oid, PUBLICATIONS)
    assert layout is not None
    (chunk,) = plan_chunks(connection, layout, 1 << 20)
    described = connection.execute(chunk_query(layout, chunk)).description
    assert described is not None
    names = [column.name for column in described]
    assert names == [column.name for column in layout.relation.columns]
    return names


@both_versions
def test_an_import_does_not_read_the_column(pipeline: Pipeline, connection: Connection) -> None:
    assert columns_read(connection) == ["id", "email"]


@both_versions
def test_a_column_that_comes_later_is_imported_and_the_sink_waits_for_that(
    pipeline: Pipeline, connection: Connection
) -> None:
    done = complete(pipeline, connection)
    connection.execute("alter table public.users add column phone text")
    changed = pipeline.reconcile()
    assert changed is not None
    assert changed.widened == ("public.users",)
    again = job(connection)
    assert again.id > done.id
    assert read_admission(pipeline.state.parts, "files").after(done.table_oid) is None
    assert columns_read(connection) == ["id", "email", "phone"]
    pipeline.reconcile()
    assert job(connection).id == again.id  # once is enough


def test_without_the_rule_the_column_comes_back_by_an_import(
    pipeline: Pipeline, connection: Connection, database: str, tmp_path: Path
) -> None:
    done = complete(pipeline, connection)
    a_pipeline(database, tmp_path, column=None).reconcile()
    assert job(connection).id > done.id
    assert columns_read(connection) == ["id", "email", "ssn"]


def test_a_rule_that_comes_later_takes_the_column_out_without_an_import(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    connection.execute("create table public.users (id int primary key, email text, ssn text)")
    before = a_pipeline(database, tmp_path, column=None)
    before.init()
    before.reconcile()
    done = complete(before, connection)
    changed = a_pipeline(database, tmp_path).reconcile()
    assert changed is not None
    assert changed.narrowed == ("public.users",)
    assert job(connection).id == done.id
    assert columns_read(connection) == ["id", "email"]


def test_a_column_that_gets_another_name_stays_in_the_database(pipeline: Pipeline, connection: Connection) -> None:
    connection.execute("alter table public.users rename column ssn to social")
    connection.execute("alter table public.users add column phone text")
    for _ in range(2):
        pipeline.reconcile()
        assert columns_read(connection) == ["id", "email", "phone"]


def test_a_column_under_its_new_name_in_the_rule_stays_in_the_database(
    pipeline: Pipeline, connection: Connection, database: str, tmp_path: Path
) -> None:
    connection.execute("alter table public.users rename column ssn to social")
    pipeline.reconcile()
    later = a_pipeline(database, tmp_path, column="social")
    done = complete(later, connection)
    later.reconcile()
    connection.execute("alter table public.users rename column social to number")
    later.reconcile()
    assert columns_read(connection) == ["id", "email"]
    assert job(connection).id == done.id
