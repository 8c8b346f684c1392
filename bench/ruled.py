"""The same backlog drained into DuckDB by a pipeline with five rules and by one without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.parts import Part, wait_for_sink
from penstock.config.model import Config
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.testing.embedded_postgres import EmbeddedPostgres

RULE = {
    "tables": ["public.people"],
    "where": {"column": "age", "gte": 10},
    "columns": {
        "note": {"transform": "mask"},
        "name": {"transform": "full_name", "generator": "deterministic", "salt": "pepper"},
        "email": {"transform": "email", "generator": "deterministic", "salt": "pepper"},
        "phone": {"transform": "phone", "generator": "deterministic", "salt": "pepper"},
    },
}
_TABLE = "CREATE TABLE people (id bigint PRIMARY KEY, age int, note text, name text, email text, phone text)"
_ROW = (
    "g, g % 100, 'note number ' || g, 'customer number ' || g, 'customer' || g || '@example.com', "
    "'+49 30 ' || lpad((g % 10000000)::text, 7, '0')"
)


@contextmanager
def pipelines(postgres: EmbeddedPostgres, directory: Path) -> Iterator[tuple[Pipeline, Pipeline]]:
    """Without rules and with them, both with a Spark that is warm."""
    postgres.execute(_TABLE)
    plain, ruled = _pipeline(postgres, directory, "plain", ()), _pipeline(postgres, directory, "ruled", (RULE,))
    for pipeline in (plain, ruled):
        pipeline.init()
    with Part("deliver", plain), Part("deliver", ruled):
        for start in range(5):
            end = fill(postgres, 2000, 1 + 2000 * start)
            for pipeline in (plain, ruled):
                drain(pipeline, end)
        yield plain, ruled


def _pipeline(postgres: EmbeddedPostgres, directory: Path, name: str, rules: tuple[object, ...]) -> Pipeline:
    settings = {
        "name": name,
        "state_dir": str(directory / name),
        "source": {"url": postgres.url, "tables": {"include": ["public.people"]}, "mode": "stream"},
        "rules": rules,
        "sinks": [{"name": "lake", "type": "duckdb", "path": str(directory / f"{name}.duckdb")}],
    }
    return Pipeline(Config.model_validate(settings))


def fill(postgres: EmbeddedPostgres, rows: int, first: int) -> LSN:
    """In transactions of 1,000. Returns the position below which all of it is committed."""
    postgres.execute(
        f"""
        DO $$ BEGIN
            FOR start IN {first}..{first + rows - 1} BY 1000 LOOP
                INSERT INTO people SELECT {_ROW} FROM generate_series(start, least(start + 999, {first + rows - 1})) g;
                COMMIT;
            END LOOP;
        END $$
        """
    )
    with connect(postgres.url) as connection:
        return catalog.wal_marker(connection)


def drain(pipeline: Pipeline, end: LSN) -> float:
    begun = time.monotonic()
    with Part("capture", pipeline):
        return wait_for_sink(pipeline, LSN(end - 4096)) - begun
