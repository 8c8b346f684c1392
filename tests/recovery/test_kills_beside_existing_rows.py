"""Imports into tables that have rows of somebody else's (``existing_rows: keep``), killed while they are made."""

from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pytest

from penstock import failpoints
from tests.recovery.importing import ImportingPipeline
from tests.recovery.parcels import PARCELS, Load, create_parcels

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]

COUNT = 200
THEIRS = -1_000_000_000  # a key that the source never has
TABLE = "create table public.parcels (id int, note text, body text, mine text)"
ROWS = f"insert into public.parcels values ({THEIRS}, 'theirs', '', 'x'), (1, 'old', 'old', 'y')"
FOUND = f"select note, mine from public.parcels where id = {THEIRS}"


def test_an_import_beside_rows_of_somebody_else_that_dies_goes_on_from_there(
    database: str, target_database: str, tmp_path: Path
) -> None:
    create_parcels(database, COUNT)
    directory = tmp_path / "p"
    with ImportingPipeline(database, directory, target=target_database, settings=", existing_rows: keep") as pipeline:
        with psycopg.connect(target_database, autocommit=True) as target:
            target.execute(f"{TABLE}; {ROWS}".encode())
        with duckdb.connect(directory / "lake.duckdb") as lake:
            lake.execute(f"create schema public; {TABLE}; {ROWS}")
        with Load(database, COUNT, seed=5).flowing():
            for sink, point in (
                ("replica", failpoints.IMPORT_CAUGHT_UP), ("replica", failpoints.TABLE_SWAPPED),
                ("lake", failpoints.IMPORT_CAUGHT_UP),
            ):  # fmt: skip
                pipeline.dies_at(point, "--sink", sink)
            running = pipeline.start()
            pipeline.await_streaming()
        pipeline.await_arrival()
        assert running.stop() == 0
        with psycopg.connect(target_database, autocommit=True) as target:
            assert target.execute(FOUND.encode()).fetchall() == [("theirs", "x")]
            target.execute(f"delete from public.parcels where id = {THEIRS}".encode())
        with duckdb.connect(directory / "lake.duckdb") as lake:
            assert lake.execute(FOUND).fetchall() == [("theirs", "x")]
            lake.execute(f"delete from public.parcels where id = {THEIRS}")
        assert pipeline.wrong([PARCELS]) == []
        assert pipeline.leftovers() == []
