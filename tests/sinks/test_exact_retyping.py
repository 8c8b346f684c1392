"""New types of columns whose values a sink says it recomputes: it has what the source has, whatever the session's settings
were there. All else is imported again."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from pydantic import SecretStr

from penstock.schema.kinds import RetypeColumn
from penstock.schema.log.row import LoggedCommand
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.sinks.postgres.sink import PostgresSink
from tests.sinks.followed_source import FollowedSource

VALUES = {
    "smallint": ["1", "7"],
    "integer": ["1", "70"],
    "bigint": ["12", "9"],
    "numeric": ["1", "2.50", "1.125"],
    "numeric(5,2)": ["1.5", "2.25"],
    "numeric(8,2)": ["1.5", "2.25"],
    "numeric(8,4)": ["1.5", "2.2555"],
    "real": ["1.1", "1.5"],
    "double precision": ["1.1", "1.125"],
    "text": ["a", "b  ", ""],
    "varchar": ["a", "b  "],
    "varchar(3)": ["a", "b  "],
    "varchar(5)": ["a", "b  "],
    "character(3)": ["a", "bc"],
    "character(5)": ["a", "b"],
    "boolean": ["t", "f"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"a":  1, "a":2}', "[1]"],
    "jsonb": ['{"a":  1, "b":2}', "[1]"],
    "date": ["2026-03-29", "2026-11-16"],
    "timestamp": ["2026-03-29 02:30:00.123456"],
    "timestamp(2)": ["2026-03-29 02:30:00.126"],
    "timestamptz": ["2026-03-29 02:30:00.123456+00"],
    "timestamptz(3)": ["2026-03-29 02:30:00.123456+00"],
    "time": ["02:30:00.123456"],
    "time(1)": ["02:30:00.16"],
    "interval": ["1 mon 2 days 03:04:05.678"],
    "interval(1)": ["00:00:01.26"],
    "bytea": ["\\x00ff"],
    "bit(3)": ["101"],
    "bit varying": ["101", "110"],
    "inet": ["10.0.0.0/8"],
    "cidr": ["10.0.0.0/8"],
    "money": ["1.25"],
    "mood": ["sad"],
    "integer[]": ["{1,NULL}", "{}"],
    "bigint[]": ["{1}"],
    "numeric[]": ["{1,2.5}"],
    "numeric(6,2)[]": ["{1,2.5}"],
    "text[]": ['{a,"b c"}'],
    "varchar(3)[]": ["{a}"],
    "positive": ["5"],
}
# What a settings-dependent cast takes from the session that runs ALTER TABLE.
SESSION = (
    "SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET intervalstyle = 'iso_8601'; SET extra_float_digits = -5;"
    "SET bytea_output = 'escape'"
)
# Not worth an import: widely used, and a sink has the values.
CHEAP = {
    ("integer", "bigint"), ("smallint", "integer"), ("varchar(3)", "text"), ("varchar(3)", "varchar(5)"),
    ("text", "varchar"), ("integer", "numeric"), ("integer", "text"), ("numeric(5,2)", "numeric(8,2)"),
    ("timestamp(2)", "timestamp"), ("numeric(5,2)", "numeric"), ("integer[]", "bigint[]"), ("mood", "text"),
    ("integer", "positive"),
}  # fmt: skip


def castable(url: str) -> list[tuple[str, str]]:
    """Pairs of types between which ALTER TABLE needs no USING: by an assignment cast, one of the elements, or as text."""
    with psycopg.connect(url) as connection:
        query = "SELECT castsource::int, casttarget::int FROM pg_cast WHERE castcontext IN ('a', 'i')"
        casts = {(one, other) for one, other in connection.execute(query)}
        base = (
            "SELECT CASE WHEN t.typelem <> 0 AND t.typcategory = 'A' THEN -t.typelem::int "
            "ELSE coalesce(nullif(t.typbasetype, 0), t.oid)::int END FROM pg_type t WHERE t.oid = %s::regtype"
        )
        found = {name: connection.execute(base, [name]).fetchall()[0][0] for name in VALUES}

    def is_castable(before: str, after: str) -> bool:
        one, other = found[before], found[after]
        if before == after or (one < 0) != (other < 0):
            return before != after and after == "text"
        limited = after.startswith(("varchar(", "character("))
        of_text = before.startswith(("text", "varchar", "char"))
        same = one == other or (abs(one), abs(other)) in casts
        return after == "text" or (of_text and limited) or (same and (of_text or not limited))

    return [pair for pair in product(VALUES, VALUES) if is_castable(*pair)]


class Retyped(FollowedSource):
    """A table with a column for each pair of types: its rows arrived as they were before, and the sink followed."""

    def retype(self) -> tuple[dict[str, tuple[str, str]], dict[str, bool]]:
        """By column: the pair of types, and whether the sink says that it recomputes the values."""
        with psycopg.connect(self.source, autocommit=True) as connection:
            connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
        pairs = {f"c{number}": pair for number, pair in enumerate(castable(self.source))}
        with psycopg.connect(self.source, autocommit=True) as connection:
            columns = ", ".join(f"{name} {before}" for name, (before, _) in pairs.items())
            connection.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})".encode())
            for row in range(3):
                values = [VALUES[before][row % len(VALUES[before])] for before, _ in pairs.values()]
                marks = ", ".join(["%s"] * (len(values) + 1))
                connection.execute(f"INSERT INTO wide VALUES ({marks})".encode(), [row, *values])
        self.alter("SELECT")
        self.deliver(self.rows_of("wide"))
        parts = ", ".join(f"ALTER {name} TYPE {after}" for name, (_, after) in pairs.items())
        with psycopg.connect(self.source, autocommit=True) as connection:
            connection.execute(SESSION)
            connection.execute(f"ALTER TABLE wide {parts}".encode())
        commands = self.alter("SELECT")
        self.deliver(commands=commands)
        claimed = {change.after.name: self.sink.recomputes(change) for change in _retypings(commands)}
        return pairs, {name: claimed.get(name, True) for name in pairs}


def _retypings(commands: tuple[LoggedCommand, ...]) -> list[RetypeColumn]:
    return [change for command in commands for change in command.changes if isinstance(change, RetypeColumn)]


@pytest.mark.parametrize("unrepresentable", ["error", "text"])
def test_duckdb_has_the_values_that_it_says_it_recomputes(database: str, tmp_path: Path, unrepresentable: str) -> None:
    path = tmp_path / "lake.duckdb"
    given: dict[str, Any] = {"name": "lake", "type": "duckdb", "path": path, "unrepresentable": unrepresentable}
    source = Retyped(database, DuckDBSink(DuckDBSink.Settings.model_validate(given)), tmp_path / "staging")
    pairs, claimed = source.retype()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE fresh AS SELECT * FROM wide")
        connection.execute("ALTER TABLE fresh ADD PRIMARY KEY (id)")
    source.deliver(source.rows_of("fresh"))
    with duckdb.connect(path, read_only=True) as lake:
        wrong = {
            pairs[name]
            for name in pairs
            if lake.execute(f"SELECT id, {name}::VARCHAR FROM public.wide EXCEPT SELECT id, {name}::VARCHAR FROM public.fresh")
            .fetchall()
        }  # fmt: skip
    exact = {pairs[name] for name, recomputed in claimed.items() if recomputed}
    assert wrong & exact == set()
    assert wrong
    assert exact >= CHEAP


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_a_replica_has_the_values_that_it_says_it_recomputes(
    database: str, target_database: str, tmp_path: Path
) -> None:
    settings = {"name": "replica", "type": "postgres", "url": SecretStr(target_database)}
    sink = PostgresSink(PostgresSink.Settings.model_validate(settings))
    sink.source_is_copied = True
    source = Retyped(database, sink, tmp_path)
    pairs, claimed = source.retype()
    names = ", ".join(f"{name}::text" for name in pairs)
    query = f"SELECT {names} FROM wide ORDER BY id".encode()
    with psycopg.connect(database) as ours, psycopg.connect(target_database) as theirs:
        columns = [list(zip(*side.execute(query).fetchall(), strict=True)) for side in (ours, theirs)]
    wrong = {pair for pair, one, other in zip(pairs.values(), *columns, strict=True) if one != other}
    exact = {pairs[name] for name, recomputed in claimed.items() if recomputed}
    assert wrong & exact == set()
    assert wrong
    assert exact >= CHEAP | {("numeric", "numeric(5,2)"), ("json", "jsonb"), ("text", "character(5)")}
    sink.close()
