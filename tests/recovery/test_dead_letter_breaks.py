"""Dead letters of a whole pipeline: killed around the commit, each is there once; and what mends the row supersedes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import failpoints
from penstock.testing.conditions import wait_until
from tests.cli.command import run_to_end, write_config
from tests.recovery.process_under_test import RunningPipeline

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_left_running")]

LONG = "repeat(md5(id::text), 500)"


class Shop:
    """A source, and a target whose table refuses what the source's does not."""

    def __init__(self, source: str, target: str, directory: Path) -> None:
        self.source, self.target, self.directory = source, target, directory
        sink = {"name": "replica", "type": "postgres", "url": target, "on_error": "dead_letter"}
        self.file = write_config(directory, source, [sink])
        with psycopg.connect(source) as connection:
            connection.execute("create table accounts (id int primary key, email text, bio text)")
            connection.execute("alter table accounts alter bio set storage external")
        with psycopg.connect(target) as connection:
            connection.execute(
                "create table accounts (id int primary key, email text constraint no_bad check (email <> 'bad'), bio text)"
            )

    def write(self, *statements: str) -> None:
        for statement in statements:
            with psycopg.connect(self.source) as connection:
                connection.execute(statement.encode())

    def held(self, query: str, target: bool = True) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.target if target else self.source) as connection:
            return connection.execute(query.encode()).fetchall()

    def dies_at(self, failpoint: str) -> None:
        output = self.directory / f"{failpoint}.log"
        process = RunningPipeline(self.file, output, "--once", failpoint=failpoint)
        try:
            wait_until(lambda: not process.alive or "(code -9)" in output.read_text(), what=f"a death at {failpoint}")
        finally:
            process.kill_tree()


def test_letters_of_a_pipeline_that_is_killed_are_there_once(
    database: str, target_database: str, tmp_path: Path
) -> None:
    shop = Shop(database, target_database, tmp_path)
    assert run_to_end("init", shop.file).code == 0
    letters = "select key->>'id', state from penstock.dead_letters order by id"
    rows = "select id, email, md5(bio) from accounts order by id"

    shop.write(
        f"insert into accounts select id, case when id % 5 = 0 then 'bad' else 'e' end, {LONG} from generate_series(1, 20) id"
    )
    shop.dies_at(failpoints.BATCH_APPLIED)
    assert (shop.held(letters), shop.held(rows)) == ([], [])
    assert run_to_end("run", shop.file, "--once").code == 0
    assert shop.held(letters) == [(str(id), "open") for id in (5, 10, 15, 20)]
    assert len(shop.held(rows)) == 16

    # The value of bio is not sent again: only the letters have it.
    shop.write(
        "update accounts set email = 'mended' where id in (5, 10)", "update accounts set email = 'bad' where id = 1"
    )
    assert run_to_end("run", shop.file, "--once").code == 0
    assert shop.held(letters) == [
        ("5", "superseded"), ("10", "superseded"), ("15", "open"), ("20", "open"), ("1", "open"),
    ]  # fmt: skip
    with psycopg.connect(target_database) as connection:
        connection.execute("alter table accounts drop constraint no_bad")
    assert run_to_end("dead-letters", shop.file, "replay").code == 0
    assert shop.held(rows) == shop.held(rows, target=False)
