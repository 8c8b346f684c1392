"""What real sinks that keep rows make of filtered, transformed and merged changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import RuleError, SinkError
from penstock.lsn import LSN
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.sinks.postgres.sink import PostgresSink
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.rules.conditions import holds
from tests.rules.member_histories import BY_KEY, CONDITIONS, WHOLE, member_histories
from tests.table_histories import History, Row

steady = settings(
    max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

Rows = set[tuple[Any, ...]]


def write_all(
    sink: Sink[Any, Any], directory: Path, rules: CompiledRules, rounds: Sequence[Sequence[ChangeBatch]]
) -> None:
    """Each of these rounds is a batch of the sink's."""
    sink.prepare()
    for number, several in enumerate(rounds):
        batch = Batch(number, LSN(number * 0x100), LSN((number + 1) * 0x100), f"{directory}/{number}")
        outcomes = [outcome for each in several if len(each) and (outcome := rules.apply(each)) is not None]
        sink.commit(batch, [sink.write(batch, iter([outcome])) for outcome in outcomes])


@dataclass(frozen=True)
class InDuckDB:
    def delivered(self, rules: CompiledRules, rounds: Sequence[Sequence[ChangeBatch]]) -> Rows:
        """The rows of the one table that the sink has in the end."""
        with TemporaryDirectory() as directory:
            path = Path(directory, "mirror.duckdb")
            sink = DuckDBSink(DuckDBSink.Settings(name="mirror", path=path))
            with closing(sink):
                write_all(sink, Path(directory), rules, rounds)
            with duckdb.connect(path, read_only=True) as connection:
                tables = connection.execute(
                    "select schema_name, table_name from duckdb_tables() where schema_name <> 'penstock'"
                )
                found = [f'"{schema}"."{table}"' for schema, table in tables.fetchall()]
                query = f"select columns(*)::varchar from {found[0]}" if found else "select 1 where false"
                return set(connection.execute(query).fetchall())


@dataclass(frozen=True)
class InPostgres:
    url: str

    def delivered(self, rules: CompiledRules, rounds: Sequence[Sequence[ChangeBatch]]) -> Rows:
        with psycopg.connect(self.url, autocommit=True) as server, TemporaryDirectory() as directory:
            server.execute("drop schema if exists penstock, everything cascade; drop table if exists public.members")
            sink = PostgresSink(PostgresSink.Settings(name="replica", type="postgres", url=SecretStr(self.url)))
            with closing(sink):
                write_all(sink, Path(directory), rules, rounds)
            tables = server.execute(
                "select format('%I.%I', schemaname, tablename) from pg_tables where tablename = 'members'"
            ).fetchall()
            if not tables:
                return set()
            rows = server.execute(f"select * from {tables[0][0]}").fetchall()
            return {tuple(None if value is None else str(value) for value in row) for row in rows}


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.server)])
def target(request: pytest.FixtureRequest) -> InDuckDB | InPostgres:
    return InDuckDB() if request.param == "duckdb" else InPostgres(request.getfixturevalue("database"))


def rules(**keys: Any) -> CompiledRules:
    return CompiledRules([RuleSettings.model_validate({"tables": ["*.members"], **keys})])


def in_order(row: Row, table: Relation) -> tuple[str | None, ...]:
    return tuple(row[column.name] for column in table.columns)


def as_batches(history: History) -> list[list[ChangeBatch]]:
    """The rows that were there, then every change by itself."""
    start = [changes(history.table, [("insert", row) for row in history.start])] if history.start else []
    later = [changes(history.table, [change], lsn=0x100 * at + 1) for at, change in enumerate(history.changes, 1)]
    return [start, *([change] for change in later)]


@steady
@given(member_histories(WHOLE) | member_histories(BY_KEY), st.sampled_from(CONDITIONS))
def test_a_sink_ends_with_just_the_rows_that_pass(target: InDuckDB | InPostgres, history: History, where: Any) -> None:
    compiled = RuleSettings.model_validate({"tables": ["*.*"], "where": where}).where
    assert compiled is not None
    types = {column.name: column.base for column in history.table.columns}
    held_back = any(UNCHANGED in (change[1] or {}).values() for change in history.changes if len(change) > 1)
    try:
        found = target.delivered(rules(where=where), as_batches(history))
    except (RuleError, SinkError):
        assert held_back
        assert history.table.identity != "f"
        return
    assert found == {in_order(row, history.table) for row in history.end if holds(compiled, row, types) is True}


TENANTS = [
    relation(f"tenant_{number}", "members", id="int4", grade="int4", bio="text", key=("id",), oid=number)
    for number in (1, 2)
]


@steady
@given(member_histories(TENANTS[0]), member_histories(TENANTS[1]))
def test_tables_merged_into_one_do_not_get_in_each_others_way(
    target: InDuckDB | InPostgres, one: History, two: History
) -> None:
    assume(not any(change[0] == "truncate" for history in (one, two) for change in history.changes))
    merged = rules(
        tables=["tenant_*.members"], rename={"schema": "everything", "origin": {"column": "tenant", "value": "{1}"}}
    )
    rounds = [[*first, *second] for first, second in zip_longest(as_batches(one), as_batches(two), fillvalue=())]
    found = target.delivered(merged, rounds)
    expected = {(*in_order(row, history.table), str(n)) for n, history in ((1, one), (2, two)) for row in history.end}
    assert found == expected
