"""What the event triggers of the schema log cost a user's command: the same commands in two databases, one of them logged.

Medians of some hundred commands, in turns, each on a table of seven columns and an index. Commits do not wait for the disk.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import psycopg

from penstock.postgres.connection import Connection, connect
from penstock.schema.log import triggers as schema_log
from penstock.subscription import migrations
from penstock.testing.embedded_postgres import EmbeddedPostgres

_COLUMNS = (
    "id bigint primary key, quantity int, name text, price numeric(12,2), at timestamptz default now(), paid bool, "
    "extra jsonb"
)
_COMMANDS = {
    "CREATE TABLE": f"CREATE TABLE t{{number}} ({_COLUMNS})",
    "CREATE INDEX": "CREATE INDEX ON t{number} (name)",
    "ADD COLUMN": "ALTER TABLE t{number} ADD COLUMN more text DEFAULT 'none'",
    "RENAME COLUMN": "ALTER TABLE t{number} RENAME COLUMN more TO less",
    "DROP COLUMN": "ALTER TABLE t{number} DROP COLUMN less",
    "DROP TABLE": "DROP TABLE t{number}",
}
_WARMING_UP = 20
_FIRST = "the first ADD COLUMN of a session"


@dataclass(frozen=True)
class Cost:
    """Milliseconds."""

    what: str
    without: float
    having: float


def costs(postgres: EmbeddedPostgres, count: int, tables: int = 100) -> Iterator[Cost]:
    """``tables``: so many others are there."""
    plain, logged = postgres.create_database("plain"), postgres.create_database("logged")
    for url in (plain, logged):
        with psycopg.connect(url) as connection:
            for number in range(tables):
                connection.execute(f"CREATE TABLE other{number} ({_COLUMNS})".encode())
    with connect(logged) as connection:
        migrations.migrate(connection)
        schema_log.install(connection)
    without, having = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    with ExitStack() as stack:
        sessions = [
            (stack.enter_context(psycopg.connect(url, autocommit=True)), taken)
            for url, taken in ((plain, without), (logged, having))
        ]
        for number in range(count + _WARMING_UP):
            for what, command in _COMMANDS.items():
                for session, taken in sessions:
                    taken[what].append(_milliseconds(session, command.format(number=number)))
    for what in _COMMANDS:
        yield Cost(what, median(without[what][_WARMING_UP:]), median(having[what][_WARMING_UP:]))
    firsts = [[_first(url, number) for number in range(min(count, tables))] for url in (plain, logged)]
    yield Cost(_FIRST, median(firsts[0]), median(firsts[1]))


def _first(url: str, number: int) -> float:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("SELECT 1")
        return _milliseconds(session, f"ALTER TABLE other{number} ADD COLUMN more text")


def _milliseconds(session: Connection, command: str) -> float:
    statement = command.encode()
    begun = time.perf_counter()
    session.execute(statement)
    return (time.perf_counter() - begun) * 1000
