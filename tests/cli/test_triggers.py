"""``penstock init`` and ``destroy`` with the event triggers of the schema log."""

from __future__ import annotations

from pathlib import Path

from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.schema.log import triggers as schema_log
from tests.cli.command import Here, write_config


def installed(url: str) -> bool:
    with connect(url) as connection:
        return schema_log.installed(connection)


def test_init_creates_the_triggers_and_destroy_removes_them(database: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, database)
    made = penstock("init", file)
    assert (made.code, "Created event triggers that log schema changes." in made.err) == (0, True)
    assert installed(database)
    assert "event triggers" not in penstock("init", file).err
    removed = penstock("destroy", file)
    assert removed.code == 0
    assert "Removed event trigger penstock_ddl." in removed.err
    assert "Removed schema penstock." in removed.err
    assert not installed(database)


def test_who_wants_no_triggers_gets_none_later_either(database: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, database)
    made = penstock("init", file, "--no-triggers")
    assert (made.code, "No event triggers were created" in made.err) == (0, True)
    Pipeline.from_file(file).init()  # as `run` does
    assert not installed(database)
    warned = penstock("check", file)
    assert warned.code == 0
    assert "Without them go unnoticed: renames" in warned.out
    assert penstock("init", file).code == 0
    assert installed(database)


def test_a_role_that_may_not_create_triggers_goes_on_without(database: str, tmp_path: Path, penstock: Here) -> None:
    with connect(database) as connection:
        connection.execute(
            sql.SQL("create role no_triggers login replication; grant create on database {} to no_triggers").format(
                sql.Identifier(connection.info.dbname)
            )
        )
        try:
            file = write_config(tmp_path, make_conninfo(database, user="no_triggers"))
            made = penstock("init", file)
            assert made.code == 0
            assert "may not create event triggers: renames, defaults and keys are not followed" in made.err
            assert "Created the subscription" in made.err
            administrators = file.with_name("administrator.yaml")
            administrators.write_text(file.read_text("utf-8").replace("no_triggers", "postgres"), "utf-8")
            assert penstock("init", administrators).code == 0
            assert installed(database)
            assert penstock("init", file).code == 0  # the schema is still the role's own
            assert "Event triggers log schema changes" in penstock("check", file).out
            refused = penstock("destroy", file)
            assert (refused.code, "DROP EVENT TRIGGER IF EXISTS penstock_ddl;" in refused.err) == (1, True)
            assert penstock("destroy", administrators).code == 0
        finally:
            connection.execute("drop owned by no_triggers; drop role no_triggers")


def test_another_pipeline_keeps_the_triggers(database: str, tmp_path: Path, penstock: Here) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        file = write_config(tmp_path / name, database)
        file.write_text(file.read_text("utf-8").replace("name: shop", f"name: {name}", 1), "utf-8")
        files.append(file)
        assert penstock("init", file).code == 0
    assert "event trigger" not in penstock("destroy", files[0]).err
    assert installed(database)
    assert "Removed event trigger penstock_ddl." in penstock("destroy", files[1]).err
