"""Random histories into a target that refuses some of their rows: what it holds and its letters together are the source."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import connect, sql
from pydantic import SecretStr

from penstock.changes.batch import ChangeBatch
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.sinks.contract import Batch
from penstock.sinks.postgres.sink import PostgresSink
from penstock.testing.change_batches import UNCHANGED, changes
from tests.table_histories import SINGLE, History, Row, Rows, bag, histories
from tests.test_net import by_bucket, chunks_of

CONSTRAINTS = (
    "CHECK (note <> 'x')",
    "CHECK (bio <> 'y' OR note = 'y')",
    "UNIQUE (note)",  # which the source has not
    "UNIQUE (note), CHECK (bio <> 'y')",
    "EXCLUDE USING btree (bio WITH =), CHECK (note <> 'x')",
)

# A value of the version that was refused is kept by one that changes the key, and its old place is taken meanwhile.
KEPT_ACROSS = History(
    SINGLE,
    [{"id": "1", "note": "a", "bio": "old"}, {"id": "2", "note": "b", "bio": "two"}],
    [
        ("update", {"id": "1", "note": "x", "bio": "new"}),
        ("update", {"id": "3", "note": "c", "bio": UNCHANGED}, {"id": "1"}),
        ("update", {"id": "1", "note": "x", "bio": UNCHANGED}, {"id": "2"}),
        ("update", {"id": "1", "note": "d", "bio": UNCHANGED}),
    ],
    [{"id": "3", "note": "c", "bio": "new"}, {"id": "1", "note": "d", "bio": "two"}],
)

# The first version of a row waits for a value that another one lets go, and by then there is a second version of it.
OVERTAKEN = History(
    SINGLE,
    [{"id": "1", "note": "a", "bio": ""}, {"id": "2", "note": "b", "bio": ""}],
    [
        ("update", {"id": "1", "note": "b", "bio": ""}),
        ("update", {"id": "1", "note": "c", "bio": ""}),
        ("update", {"id": "2", "note": "d", "bio": ""}),
    ],
    [{"id": "1", "note": "c", "bio": ""}, {"id": "2", "note": "d", "bio": ""}],
)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=histories(longest=20),
    constraint=st.sampled_from(CONSTRAINTS),
    batches=st.lists(st.integers(0, 100), max_size=4),
    cuts=st.lists(st.integers(0, 100), max_size=2),
    buckets=st.integers(1, 2),
    at_once=st.sampled_from([1, 256 << 20]),
)
@example(KEPT_ACROSS, CONSTRAINTS[0], [1, 2, 3], [], 1, 1)
@example(KEPT_ACROSS, CONSTRAINTS[0], [2], [1], 1, 1)
@example(OVERTAKEN, CONSTRAINTS[2], [], [1], 1, 1)
def test_the_target_and_its_letters_are_the_source_and_replay_makes_it_equal(
    database: str, history: History, constraint: str, batches: list[int], cuts: list[int], buckets: int, at_once: int
) -> None:
    """``at_once``: how many bytes of a table's changes are reduced together; with 1, a batch has several versions of a row."""
    with (
        connect(database, autocommit=True) as connection,
        TemporaryDirectory() as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("penstock.sinks.postgres.staging._NET_BYTES", at_once)
        _create(connection, history, constraint)
        sink = PostgresSink(
            PostgresSink.Settings(name="replica", url=SecretStr(database), on_error="dead_letter", schema="existing")
        )
        sink.prepare()
        _deliver(sink, _batches(history, batches), cuts, buckets, Path(directory))
        assert bag(_with_letters(connection, history)) == bag(history.end)
        _drop_constraints(connection, history)
        assert sink.dead_letters().replay().left == []
        assert bag(_rows(connection, history)) == bag(history.end)
        sink.close()


def _batches(history: History, cuts: list[int]) -> list[ChangeBatch]:
    loaded = [changes(history.table, [("insert", row) for row in history.start], lsn=1)] if history.start else []
    places = sorted({0, history.length, *(cut % (history.length + 1) for cut in cuts)})
    return loaded + [
        changes(history.table, history.changes[a:b], lsn=[0x1000 * n + at for at in range(b - a)])
        for n, (a, b) in enumerate(itertools.pairwise(places), 1)
    ]


def _deliver(sink: PostgresSink, batches: list[ChangeBatch], cuts: list[int], buckets: int, directory: Path) -> None:
    for number, batch in enumerate(batches):
        tasks = by_bucket(chunks_of(batch, cuts), buckets)
        end = LSN(int(np.max(batch.commit_lsn)) + 1)
        one = Batch(number, LSN(0), end, str(directory / str(number)))
        sink.commit(one, [sink.write(one, iter(task)) for task in tasks])


def _create(connection: Connection, history: History, constraint: str) -> None:
    table = history.table
    connection.execute(b"DROP SCHEMA IF EXISTS penstock CASCADE")
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(table.schema, table.table)))
    columns = ", ".join(f"{column.name} text" for column in table.columns)
    key = ", ".join(table.key)
    statement = f"CREATE TABLE {table.schema}.{table.table} ({columns}, PRIMARY KEY ({key}), {constraint})"
    connection.execute(statement.encode())


def _drop_constraints(connection: Connection, history: History) -> None:
    name = f"{history.table.schema}.{history.table.table}"
    found = connection.execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype IN ('c', 'u', 'x')", [name]
    ).fetchall()
    for (constraint,) in found:
        connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT {constraint}".encode())


def _rows(connection: Connection, history: History) -> Rows:
    names = [column.name for column in history.table.columns]
    table = sql.Identifier(history.table.schema, history.table.table)
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    found = connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, table))
    return [dict(zip(names, row, strict=True)) for row in found]


def _with_letters(connection: Connection, history: History) -> Rows:
    """The target as it would be, had it refused nothing."""
    state: dict[tuple[str | None, ...], Row] = {_key(history, row): row for row in _rows(connection, history)}
    letters = connection.execute(
        "SELECT op, key, row, unchanged FROM penstock.dead_letters WHERE state = 'open' ORDER BY id"
    )
    keys = []
    for op, key, row, unchanged in letters:
        assert (op, unchanged) in (("insert", []), ("update", []))
        keys.append(_key(history, key))
        state[keys[-1]] = row
    assert len(set(keys)) == len(keys)
    return list(state.values())


def _key(history: History, row: Row) -> tuple[str | None, ...]:
    return tuple(row[name] for name in history.table.key)
