from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pytest

from penstock.config.model import Config
from penstock.pipeline import Pipeline
from tests.spark.standalone_cluster import standalone_cluster

pytestmark = pytest.mark.spark


def test_the_same_pipeline_runs_on_a_cluster(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture, delivery and executors are processes of their own, which share the state directory and nothing else."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with psycopg.connect(database, autocommit=True) as source, standalone_cluster(tmp_path) as cluster:
        conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m", "spark.executor.cores": "1"}  # fmt: skip
        config = Config.model_validate(
            {
                "name": "clustered", "state_dir": str(tmp_path / "state"), "source": {"url": database},
                "sinks": [
                    {"name": "lake", "type": "duckdb", "path": str(tmp_path / "lake.duckdb")},
                    {"name": "events", "type": "file", "path": str(tmp_path / "events")},
                ],
                "spark": {"master": cluster.url, "conf": conf},
            }
        )  # fmt: skip
        for table in ("one", "two"):
            source.execute(f"create table {table} (id int primary key, v text)".encode())
        Pipeline(config).init()
        for table in ("one", "two"):
            rows = "select n, repeat(md5(n::text), 4) from generate_series(1, 10000) n"
            source.execute(f"insert into {table} {rows}".encode())
            source.execute(
                f"update {table} set v = 'new' where id % 10 = 0; delete from {table} where id % 7 = 0".encode()
            )
        Pipeline(config).run(once=True)
        assert cluster.workers_used == 2
        with duckdb.connect(tmp_path / "lake.duckdb", read_only=True) as lake:
            for table in ("one", "two"):
                summary = f"select count(*), sum(id), min(md5(v)), max(md5(v)), count(distinct v) from public.{table}"
                assert lake.execute(summary).fetchone() == source.execute(summary.encode()).fetchone()
    lines = sum(path.read_bytes().count(b"\n") for path in (tmp_path / "events").glob("*.jsonl"))
    assert lines == 2 * (10_000 + 1_000 + 1_428) + 2
