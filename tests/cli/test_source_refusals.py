"""Sources that cannot serve: `check` says so and what to do, `run` says so at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.cli.command import Here, write_config

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def without_logical_wal() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"wal_level": "replica"}) as server:
        yield server


@pytest.fixture(scope="module")
def without_free_slot() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"max_replication_slots": "1"}) as server:
        server.execute("select pg_create_physical_replication_slot('taken')")
        yield server


def refusals(penstock: Here, file: Path) -> dict[str, str]:
    """What `check` calls failed, with the remedies; both its forms must agree."""
    outcome = penstock("check", file, "--json")
    findings = json.loads(outcome.out)
    assert all(set(finding) == {"name", "ok", "message", "remedy"} for finding in findings)
    failed = {finding["name"]: finding["remedy"] for finding in findings if finding["ok"] is False}
    assert outcome.code == (1 if failed else 0)
    for_people = penstock("check", file)
    assert for_people.code == outcome.code
    lines = for_people.out.splitlines()
    assert len(lines) == len(findings) + 1
    assert {line.split(maxsplit=1)[1].split(":")[0] for line in lines if line.startswith("failed")} == set(failed)
    return failed


def test_a_good_source_passes_and_every_part_is_told(database: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, database)
    assert refusals(penstock, file) == {}
    told = {finding["name"]: finding["ok"] for finding in penstock.json("check", file, "--json")}
    assert told["tables"] is None  # a warning: the database is empty
    assert all(told[name] for name in ("connection", "wal_level", "slots", "sink files", "java"))


def test_wal_level_replica(without_logical_wal: EmbeddedPostgres, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, without_logical_wal.url)
    assert "ALTER SYSTEM SET wal_level = 'logical'" in refusals(penstock, file)["wal_level"]
    outcome = penstock("run", file)
    assert outcome.code == 1
    assert "wal_level = replica" in outcome.errors[0]
    assert "ALTER SYSTEM SET wal_level = 'logical'" in outcome.errors[0]


def test_no_free_slot(without_free_slot: EmbeddedPostgres, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, without_free_slot.url)
    assert "max_replication_slots" in refusals(penstock, file)["slots"]
    outcome = penstock("run", file)
    assert outcome.code == 1
    assert "slot" in outcome.errors[0]
    assert "max_replication_slots" in outcome.errors[0]


def test_a_role_without_replication(
    postgres18: EmbeddedPostgres, database: str, tmp_path: Path, penstock: Here
) -> None:
    name = database.rpartition("/")[2]
    postgres18.execute(f'create role cli_guest login; grant create on database "{name}" to cli_guest')
    try:
        file = write_config(tmp_path, database.replace("postgres@", "cli_guest@"))
        assert "REPLICATION" in refusals(penstock, file)["replication right"]
        outcome = penstock("run", file)
    finally:
        postgres18.execute("drop owned by cli_guest", dbname=name)
        postgres18.execute("drop owned by cli_guest; drop role cli_guest")
    assert outcome.code == 1
    assert 'ALTER ROLE "cli_guest" REPLICATION;' in outcome.errors[0]


def test_a_sink_that_would_fail_is_found(database: str, tmp_path: Path, penstock: Here) -> None:
    sinks = [{"name": "lake", "type": "duckdb", "path": "absent/shop.duckdb"}]
    failed = refusals(penstock, write_config(tmp_path, database, sinks))
    assert set(failed) == {"sink lake"}


def test_init_and_destroy_say_what_they_did_and_may_be_repeated(database: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, database)
    made = penstock("init", file)
    assert made.code == 0
    assert "Created the subscription" in made.err
    assert "exists already" in penstock("init", file).err
    removed = penstock("destroy", file)
    assert removed.code == 0
    assert "Removed replication slot shop_" in removed.err
    assert "Removed publication shop." in removed.err
    again = penstock("destroy", file)
    assert (again.code, again.err) == (0, "There was nothing to remove.\n")
