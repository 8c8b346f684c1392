"""The way out after a source was set back, as the operator goes it: destroy, run, and the sinks hold what the source does."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.comparison import differences, duckdb_rows, source_rows
from tests.recovery.pipeline_under_test import ITEMS, PipelineUnderTest
from tests.recovery.process_under_test import RunningPipeline
from tests.recovery.server_copies import ServerCopy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]


def run_once(pipeline: PipelineUnderTest, log: Path) -> int:
    return RunningPipeline(pipeline.file, log, "--once").wait(300)


def wrong_in_tables(pipeline: PipelineUnderTest) -> list[str]:
    """Not in the events: those of the lost history were delivered, and stay."""
    with psycopg.connect(pipeline.url) as connection:
        rows = source_rows(connection, ITEMS)
    in_lake = differences("DuckDB", ITEMS, rows, duckdb_rows(pipeline.lake, [ITEMS])[ITEMS])
    return in_lake + pipeline.wrong_in_replica()


def test_after_destroy_and_run_the_sinks_hold_the_new_history_alone(
    server_directory: Path, tmp_path: Path, target_database: str
) -> None:
    log = tmp_path / "run.log"
    with EmbeddedPostgres(server_directory) as server:
        pipeline = PipelineUnderTest(
            server.create_database("shop"), tmp_path, target=target_database, source=", mode: copy_and_stream"
        )
        pipeline.execute("create table items (id int primary key, value text)")
        pipeline.insert(1, 10)
        assert run_once(pipeline, log) == 0, log.read_text()
        copy = ServerCopy(server)
        pipeline.execute("insert into items values (11, 'lost'); update items set value = 'lost' where id = 1")
        pipeline.execute("delete from items where id = 2")
        assert run_once(pipeline, log) == 0, log.read_text()
        held = pipeline.position()

        copy.restore()
        pipeline.execute("insert into items values (12, 'new'); update items set value = 'new' where id = 3")
        pipeline.execute(
            "create table other as select rpad(n::text, 1000) from generate_series(1, 500) n; drop table other"
        )
        assert pipeline.committed_now() > held
        assert run_once(pipeline, log) == 1
        assert "The source was set back" in log.read_text()
        assert "penstock destroy" in log.read_text()

        pipeline.pipeline.destroy()
        assert run_once(pipeline, log) == 0, log.read_text()
        assert wrong_in_tables(pipeline) == []

        pipeline.insert(100, 110)
        assert run_once(pipeline, log) == 0, log.read_text()
        assert wrong_in_tables(pipeline) == []
