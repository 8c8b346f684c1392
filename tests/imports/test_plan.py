from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.changes.batch import Column, Relation
from penstock.errors import SourceRefused
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading.chunks import Chunk, chunk_query, plan_chunks
from penstock.postgres.reading.layout import Leaf, TableLayout, table_layout
from tests.postgres.ticket_type import TICKET

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)

ROOT = "with (publish_via_partition_root = true)"


def layout_of(connection: Connection, name: str = "public.t") -> TableLayout:
    row = connection.execute("select %s::regclass::oid", [name]).fetchone()
    assert row is not None
    found = table_layout(connection, row[0], ["pub"])
    assert found is not None
    return found


def rows_of(connection: Connection, layout: TableLayout, chunks: Sequence[Chunk]) -> Counter[tuple[Any, ...]]:
    return Counter(row for chunk in chunks for row in connection.execute(chunk_query(layout, chunk)))


def texts_of(connection: Connection, layout: TableLayout, chunks: Sequence[Chunk]) -> Counter[str]:
    """Whole rows as text: NaN is not equal to itself, and lists cannot be counted."""
    rows = sql.SQL("select row.*::text from ({}) as row")
    return Counter(text for chunk in chunks for (text,) in connection.execute(rows.format(chunk_query(layout, chunk))))


def rows_in(connection: Connection, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(connection.execute(query).fetchall())


def explained(connection: Connection, layout: TableLayout, chunk: Chunk) -> str:
    rows = connection.execute(sql.SQL("explain (costs off) {}").format(chunk_query(layout, chunk)))
    return "\n".join(line for (line,) in rows)


@pytest.fixture
def numbers(connection: Connection) -> Connection:
    """``public.t``: 20,000 rows with keys 1 to 20,000 on some 160 pages."""
    connection.execute(
        "create table public.t (a int primary key, b text); create publication pub for table public.t;"
        "insert into public.t select i, repeat('x', 30) from generate_series(1, 20000) i; analyze public.t"
    )
    return connection


def no_pages(layout: TableLayout) -> TableLayout:
    return replace(layout, by_pages=False)


@both_versions
def test_every_row_is_in_one_chunk(numbers: Connection) -> None:
    layout = layout_of(numbers)
    chunks = plan_chunks(numbers, layout, 200_000)
    assert len(chunks) == -(-layout.leaves[0].pages // 24)
    assert [chunk.number for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert sum(chunk.bytes for chunk in chunks) == pytest.approx(layout.bytes, rel=0.01)
    assert rows_of(numbers, layout, chunks) == rows_in(numbers, "select * from public.t")


@both_versions
def test_pages_are_read_by_a_scan_of_just_those_pages(numbers: Connection) -> None:
    layout = layout_of(numbers)
    first, *_, last = plan_chunks(numbers, layout, 200_000)
    for chunk in (first, last):
        plan = explained(numbers, layout, chunk)
        assert plan.startswith("Tid Range Scan on t")
        assert "Filter" not in plan


@both_versions
def test_a_range_of_keys_is_read_by_the_index_and_holds_every_row_once(numbers: Connection) -> None:
    layout = no_pages(layout_of(numbers))
    chunks = plan_chunks(numbers, layout, 200_000)
    assert len(chunks) == pytest.approx(layout.bytes / 200_000, abs=1)
    assert (chunks[0].lower, chunks[-1].upper) == (None, None)
    assert all(left.upper is not None and left.upper == right.lower for left, right in pairwise(chunks))
    assert "Index Scan using t_pkey" in explained(numbers, layout, chunks[1])
    assert rows_of(numbers, layout, chunks) == rows_in(numbers, "select * from public.t")


def test_what_is_written_later_is_in_a_chunk_too(numbers: Connection) -> None:
    layout = layout_of(numbers)
    plans = {by_pages: plan_chunks(numbers, replace(layout, by_pages=by_pages), 200_000) for by_pages in (True, False)}
    numbers.execute("insert into public.t select i, 'new' from generate_series(-1000, 0) i")
    numbers.execute("insert into public.t select i, 'new' from generate_series(20001, 40000) i")
    everything = rows_in(numbers, "select * from public.t")
    assert rows_of(numbers, layout, plans[True]) == everything
    assert rows_of(numbers, no_pages(layout), plans[False]) == everything


def test_chunks_hold_no_more_rows_than_asked_for(numbers: Connection) -> None:
    layout = layout_of(numbers)
    for planned in (layout, no_pages(layout)):
        chunks = plan_chunks(numbers, planned, 1 << 30, most_rows=1000)
        sizes = [sum(rows_of(numbers, planned, [chunk]).values()) for chunk in chunks]
        assert max(sizes) <= 1000 + 150  # a page
        assert len(sizes) < 30


def test_a_page_is_the_smallest_chunk(numbers: Connection) -> None:
    layout = layout_of(numbers)
    for chunks in (plan_chunks(numbers, layout, 1), plan_chunks(numbers, layout, 1 << 30, most_rows=1)):
        assert len(chunks) == layout.leaves[0].pages


def test_the_rows_of_a_table_that_was_never_analysed_are_guessed_by_their_width(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int primary key, b int); alter table public.t set (autovacuum_enabled = off);"
        "create publication pub for table public.t; insert into public.t select i, i from generate_series(1, 20000) i"
    )
    layout = layout_of(connection)
    assert layout.rows_estimated is None
    chunks = plan_chunks(connection, layout, 1 << 30, most_rows=2000)
    sizes = [sum(rows_of(connection, layout, [chunk]).values()) for chunk in chunks]
    assert max(sizes) < 2 * 2000
    assert sum(sizes) == 20000


def test_values_out_of_line_make_a_page_larger(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int primary key, b text); alter table public.t alter b set storage external;"
        "create publication pub for table public.t;"
        "insert into public.t select i, repeat('x', 10000) from generate_series(1, 1000) i"
    )
    layout = layout_of(connection)
    chunks = plan_chunks(connection, layout, 2_000_000)
    assert len(chunks) in (6, 7, 8)  # of 10 MB, though the heap has less than 10 pages
    assert rows_of(connection, layout, chunks).total() == 1000


@both_versions
def test_an_empty_table_is_one_chunk(connection: Connection) -> None:
    connection.execute("create table public.t (a int primary key); create publication pub for table public.t")
    layout = layout_of(connection)
    assert plan_chunks(connection, layout, 1 << 20, most_rows=10) == [Chunk(1, "pages", 0)]
    assert plan_chunks(connection, no_pages(layout), 1 << 20) == [Chunk(1, "keys", bytes=1 << 20)]
    assert plan_chunks(connection, replace(layout, leaves=()), 1 << 20) == [Chunk(1, "whole")]


def test_a_table_without_a_key_is_one_chunk(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int); create table public.child (b int) inherits (public.t);"
        "create publication pub for table public.t; insert into public.child values (2, 2);"
        "insert into public.t select 1 from generate_series(1, 5000)"
    )
    layout = layout_of(connection)
    (chunk,) = plan_chunks(connection, layout, 8192)
    assert (chunk.kind, chunk.bytes) == ("whole", layout.bytes)
    assert rows_of(connection, layout, [chunk]) == {(1,): 5000}


def test_old_style_children_are_not_read_with_their_parent(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int primary key); create table public.child () inherits (public.t);"
        "create publication pub for all tables; insert into public.t values (1); insert into public.child values (2)"
    )
    layout = layout_of(connection)
    again = [Chunk(1, "rows", keys=(("1",), ("2",)))]
    for planned in (layout, no_pages(layout)):
        assert rows_of(connection, planned, plan_chunks(connection, planned, 1 << 20)) == {(1,): 1}
        assert rows_of(connection, planned, again) == {(1,): 1}


def test_a_table_without_columns_gives_a_null_for_each_row(connection: Connection) -> None:
    connection.execute(
        "create table public.t (); create publication pub for table public.t; insert into public.t default values;"
        "insert into public.t default values"
    )
    layout = layout_of(connection)
    assert rows_of(connection, layout, plan_chunks(connection, layout, 1 << 20)) == {(None,): 2}


@both_versions
@pytest.mark.parametrize("key", ["primary key (day, a)", "primary key (a, day)", ""])
def test_a_partitioned_table_is_read_without_what_is_not_logged(connection: Connection, key: str) -> None:
    connection.execute(
        f"create table public.t (a int, day int, b text{', ' + key if key else ''}) partition by list (day);"
        "create table public.one partition of public.t for values in (1);"
        # Of the same columns at other places.
        "create table public.two (b text, gone int, day int not null, a int not null);"
        "alter table public.two drop gone; alter table public.t attach partition public.two for values in (2);"
        "create unlogged table public.fast partition of public.t for values in (3);"
        f"create publication pub for table public.t {ROOT};"
        "insert into public.t select i, 1 + i % 3, 'x' from generate_series(1, 3000) i; analyze public.t"
    )
    layout = layout_of(connection)
    expected = rows_in(connection, "select a, day, b from public.t where day < 3")
    for planned in (layout, no_pages(layout)):
        chunks = plan_chunks(connection, planned, 16384)
        assert (len(chunks) > 4) == bool(key)
        assert rows_of(connection, planned, chunks) == expected
    keys = tuple(
        tuple(str(value) for value in values[: len(layout.relation.key)]) for values in [(1, 2), (2, 3), (3, 1)]
    )
    if key:
        assert rows_of(connection, layout, [Chunk(1, "rows", keys=keys)]) == {(1, 2, "x"): 1, (3, 1, "x"): 1}


@both_versions
def test_only_the_rows_that_the_publications_let_through_are_read(numbers: Connection) -> None:
    numbers.execute("alter publication pub set table public.t where (a % 2 = 0 or a = 5)")
    layout = layout_of(numbers)
    expected = rows_in(numbers, "select * from public.t where a % 2 = 0 or a = 5")
    for planned in (layout, no_pages(layout)):
        assert rows_of(numbers, planned, plan_chunks(numbers, planned, 200_000)) == expected
    again = Chunk(1, "rows", keys=(("4",), ("5",), ("7",)))
    assert {row[0] for row in rows_of(numbers, layout, [again])} == {4, 5}


KEYS = {
    "text": ["", "a", "quo'te", 'dou"ble', "back\\slash", "new\nline", "100%s", "{0}", "ü", "🐘", "A", " a"],
    'text collate "pg_c_utf8"': ["a", "B", "c", "A", "b", "é"],
    "varchar(5)": ["abc", "abcde"],
    "char(5)": ["abc", "abcde", ""],
    "bpchar": ["abc", "a much longer one"],
    "numeric(20,5)": ["-1.5", "0.00001", "123456789012345.12345", "NaN"],
    "float8": ["0.1", "-0.30000000000000004", "1e-300", "Infinity", "NaN"],
    "timestamptz": ["2026-01-01 10:00:00.123456+02", "0044-03-15 12:00:00+00 BC", "infinity"],
    "interval": ["1 mon -1 day", "00:00:01.5"],
    "uuid": ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-000000000000"],
    "bytea": ["\\x00ff", "\\x"],
    "bit(3)": ["101", "000"],
    "varbit": ["101", "0"],
    "public.mood": ["sad", "it's ok"],
    "public.small": ["1", "9"],
    "int[]": ["{1,2}", "{}", "{NULL}"],
    "bool": ["t", "f"],
    "inet": ["10.0.0.1/8", "::1"],
    '"char"': ["a", "\\"],
    "int4range": ["[1,2)", "empty"],
    "public.pair": ["(1,a)", "(1,b)", "(0,z)"],
    "public.ticket": ["-1", "7", "12"],
    "public.ticket_domain": ["-1", "7", "12"],
}


@pytest.mark.parametrize("type_name", KEYS)
def test_keys_of_any_type_make_ranges_and_are_found_again(connection: Connection, type_name: str) -> None:
    values = KEYS[type_name]
    connection.execute(
        "create type public.mood as enum ('sad', 'it''s ok'); create domain public.small as int check (value < 10);"
        f"create type public.pair as (a int, b text); {TICKET} create domain public.ticket_domain as public.ticket;"
        f'create table public.t (n int not null, "The {{k}}ey 100%" {type_name}, primary key ("The {{k}}ey 100%", n));'
        "create publication pub for table public.t"
    )
    with connection.cursor() as cursor:
        cursor.executemany("insert into public.t values (%s, %s)", list(enumerate(values)))
    layout = layout_of(connection)
    assert layout.key_order == ("The {k}ey 100%", "n")
    expected = Counter(text for (text,) in connection.execute("select row.*::text from public.t as row"))
    ranges = plan_chunks(connection, no_pages(layout), 1 << 20, most_rows=1)
    assert len(ranges) == len(values)
    assert texts_of(connection, no_pages(layout), ranges) == expected
    again = Chunk(1, "rows", keys=tuple((str(n), value) for n, value in enumerate(values)))
    assert texts_of(connection, layout, [again]) == expected


def test_rows_are_found_again_by_the_index(numbers: Connection) -> None:
    layout = layout_of(numbers)
    assert "t_pkey" in explained(numbers, layout, Chunk(1, "rows", keys=(("3",), ("4",), ("9",))))


def test_a_role_without_the_right_is_told_which_table(connection: Connection, database: str, guest: str) -> None:
    connection.execute("create table public.t (a int primary key); create publication pub for table public.t")
    layout = no_pages(layout_of(connection))
    said = r"Planning the import of public\.t failed: permission denied"
    with connect(make_conninfo(database, user=guest)) as session, pytest.raises(SourceRefused, match=said):
        plan_chunks(session, layout, 1 << 20)


def fabricated(sizes: Sequence[tuple[int, int]]) -> TableLayout:
    leaves = tuple(
        Leaf(oid, "public", f"t{oid}", oid, pages, pages * extra) for oid, (pages, extra) in enumerate(sizes)
    )
    relation = Relation(1, "public", "t", "d", (Column("a", 23, "integer", "int4", in_identity=True),), ("a",))
    return TableLayout(relation, leaves, True, None, None, sum(leaf.bytes for leaf in leaves), key_order=("a",))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 3000), st.integers(8192, 10**6)), min_size=1, max_size=5),
    chunk_bytes=st.integers(1, 10**8),
)
def test_the_chunks_of_a_heap_follow_each_other_and_the_last_has_no_end(
    sizes: list[tuple[int, int]], chunk_bytes: int
) -> None:
    layout = fabricated(sizes)
    # Without a limit on rows, nothing is asked of the source.
    chunks = plan_chunks(None, layout, chunk_bytes)  # type: ignore[arg-type]
    assert [chunk.number for chunk in chunks] == list(range(1, len(chunks) + 1))
    for index, leaf in enumerate(layout.leaves):
        own = [chunk for chunk in chunks if chunk.leaf == index]
        assert [chunk.first_page for chunk in own] == [0, *(chunk.end_page for chunk in own[:-1])]
        assert own[-1].end_page is None
        assert leaf.pages == 0 or own[-1].first_page < leaf.pages
        assert all(
            chunk.bytes <= chunk_bytes or (chunk.end_page or leaf.pages) - chunk.first_page == 1 for chunk in own
        )
        assert sum(chunk.bytes for chunk in own) == pytest.approx(leaf.bytes, abs=len(own))


texts = st.tuples(st.text(), st.text())


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.builds(
        Chunk, number=st.integers(1), kind=st.sampled_from(["pages", "keys", "whole", "rows"]),
        leaf=st.none() | st.integers(0), first_page=st.integers(0), end_page=st.none() | st.integers(0),
        lower=st.none() | texts, upper=st.none() | texts, keys=st.lists(texts).map(tuple), bytes=st.integers(0),
    )
)  # fmt: skip
def test_a_chunk_survives_json(chunk: Chunk) -> None:
    assert Chunk.from_json(json.loads(json.dumps(chunk.to_json()))) == chunk
