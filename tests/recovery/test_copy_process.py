"""Imports in processes of their own: beside a pipeline that streams, several at once, alone, and once and for all."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.testing.conditions import wait_until
from tests.postgres.conftest import connection, guest
from tests.recovery.importing import ImportingPipeline
from tests.recovery.parcels import BAG, PARCELS, TABLES, Load, create_bag, create_parcels
from tests.recovery.workload import Table

__all__ = ["connection", "guest"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]


def test_copies_share_the_work_beside_a_run_that_only_streams_and_any_of_them_may_die(
    database: str, tmp_path: Path
) -> None:
    create_parcels(database, count := 600)
    create_bag(database)
    with ImportingPipeline(database, tmp_path / "p") as pipeline:
        with Load(database, count, seed=3, bag=True).flowing():
            run = pipeline.start("--no-copy")
            wait_until(lambda: pipeline.state.delivering("events"), timeout=120, what="the delivery to begin")
            only_bag = pipeline.start("--table", "bag", verb="copy")
            assert only_bag.wait(300) == 0, pipeline.said("copy")
            assert pipeline.states() == {
                (str(BAG), "lake"): "streaming",
                (str(BAG), "events"): "streaming",
                (str(PARCELS), "lake"): "pending",
                (str(PARCELS), "events"): "pending",
            }
            one, other = pipeline.start(verb="copy"), pipeline.start(verb="copy")
            await_two_copiers(database)
            one.kill_tree()
            pipeline.await_more_rows(30)
            run.kill_tree()
            run = pipeline.start("--no-copy")
            assert other.wait(300) == 0, pipeline.said("copy")
            assert pipeline.all_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong(TABLES) == []
        assert run.stop() == 0
        assert "begins anew" not in pipeline.said("copy")
        assert pipeline.leftovers() == []


def await_two_copiers(database: str) -> None:
    """Two that read chunks at the same moment."""
    query = "select count(distinct copier) from penstock.import_chunks where state = 'copying'"
    with psycopg.connect(database, autocommit=True) as connection:
        wait_until(lambda: connection.execute(query).fetchone() == (2,), timeout=300, what="two copiers at work")


NOTES = Table("public", "notes", ("id",), ("id",))


def test_a_table_that_may_not_be_read_is_an_error_and_once_it_may_the_next_command_brings_it(
    database: str, guest: str, tmp_path: Path
) -> None:
    create_parcels(database, 50)
    create_bag(database)
    owned_by(database, guest)
    with ImportingPipeline(make_conninfo(database, user=guest), tmp_path / "p") as pipeline:
        assert pipeline.start(verb="copy").wait(300) == 1
        assert f'GRANT SELECT ON "public"."notes" TO "{guest}"' in pipeline.said("copy").splitlines()[-1]
        assert {str(NOTES)} == {name for (name, _), state in pipeline.states().items() if state != "streaming"}
        assert pipeline.wrong(TABLES) == []

        pipeline.execute("insert into parcels values (1000, 'later', 'later')")
        assert pipeline.start("--once").wait(300) == 1, "it may not be read yet"
        assert pipeline.wrong(TABLES) == []

        pipeline.execute(sql.SQL("grant select on notes to {}").format(sql.Identifier(guest)).as_string())
        assert pipeline.start("--once").wait(300) == 0, pipeline.said()
        assert pipeline.wrong([*TABLES, NOTES]) == []

        pipeline.pipeline.resync_tables(["notes"])
        pipeline.execute("insert into notes values (3)")
        assert pipeline.start(verb="copy").wait(300) == 0, pipeline.said("copy")
        assert pipeline.wrong([*TABLES, NOTES]) == []
        assert pipeline.leftovers() == []


def owned_by(database: str, role: str) -> None:
    """All tables, and the right to capture them; but ``notes`` is not to be read."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table notes (id int primary key); insert into notes values (1), (2)")
        connection.execute(
            sql.SQL(
                "alter role {role} replication; grant create on database {database} to {role};"
                "alter table parcels owner to {role}; alter table bag owner to {role};"
                "alter table notes owner to {role}; revoke select on notes from {role}"
            ).format(role=sql.Identifier(role), database=sql.Identifier(connection.info.dbname))
        )


@pytest.mark.parametrize("arguments", [(), ("--table", "parcels")], ids=["all tables", "one table"])
def test_mode_copy_ends_by_itself_leaves_nothing_in_the_source_and_can_be_done_again(
    database: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    create_parcels(database, count := 50)
    create_bag(database)
    with ImportingPipeline(database, tmp_path / "p", mode="copy") as pipeline:
        with Load(database, count, seed=4, bag=True).flowing():
            assert pipeline.start().wait(300) == 0, pipeline.said()
        assert of_penstock(pipeline) == []
        pipeline.execute("delete from parcels where mod(id, 3) = 0")
        assert pipeline.start(*arguments, verb="copy").wait(300) == 0, pipeline.said("copy")
        assert of_penstock(pipeline) == []
        assert pipeline.wrong(TABLES if not arguments else [PARCELS]) == []


def of_penstock(pipeline: ImportingPipeline) -> list[tuple[object, ...]]:
    """What there is of it in the source."""
    return pipeline.execute(
        "select slot_name::text from pg_replication_slots where database = current_database() "
        "union all select pubname::text from pg_publication "
        "union all select nspname::text from pg_namespace where nspname = 'penstock'"
    )
