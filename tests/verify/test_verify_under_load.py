"""``penstock verify`` beside a pipeline that runs, on tables that are written to all the time."""

from __future__ import annotations

import random
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.errors import PenstockError
from penstock.pipeline import Pipeline
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.cli.command import Here, started, stopped_by, write_config

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLES = """
create table t (id int primary key, v int, word text);
insert into t select n, 0, 'x' from generate_series(1, 5000) n;
create table bag (v int);
alter table bag replica identity full;
insert into bag select n % 50 from generate_series(1, 500) n
"""


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Updates, deletes and inserts, each in a transaction of its own, until it is left."""
    stop, chance = threading.Event(), random.Random(4)

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.wait(0.005):
                some = [chance.randint(1, 5000) for _ in range(3)]
                connection.execute("update t set v = v + 1 where id between %s and %s + 20", [some[0], some[0]])
                connection.execute("delete from t where id = %s", [some[1]])
                connection.execute("insert into t values (%s, 0, 'y') on conflict do nothing", [some[2]])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def all_stream(pipeline: Pipeline) -> bool:
    try:
        found = pipeline.tables()
    except PenstockError:  # before the pipeline has made what it needs
        return False
    return len(found) == 4 and all(table.state == "streaming" for table in found)


def states(reports: Any) -> dict[tuple[str, str], str]:
    return {(report["sink"], report["table"]): report["state"] for report in reports}


def test_under_load_nothing_but_what_was_planted_is_reported(
    database: str, postgres18: EmbeddedPostgres, tmp_path: Path, penstock: Here
) -> None:
    name = f"replica_{uuid.uuid4().hex[:12]}"
    replica = postgres18.create_database(name)
    sinks = [
        {"name": "lake", "type": "duckdb", "path": "lake.duckdb"},
        {"name": "replica", "type": "postgres", "url": replica},
    ]
    file = write_config(tmp_path, database, sinks, source={"url": database, "mode": "copy_and_stream"})
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
    with started("run", file) as running:
        with traffic(database):
            wait_until(lambda: all_stream(Pipeline.from_file(file)), timeout=120, what="the tables to be copied")
            for _ in range(2):
                found = states(penstock.json("verify", file, "--json"))
                assert len(found) == 4
                assert set(found.values()) <= {"equal", "changing"}
            with psycopg.connect(replica, autocommit=True) as target:
                target.execute("insert into t values (9000, 0, 'planted')")
            (report,) = penstock.json("verify", file, "--json", "--sink", "replica", "--table", "t")
            assert [(found["key"], found["kind"]) for found in report["differences"]] == [({"id": "9000"}, "extra")]
        with psycopg.connect(replica, autocommit=True) as target:
            target.execute("delete from t where id = 9000")
        assert set(states(penstock.json("verify", file, "--json")).values()) == {"equal"}
        assert stopped_by(signal.SIGTERM, running) == 0
    Pipeline.from_file(file).destroy()
    postgres18.drop_database(name)
