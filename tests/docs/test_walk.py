"""The README's five minutes, as written, on a real database; and the Spark page's code on what that left."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psycopg
import pytest

from penstock.spark.startup.java import java_home
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.spark

README = ROOT / "README.md"
TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, status text, total numeric(10,2));
CREATE TABLE audit_log (entry text);
"""
EARLIER = "INSERT INTO orders SELECT n, 'old', n FROM generate_series(101, 110) n;"
CHANGES = """
INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 20) n;
INSERT INTO audit_log VALUES ('not for the mirror');
UPDATE orders SET status = 'paid' WHERE id <= 5;
DELETE FROM orders WHERE id = 20;
"""


@dataclass(frozen=True)
class Walk:
    """Somebody in a directory of theirs, with the README open and the database at hand."""

    directory: Path
    url: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def administrator(self) -> str:
        return self.url.replace("penstock@", "postgres@")

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        return self._run(*_words(line))

    def start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *_words(line)],
            cwd=self.directory, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run_python(self, script: str) -> subprocess.CompletedProcess[str]:
        return self._run("-c", script)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.directory, env=self._environment(), capture_output=True, text=True, timeout=240,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
        return {**os.environ, "PATH": path, "SHOP_URL": self.url, "JAVA_HOME": java_home(), **self.variables}


def _words(line: str) -> list[str]:
    program, *words = shlex.split(line)
    assert program == "penstock"
    return ["-m", "penstock", *words]


def told_to_type(page: Path) -> list[str]:
    return [line for block in blocks("sh", page) for line in block.text.splitlines() if line.startswith("penstock")]


@pytest.fixture(scope="module")
def shop(postgres18: EmbeddedPostgres) -> Iterator[str]:
    """A database that a role of few rights is given just what the README says."""
    administrator = postgres18.create_database("shop")
    postgres18.execute("CREATE ROLE shop_owner")
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("GRANT ALL ON SCHEMA public TO shop_owner")
        connection.execute("SET ROLE shop_owner")
        connection.execute(TABLES)
        connection.execute(EARLIER)
        connection.execute("RESET ROLE")
        for statement in blocks("sql", README)[0].text.splitlines():
            connection.execute(statement.encode())
    yield administrator.replace("postgres@", "penstock@")
    postgres18.drop_database("shop")
    postgres18.execute("DROP ROLE penstock")
    postgres18.execute("DROP ROLE shop_owner")


@pytest.fixture(scope="module")
def walk(shop: str) -> Iterator[Walk]:
    """Up to the point at which the mirror holds everything; afterwards the last step, which removes it all."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as name:
        walk = Walk(Path(name), shop)
        (walk.directory / "shop.yaml").write_text(blocks("yaml", README)[0].text)
        check, init, run, *_, destroy = (
            line.replace("$ADMIN_URL", walk.administrator) for line in told_to_type(README)
        )
        checked = walk.type(check)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        made = walk.type(init)
        assert made.returncode == 0, made.stderr
        assert "Created event triggers" in made.stderr
        with psycopg.connect(shop.replace("penstock@", "postgres@")) as connection:
            connection.execute(CHANGES)
            connection.execute("ALTER TABLE orders RENAME COLUMN status TO state")
        ran = walk.type(f"{run} --once")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == ""
        yield walk
        removed = walk.type(destroy)
        assert removed.returncode == 0, removed.stderr
        assert "replication slot shop_" in removed.stderr
        with psycopg.connect(shop) as connection:
            left = connection.execute("SELECT 1 FROM pg_replication_slots WHERE database = 'shop'").fetchall()
            assert left == []
            assert connection.execute("SELECT 1 FROM pg_publication").fetchall() == []
            assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'penstock'").fetchall() == []
            assert connection.execute("SELECT 1 FROM pg_event_trigger").fetchall() == []
        assert (walk.directory / "shop.duckdb").exists()


def test_the_mirror_holds_what_the_source_does(walk: Walk) -> None:
    query = "SELECT id, state, total FROM public.orders ORDER BY id"  # the new name: the triggers told of it
    with (
        psycopg.connect(walk.url) as source,
        duckdb.connect(str(walk.directory / "shop.duckdb"), read_only=True) as mirror,
    ):
        expected = source.execute(query).fetchall()
        assert mirror.execute(query).fetchall() == expected
        assert len(expected) == 29
        assert mirror.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'audit_log'").fetchall() == []


def test_the_readmes_query_works(walk: Walk) -> None:
    done = walk.run_python(blocks("python", README)[0].text)
    assert done.returncode == 0, done.stderr
    assert "10 rows" in done.stdout


def test_status_and_log_show_what_happened(walk: Walk) -> None:
    _, _, _, status, tables, log, _ = told_to_type(README)
    shown = walk.type(f"{status} --json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["name"] == "shop"
    assert [(sink["name"], sink["type"], sink["error"]) for sink in found["sinks"]] == [("lake", "duckdb", None)]
    listed = walk.type(tables)
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [["public.orders", "lake", "streaming"]]
    events = [json.loads(line) for line in walk.type(log).stdout.splitlines()]
    assert [event["op"] for event in events].count("update") == 5
    assert {event["table"] for event in events if event["schema"] == "public"} == {"orders"}


def test_the_spark_pages_stream_gives_typed_rows(walk: Walk) -> None:
    done = walk.run_python(blocks("python", ROOT / "docs" / "spark.md")[0].text)
    assert done.returncode == 0, done.stderr
    assert dict(re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", done.stdout)) == {"new": "20", "paid": "5"}
