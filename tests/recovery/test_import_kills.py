"""Imports that are killed, at named points and in the middle of everything: they go on where they were."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from penstock import failpoints
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.importing import ImportingPipeline
from tests.recovery.parcels import PARCELS, TABLES, Load, create_bag, create_parcels
from tests.recovery.workload import Table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]

PARCEL_COUNT = 500  # some twenty chunks for each sink
POINTS = {
    "lake": [
        f"{failpoints.CHUNK_STAGED}:4",
        f"{failpoints.CHUNK_COMMITTED}:3",
        failpoints.IMPORT_CAUGHT_UP,
        failpoints.IMPORT_ENDED,
    ],
    "events": [f"{failpoints.CHUNK_COMMITTED}:3", failpoints.IMPORT_ENDED],
    "replica": [
        f"{failpoints.CHUNK_COPIED}:2",
        f"{failpoints.CHUNK_KEPT}:3",
        failpoints.IMPORT_CAUGHT_UP,
        failpoints.TABLE_SWAPPED,
        failpoints.IMPORT_ENDED,
    ],
}


def test_an_import_that_dies_at_any_of_its_points_goes_on_from_there(
    database: str, target_database: str, tmp_path: Path
) -> None:
    create_parcels(database, PARCEL_COUNT)
    with ImportingPipeline(database, tmp_path / "p", target=target_database) as pipeline:
        with Load(database, PARCEL_COUNT, seed=1).flowing():
            for sink, points in POINTS.items():
                for point in points:
                    pipeline.dies_at(point, "--sink", sink)
            running = pipeline.start()
            pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong([PARCELS]) == []
        assert running.stop() == 0
        assert "begins anew" not in pipeline.said()
        assert pipeline.leftovers() == []


def test_a_copy_goes_on_whatever_is_killed_and_reads_nothing_twice_but_what_was_being_read(
    server_directory: Path, tmp_path: Path
) -> None:
    with EmbeddedPostgres(server_directory, settings={"log_statement": "all"}) as server:
        url = server.create_database("parcels")
        create_parcels(url, count := 700)
        create_bag(url)
        with ImportingPipeline(url, tmp_path / "p", target=server.create_database("replica")) as pipeline:
            allowed: Counter[int] = Counter()
            with Load(url, count, seed=2, bag=True).flowing():
                running = pipeline.start()
                for _ in range(3):
                    pipeline.await_more_rows(60)
                    running.kill_tree()
                    allowed.update(pages_in_flight(pipeline))
                    running = pipeline.start()
                for kill in (running.kill_jvm, running.kill_capture, running.kill_deliver, server.kill):
                    pipeline.await_more_rows(60)
                    kill()
                    server.start()
                pipeline.await_streaming()
            pipeline.await_arrival()
            assert pipeline.wrong(TABLES) == []
            assert running.stop() == 0
            assert "begins anew" not in pipeline.said()
            assert pipeline.leftovers() == []
        again = pages_read(server) - allowed
        sinks, workers, deaths_of_the_copier = 3, 2, 3
        assert sum((again - Counter(dict.fromkeys(again, sinks))).values()) <= workers * deaths_of_the_copier


NOISE = Table("public", "noise", ("id", "body"), ("id",))


def test_an_import_that_fills_the_log_gives_way_and_comes_again_when_less_is_written(
    database: str, tmp_path: Path
) -> None:
    """Otherwise capture would wait for room, and the import for capture."""
    create_parcels(database, PARCEL_COUNT)
    with ImportingPipeline(database, tmp_path / "p", log=", max_bytes: 1MiB") as pipeline:
        pipeline.execute("create table noise (id int generated always as identity primary key, body text)")
        running = pipeline.start()
        pipeline.await_more_rows()
        wait_until(lambda: written_in_vain(pipeline), timeout=120, what="the import to give way")
        pipeline.await_arrival(120)  # so capture goes on, and so do the other tables
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong([PARCELS, NOISE]) == []
        assert running.stop() == 0


def written_in_vain(pipeline: ImportingPipeline) -> bool:
    """Writes 100 KB, unless it has become too much already."""
    if "reached log.max_bytes" in pipeline.said():
        return True
    pipeline.execute(
        "insert into noise (body) select string_agg(md5(random()::text), '') from generate_series(1, 3200)"
    )
    return False


def pages_in_flight(pipeline: ImportingPipeline) -> list[int]:
    """The first pages of the chunks that a copier was reading when it was killed."""
    query = "select (chunk->>'first_page')::int from penstock.import_chunks where state = 'copying' and chunk ? 'leaf'"
    return [int(str(page)) for (page,) in pipeline.execute(query)]


def pages_read(server: EmbeddedPostgres) -> Counter[int]:
    """How often each page of the parcels was read as the first one of a chunk, by the server's own account."""
    log = (server.directory / "postgres.log").read_text(errors="replace")
    return Counter(int(page) for page in re.findall(r'copy \(select .*"parcels" where ctid >= \'\((\d+),0\)', log))
