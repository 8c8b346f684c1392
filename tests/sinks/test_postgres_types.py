"""Composite types, domains and ranges that are altered while tables have them, followed by the Postgres sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.sinks.test_postgres_schema import Followed

pytestmark = pytest.mark.parametrize("database", [16, 18], indirect=True)

THINGS = """
CREATE TYPE part AS (a integer, b text);
CREATE DOMAIN checked AS part;
CREATE TYPE whole AS (p part, ps part[]);
CREATE DOMAIN small AS integer CONSTRAINT above CHECK (VALUE > 0);
CREATE DOMAIN listed AS integer;
CREATE TYPE span AS RANGE (subtype = integer);
CREATE TABLE things (id integer PRIMARY KEY, p part, ps part[], c checked, w whole, n small, ns listed[], r span);
INSERT INTO things VALUES
    (1, '(1,x)', '{"(1,x)",NULL}', '(1,"a b")', '("(1,x)","{""(2,y)""}")', 5, '{6}', '[1,3)');
INSERT INTO things VALUES (2);
INSERT INTO things VALUES (3, '(,)', '{}', '(,)', '(,)');
"""


class Things(Followed):
    def __init__(self, source: str, target: str, directory: Path, **settings: str) -> None:
        super().__init__(source, target, directory, **settings)
        self.alter(THINGS)
        self.deliver(self.rows_of("things"))

    def wrong(self) -> list[str]:
        """How the table, its rows and its types differ from the source's."""
        return self.differences("things")


@pytest.fixture
def target_database(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """On the server that the source is on: the catalogs of two versions differ."""
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{request.node.callspec.params['database']}")
    name = f"target_{uuid.uuid4().hex[:12]}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def followed(database: str, target_database: str, tmp_path: Path) -> Iterator[Things]:
    found = Things(database, target_database, tmp_path, on_drop="drop")
    yield found
    found.sink.close()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TYPE part ADD ATTRIBUTE c numeric(6,2)",
        "ALTER TYPE part DROP ATTRIBUTE a",
        "ALTER TYPE part RENAME ATTRIBUTE b TO bb",
        "ALTER TYPE part ADD ATTRIBUTE c integer, DROP ATTRIBUTE b; ALTER TYPE part RENAME ATTRIBUTE c TO b",
        "CREATE TYPE humour AS ENUM ('sad'); ALTER TYPE part ADD ATTRIBUTE m humour[]",
        "ALTER TYPE whole ADD ATTRIBUTE more part; ALTER TYPE part ADD ATTRIBUTE c text",
        "CREATE SCHEMA away; ALTER TYPE part RENAME TO piece; ALTER TYPE piece SET SCHEMA away",
        "ALTER TYPE span RENAME TO reach; ALTER TYPE span_multirange RENAME TO reaches",
        "ALTER DOMAIN small RENAME TO little; ALTER DOMAIN little ADD CONSTRAINT top CHECK (VALUE < 100)",
        "ALTER DOMAIN small DROP CONSTRAINT above; UPDATE things SET n = -5 WHERE id = 1",
        "ALTER DOMAIN small RENAME CONSTRAINT above TO positive",
        "ALTER DOMAIN small ADD CONSTRAINT top CHECK (VALUE < 100) NOT VALID; ALTER DOMAIN small VALIDATE CONSTRAINT top",
        "ALTER DOMAIN small ADD CONSTRAINT top CHECK (VALUE < 100); ALTER DOMAIN small DROP CONSTRAINT top",
        "ALTER DOMAIN small SET DEFAULT 3; ALTER DOMAIN checked SET DEFAULT '(1,2)'",
        "UPDATE things SET n = 1; ALTER DOMAIN small SET NOT NULL",
        "UPDATE things SET n = 1; ALTER DOMAIN small SET NOT NULL; ALTER DOMAIN small DROP NOT NULL",
        "ALTER TABLE things DROP p, DROP ps, DROP c, DROP w; ALTER TYPE part ALTER ATTRIBUTE a TYPE text; "
        "ALTER TABLE things ADD p part; UPDATE things SET p = '(a,b)'",
        "DROP TYPE part CASCADE; CREATE TYPE part AS (x text); ALTER TABLE things ADD p part; UPDATE things SET p = '(a)'",
    ],
)  # fmt: skip
def test_types_and_rows_are_those_of_the_source(followed: Things, statement: str) -> None:
    commands = followed.alter(statement)
    followed.deliver(followed.updates_of("things"), commands=commands)
    assert followed.wrong() == []
    followed.alter("INSERT INTO things (id, n) VALUES (9, 2)")
    followed.deliver(followed.rows_of("things", "id = 9"))
    assert followed.wrong() == []


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
def test_rows_before_and_after_a_change_in_one_batch_have_their_shape(
    database: str, target_database: str, tmp_path: Path, on_error: str
) -> None:
    followed = Things(database, target_database, tmp_path, on_error=on_error)
    followed.alter("INSERT INTO things (id, p, ps, n) VALUES (4, '(4,old)', '{\"(4,old)\"}', 4)")
    before = followed.rows_of("things", "id = 4", followed.end - 0x900)
    commands = followed.alter(
        "ALTER TYPE part ADD ATTRIBUTE c integer; ALTER TYPE part DROP ATTRIBUTE a; ALTER DOMAIN small DROP CONSTRAINT above;"
        "INSERT INTO things (id, p, ps, n) VALUES (5, '(new,5)', '{\"(new,5)\"}', -5)"
    )
    followed.deliver(before, followed.rows_of("things", "id = 5"), commands=commands)
    assert followed.wrong() == []
    assert followed.query("SELECT count(*) FROM penstock.dead_letters") == [(0,)]
    followed.again()
    followed.deliver(commands=commands)
    assert followed.wrong() == []
    followed.sink.close()


def test_a_type_that_a_kept_column_has_gives_its_name_away(database: str, target_database: str, tmp_path: Path) -> None:
    followed = Things(database, target_database, tmp_path)
    for statement in (
        "ALTER TABLE things DROP p, DROP ps, DROP c, DROP w; ALTER TYPE part ALTER ATTRIBUTE a TYPE text",
        "ALTER TABLE things ADD p part; UPDATE things SET p = '(a,b)' WHERE id = 1",
        "DROP TYPE part CASCADE; CREATE TYPE part AS (x text)",
        "ALTER TABLE things ADD p part; UPDATE things SET p = '(c)' WHERE id = 1",
    ):
        commands = followed.alter(statement)
        followed.deliver(followed.updates_of("things", "id = 1"), commands=commands)
    assert followed.query("SELECT p::text FROM things WHERE id = 1") == [("(c)",)]
    kept = {
        name for (name,) in followed.query("SELECT attname::text FROM pg_attribute WHERE attrelid = 'things'::regclass")
    }
    assert {"ps", "c", "w"} < kept
    followed.sink.close()


def test_values_that_only_the_target_has_do_not_stop_a_restriction(
    database: str, target_database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    followed = Things(database, target_database, tmp_path)
    followed.follow("ALTER TABLE things DROP n; ALTER TABLE things ADD n small")
    followed.follow("ALTER DOMAIN small ADD CONSTRAINT top CHECK (VALUE < 3); UPDATE things SET n = 2")
    followed.deliver(followed.updates_of("things"))
    assert followed.query("SELECT DISTINCT n FROM things") == [(2,)]
    assert "top" in caplog.text
    followed.sink.close()


def test_rows_that_violate_a_check_that_is_not_valid_arrive(followed: Things) -> None:
    followed.follow("ALTER DOMAIN small ADD CONSTRAINT top CHECK (VALUE < 3) NOT VALID")
    followed.alter("UPDATE things SET r = '[5,6)' WHERE id = 1")
    followed.deliver(followed.updates_of("things", "id = 1"))
    assert followed.query("SELECT n, r::text FROM things WHERE id = 1") == [(5, "[5,6)")]
