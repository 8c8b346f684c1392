"""A table that changes between the plan and the reading of a chunk: noticed when rows may be missing, and only then."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from penstock.error_policy import Verdict, policy_for
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading import csv_rows
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.read_chunk import LayoutChanged
from tests.imports.tables_to_copy import Rows, published, rows_of, sessions, wait_for_a_waiting_reader

KEYED = "create table public.t (id int primary key, v text)"
BARE = "create table public.t (id int, v text)"
FILL = "insert into public.t select i, 'value' from generate_series(1, 1000) i"
PARTITIONED = (
    "create table public.t (id int, day int, primary key (day, id)) partition by list (day)",
    "create table public.one partition of public.t for values in (1)",
    "create table public.two partition of public.t for values in (2)",
    "insert into public.t select i, 1 + i % 2 from generate_series(1, 10) i",
)
SWAP = "alter table public.t rename to old; create table public.t (like public.old including all)"

CHANGES = {
    "VACUUM FULL": "vacuum full public.t",
    "CLUSTER": "create index i on public.t (id); cluster public.t using i",
    "TRUNCATE": "truncate public.t",
    "DROP": "drop table public.t",
    "dropped and made again": "drop table public.t; create table public.t (id int primary key, v text)",
    "a column added": "alter table public.t add extra int default 5",
    "a column dropped": "alter table public.t drop column v",
    "a column renamed": "alter table public.t rename column v to w",
    "a column rewritten": "alter table public.t alter v type varchar(10) using 'new'",
    "a column declared otherwise": "alter table public.t alter v type varchar",
    "another replica identity": "alter table public.t replica identity full",
    "renamed": "alter table public.t rename to other",
    "another under its name": SWAP,
    "in another schema": "create schema elsewhere; alter table public.t set schema elsewhere",
    "not published": "alter publication pub drop table public.t",
    "published with a filter": "alter publication pub set table public.t where (id > 5)",
    "published with fewer columns": "alter publication pub set table public.t (id)",
}
HARMLESS = {
    "VACUUM": "vacuum public.t",
    "ANALYZE": "analyze public.t",
    "an index": "create index on public.t (v)",
    "a row more": "insert into public.t values (0, 'new')",
    "another default": "alter table public.t alter v set default 'x'",
}


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def run(connection: Connection, statements: str) -> None:
    for statement in statements.split("; "):
        connection.execute(sql.SQL(statement))


@pytest.mark.parametrize("table", [KEYED, BARE], ids=["by pages", "whole"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_may_hide_rows_is_noticed(database: str, connection: Connection, table: str, change: str) -> None:
    plan = published(database, connection, table, FILL)
    run(connection, CHANGES[change])
    with pytest.raises(LayoutChanged, match=r"Table public\.t was altered, rewritten, truncated or dropped"):
        plan.read()


@pytest.mark.parametrize("chunk", [Chunk(1, "keys"), Chunk(1, "rows", keys=(("1",),))], ids=lambda chunk: chunk.kind)
@pytest.mark.parametrize(
    "change", ["VACUUM FULL", "DROP", "a column added", "a column dropped", "another under its name"]
)
def test_it_is_noticed_when_rows_are_read_by_their_keys(
    database: str, connection: Connection, chunk: Chunk, change: str
) -> None:
    plan = published(database, connection, KEYED, FILL)
    run(connection, CHANGES[change])
    with pytest.raises(LayoutChanged):
        plan.read(chunk)


@pytest.mark.parametrize("table", [KEYED, BARE], ids=["by pages", "whole"])
@pytest.mark.parametrize("change", HARMLESS)
def test_what_hides_no_row_does_not_matter(database: str, connection: Connection, table: str, change: str) -> None:
    plan = published(database, connection, table, FILL)
    run(connection, HARMLESS[change])
    assert len(plan.read()) in (1000, 1001)


@pytest.mark.parametrize("statement", ["vacuum full public.two", "truncate public.two", "drop table public.two"])
def test_a_partition_that_changes_matters_to_its_own_chunk_alone(
    database: str, connection: Connection, statement: str
) -> None:
    plan = published(database, connection, *PARTITIONED)
    run(connection, statement)
    one, two = plan.chunks
    assert len(plan.read(one)) == 5
    with pytest.raises(LayoutChanged):
        plan.read(two)


@pytest.mark.parametrize(
    "statement",
    [
        "alter table public.t detach partition public.two",
        "alter table public.two rename to three",
        "alter table public.two rename to three; create table public.two (id int, day int)",
    ],
)
def test_a_partition_that_is_not_what_it_was_is_noticed(database: str, connection: Connection, statement: str) -> None:
    plan = published(database, connection, *PARTITIONED)
    run(connection, statement)
    with pytest.raises(LayoutChanged):
        plan.read(plan.chunks[1])


def test_a_partition_that_is_attached_does_not_matter_to_the_others(database: str, connection: Connection) -> None:
    plan = published(database, connection, *PARTITIONED)
    run(connection, "create table public.three partition of public.t for values in (3)")
    assert [len(plan.read(chunk)) for chunk in plan.chunks] == [5, 5]


WHILE_WAITING = ["a column rewritten", "another under its name", "TRUNCATE", "DROP"]


@pytest.mark.parametrize(
    ("table", "change"),
    [*((table, change) for table in (KEYED, BARE) for change in WHILE_WAITING), (KEYED, "a column added")],
)
def test_a_change_that_commits_while_copy_waits_for_its_lock_is_noticed(
    database: str, connection: Connection, background: ThreadPoolExecutor, table: str, change: str
) -> None:
    """The reader's snapshot may be older than the change by then: a table that was rewritten looks empty to it.

    A table read whole is read as its snapshot has it, so that a column that was merely added takes nothing away.
    """
    plan = published(database, connection, table, FILL)
    with connect(database, autocommit=False) as other:
        run(other, CHANGES[change])
        reading: Future[Rows] = background.submit(plan.read)
        wait_for_a_waiting_reader(connection)
        other.commit()
    with pytest.raises(LayoutChanged):
        reading.result()


def test_the_lock_is_held_until_the_layout_is_checked(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While rows are handed out in the middle of the transaction, nobody can rewrite the table."""
    monkeypatch.setattr(csv_rows, "BATCH_BYTES", 1)
    plan = published(database, connection, KEYED, FILL)
    batches = plan.reader(most_bytes=1).batches()
    next(batches)
    assert sessions(connection) == ["idle in transaction"]
    with connect(database) as other:
        other.execute("set lock_timeout = '20ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("truncate public.t")
        assert list(batches) == []
        other.execute("truncate public.t")


def test_what_was_handed_out_already_does_not_count_when_the_check_fails(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "BATCH_BYTES", 1)
    plan = published(database, connection, KEYED, FILL)
    batches = plan.reader(most_bytes=1).batches()
    assert len(rows_of(iter([next(batches)]))) == 1000
    run(connection, CHANGES["not published"])
    with pytest.raises(LayoutChanged):
        list(batches)


def test_the_error_travels_whole_and_is_not_tried_again_as_it_is() -> None:
    error = pickle.loads(pickle.dumps(LayoutChanged("Table public.t was altered.")))
    assert (type(error), str(error)) == (LayoutChanged, "Table public.t was altered.")
    assert policy_for(error).verdict is Verdict.STOP
