"""Differences between a source and its DuckDB file: each kind is found, and nothing else is."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from penstock.errors import SinkRefused
from penstock.postgres.connection import Connection
from penstock.sinks.duckdb import file as duckdb_file
from penstock.sinks.duckdb import verify as duckdb_target
from penstock.sinks.duckdb.file import DuckDBFile
from tests.sinks.other_process import OtherProcess
from tests.verify.duckdb_mirror import Mirror, said

ITEMS = """
create table public.items (id int primary key, note text, price numeric(10,2), weight float8, seen_at timestamptz,
    day date, raw bytea, extra jsonb, tags text[], sizes float4[], took interval, done bool, code uuid);
insert into public.items values
    (1, '', 1.50, 0, '2026-01-01 00:00+00', '2026-01-01', '\\x00ff5c', '{"a": 1}', '{a,NULL,"b,c"}', '{0,1.5}', '1 mon', true,
        '00000000-0000-0000-0000-000000000001'),
    (2, null, null, null, null, null, null, null, null, null, null, null, null),
    (3, 'a "b", c', -9.99, 'NaN', '2026-06-01 12:34:56.789+00', '10000-01-01', '', '[]', '{}', '{}', '-1 day', false,
        'ffffffff-ffff-ffff-ffff-ffffffffffff'),
    (4, 'ä', 0, '-Infinity', '1900-01-01', '0001-01-01', 'x', 'null', '{x}', '{NaN}', '00:00:01', true, null)
"""


def replaced(id: int, value: str) -> str:
    """Without an UPDATE: DuckDB leaves out those that change 0 to -0, or a month to 30 days."""
    return (
        f"create table changed as select * replace ({value}) from public.items where id = {id}; "
        f"delete from public.items where id = {id}; insert into public.items select * from changed; drop table changed"
    )


@pytest.fixture
def items(mirror: Mirror) -> Mirror:
    mirror.source(ITEMS)
    mirror.fill("items")
    return mirror


def test_a_mirror_that_the_sink_filled_is_equal(items: Mirror) -> None:
    report = items.compare("items")
    assert (report.state, report.rows, said(report)) == ("equal", 4, [])


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update public.items set note = 'other' where id = 3", "id=3: differs in note"),
        ("update public.items set note = null where id = 1", "id=1: differs in note"),
        ("update public.items set note = '' where id = 2", "id=2: differs in note"),
        ("update public.items set price = 1.51 where id = 1", "id=1: differs in price"),
        (replaced(1, "'-0.0'::double as weight"), "id=1: differs in weight"),
        ("update public.items set weight = 0 where id = 3", "id=3: differs in weight"),
        ("update public.items set weight = 'nan'::double where id = 2", "id=2: differs in weight"),
        ("update public.items set weight = 'inf'::double where id = 4", "id=4: differs in weight"),
        (
            "update public.items set seen_at = seen_at + interval 1 microsecond where id = 1",
            "id=1: differs in seen_at",
        ),
        ("update public.items set day = day + 1 where id = 3", "id=3: differs in day"),
        ("update public.items set raw = '\\x00\\xFF'::blob where id = 1", "id=1: differs in raw"),
        ("update public.items set raw = null where id = 3", "id=3: differs in raw"),
        ("update public.items set extra = '{\"a\": 2}' where id = 1", "id=1: differs in extra"),
        ("update public.items set extra = null where id = 4", "id=4: differs in extra"),
        ("update public.items set tags = ['a', '', 'b,c'] where id = 1", "id=1: differs in tags"),
        ("update public.items set tags = ['a', null, 'b', 'c'] where id = 1", "id=1: differs in tags"),
        ("update public.items set tags = null where id = 3", "id=3: differs in tags"),
        ("update public.items set sizes = ['-0.0'::float, 1.5] where id = 1", "id=1: differs in sizes"),
        (replaced(1, "interval 30 days as took"), "id=1: differs in took"),
        ("update public.items set done = not done where id = 3", "id=3: differs in done"),
        ("update public.items set code = null, done = null where id = 1", "id=1: differs in done, code"),
        ("delete from public.items where id = 2", "id=2: missing in the sink"),
        ("insert into public.items (id) values (5)", "id=5: only in the sink"),
        ("insert into public.items (note) values ('x')", "id=NULL: only in the sink"),
        (
            "insert into public.items select * from public.items where id = 4",
            "id=4: more than once in the sink, 2 rows",
        ),
    ],
)
def test_each_kind_of_difference_is_found_and_named(items: Mirror, statement: str, expected: str) -> None:
    items.lake(statement)
    report = items.compare("items")
    assert (report.state, said(report), report.more) == ("differs", [expected], False)


def test_several_differences_are_named_up_to_the_limit(items: Mirror) -> None:
    items.source("insert into public.items (id) select n from generate_series(10, 2000) n")
    report = items.compare("items", most=3)
    assert said(report) == [f"id={n}: missing in the sink" for n in (10, 100, 1000)]
    assert report.more
    assert len(items.compare("items", most=5000).differences) == 1991


def test_values_without_a_place_in_duckdb_are_compared_as_the_policy_says(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    connection.execute(
        "create table public.odd (id int primary key, at timestamptz, n numeric(5,2)); "
        "insert into public.odd values (1, 'infinity', 'NaN'), (2, '-infinity', 1), (3, '2026-01-01 00:00+00', 2)"
    )
    for policy in ("null", "text"):
        directory = tmp_path / policy
        directory.mkdir()
        mirror = Mirror(connection, database, directory, unrepresentable=policy)
        mirror.fill("odd")
        assert mirror.compare("odd").state == "equal"
        mirror.lake("update public.odd set \"at\" = '2026-01-01 00:00:01+00' where id = 1")
        assert said(mirror.compare("odd")) == ["id=1: differs in at"]
        mirror.close()


def test_arrays_that_are_no_lists_are_compared_as_text(mirror: Mirror) -> None:
    mirror.source("create table public.grids (id int primary key, cells int[], sizes float8[], days date[])")
    mirror.source("insert into public.grids values (1, '{1,NULL}', '{0.1,-0}', '{2024-01-01}'), (2, null, '{}', null)")
    mirror.fill("grids")
    mirror.source("delete from public.grids")
    mirror.source(
        "insert into public.grids values (3, '{{1,2}}', '[0:0]={1e20}', '{infinity}'), (4, '{1}', '{1}', '{}')"
    )
    mirror.fill("grids")  # beside what is there
    mirror.source("insert into public.grids values (1, '{1,NULL}', '{0.1,-0}', '{2024-01-01}'), (2, null, '{}', null)")
    report = mirror.compare("grids")
    assert (report.state, report.rows, said(report)) == ("equal", 4, [])
    mirror.lake("update public.grids set cells = '{{1,3}}' where id = 3")
    assert said(mirror.compare("grids")) == ["id=3: differs in cells"]


def test_unusual_names_and_composite_keys(mirror: Mirror) -> None:
    schema, name = "Odd 'one", '"Odd \'one"."the ""Table.x"'
    mirror.source(
        'create schema "Odd \'one"',
        f'create table {name} ("Key" text, "key" date, h int, kh int, k0 bytea, t0 text, rowid int, '
        'primary key ("key", k0, "Key"))',
        f"insert into {name} values "
        "('a', '2026-01-01', 1, 2, '\\x00', 'x', 7), ('A', '2026-01-01', 1, 2, '\\x00', 'x', 7), "
        "('it''s \"x\"', '2026-01-02', 3, 4, '\\xff5c', null, null)",
    )
    mirror.fill('the "Table.x', schema=schema)
    assert mirror.compare('the "Table.x', schema).state == "equal"
    mirror.lake(f"update {name} set h = 9 where k0 = '\\xFF\\x5C'::blob")
    mirror.lake(f"delete from {name} where \"Key\" = 'A'")
    found = mirror.compare('the "Table.x', schema).differences
    assert {(difference.key["Key"], difference.kind, difference.columns) for difference in found} == {
        ("A", "missing", ()),
        ('it\'s "x"', "differs", ("h",)),
    }
    assert {difference.key["k0"] for difference in found} == {"\\x00", "\\xff5c"}


def test_text_keys_in_a_collation_that_is_not_that_of_bytes(mirror: Mirror) -> None:
    """One that orders words as people do, where the server's machine has any; the order of an enum differs in any case."""
    known = mirror.connection.execute(
        "select quote_ident(collname) from pg_collation where collprovider = 'c' and collname !~ '^(C|POSIX)' limit 1"
    ).fetchone()
    mirror.source(
        "create type public.size as enum ('small', 'medium', 'large')",
        f"create table public.words (word text collate pg_catalog.{known[0] if known else 'pg_unicode_fast'}, "
        "size public.size, padded char(5), n int, primary key (word, size, padded))",
        "insert into public.words select chr(64 + n % 26 + 1) || n, 'large', n % 7, n from generate_series(1, 500) n",
        "insert into public.words values ('ä', 'small', 'x', 1), ('zebra', 'medium', '', 2), ('', 'large', 'y', 4)",
    )
    mirror.fill("words")
    assert mirror.compare("words").state == "equal"
    mirror.lake("update public.words set n = 0 where word in ('', 'ä')")
    assert said(mirror.compare("words")) == [
        "word=, size=large, padded=y    : differs in n",
        "word=ä, size=small, padded=x    : differs in n",
    ]


@pytest.mark.parametrize(
    "kind", ["timestamptz", "timestamp", "interval", "numeric", "float8", "int[]", "text[]", "bool"]
)
def test_keys_of_other_types_are_found_on_both_sides(mirror: Mirror, kind: str) -> None:
    values = {
        "timestamptz": ("2026-01-01 00:00:00.5+00", "1999-01-01"), "timestamp": ("2026-01-01", "1999-01-01 10:00"),
        "interval": ("1 year -2 days 03:00", "1 day"), "numeric": ("1.50", "-7"), "float8": ("1e300", "-0.1"),
        "int[]": ("{1,2}", "{}"), "text[]": ('{"a b","c\\"d\\\\",NULL}', "{x}"), "bool": ("t", "f"),
    }[kind]  # fmt: skip
    mirror.source(f"create table public.keyed (k {kind} primary key, v int)")
    for number, value in enumerate(values):
        mirror.connection.execute(f"insert into public.keyed values (%s::text::{kind}, {number})".encode(), [value])
    mirror.fill("keyed")
    assert mirror.compare("keyed").state == "equal"
    mirror.lake("update public.keyed set v = 100 where v = 0")
    mirror.source("delete from public.keyed where v = 1")
    kinds = {(difference.kind, difference.columns) for difference in mirror.compare("keyed").differences}
    assert kinds == {("differs", ("v",)), ("extra", ())}


def test_a_table_without_a_key_is_a_bag_of_rows(mirror: Mirror) -> None:
    mirror.source(
        "create table public.bag (word text, n float8)",
        "insert into public.bag values ('a', 1), ('a', 1), ('b', null), (null, 0), ('c', 3), ('c', 3)",
    )
    mirror.fill("bag")
    assert mirror.compare("bag").state == "equal"
    mirror.lake("delete from public.bag where rowid = (select min(rowid) from public.bag where word = 'a')")
    mirror.lake("insert into public.bag values ('c', 3), ('c', 3), (null, '-0.0'::double)")
    assert sorted(said(mirror.compare("bag"))) == [
        "word=NULL, n=-0.0: only in the sink",
        "word=a, n=1.0: missing in the sink",
        "word=c, n=3.0: only in the sink, 2 rows",
    ]


def test_an_empty_table_is_equal_and_rows_in_its_mirror_are_not(mirror: Mirror) -> None:
    mirror.source("create table public.empty (id int primary key)", "insert into public.empty values (1)")
    mirror.fill("empty")
    mirror.source("truncate public.empty")
    assert said(mirror.compare("empty")) == ["id=1: only in the sink"]
    mirror.lake("delete from public.empty")
    report = mirror.compare("empty")
    assert (report.state, report.rows) == ("equal", 0)


def test_a_column_that_the_file_has_not_got_yet_counts_as_null(items: Mirror) -> None:
    items.source("alter table public.items add column later int")
    assert items.compare("items").state == "equal"
    items.source("update public.items set later = 7 where id = 3")
    assert said(items.compare("items")) == ["id=3: differs in later"]


def test_row_filters_and_column_lists_are_honoured(mirror: Mirror) -> None:
    mirror.source(
        ITEMS,
        "drop publication verified",
        "create publication verified for table public.items (id, note) where (id < 3)",
    )
    mirror.fill("items")
    report = mirror.compare("items")
    assert (report.state, report.rows) == ("equal", 2)
    mirror.source("update public.items set price = 77; update public.items set note = 'unseen' where id = 4")
    assert mirror.compare("items").state == "equal"
    mirror.lake("insert into public.items values (4, 'ä')")
    assert said(mirror.compare("items")) == ["id=4: only in the sink"]


def test_a_partitioned_table_is_compared_through_its_root(mirror: Mirror) -> None:
    mirror.source(
        "drop publication verified",
        "create publication verified for all tables with (publish_via_partition_root = true)",
        "create table public.parts (id int, day int, v text, primary key (id, day)) partition by list (day)",
        "create table public.parts_1 partition of public.parts for values in (1)",
        "create table public.parts_2 partition of public.parts for values in (2)",
        "insert into public.parts select n, 1 + n % 2, 'v' from generate_series(1, 100) n",
    )
    mirror.fill("parts")
    assert mirror.compare("parts").rows == 100
    mirror.lake("update public.parts set v = 'w' where id = 40")
    assert said(mirror.compare("parts")) == ["id=40, day=1: differs in v"]


def test_many_chunks_in_parallel_give_the_same_as_one(mirror: Mirror) -> None:
    mirror.source(
        "create table public.many (id int primary key, v text)",
        "insert into public.many select n, repeat('x', n % 50) from generate_series(1, 50000) n",
        "analyze public.many",
    )
    mirror.fill("many")
    seen: list[int] = []
    report = mirror.compare("many", workers=3, progress=seen.append)
    assert (report.state, report.rows) == ("equal", 50000)
    assert len(seen) > 3
    assert seen[-1] == 50000
    mirror.lake("update public.many set v = 'y' where id in (1, 25000, 50000)")
    assert said(mirror.compare("many", workers=3)) == [f"id={n}: differs in v" for n in (1, 25000, 50000)]


def test_a_file_that_another_process_has_open_is_waited_for(items: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    with OtherProcess(items.path, reads=False) as other:

        def closes_it(seconds: float) -> None:
            waits.append(seconds)
            other.leave()

        clock = SimpleNamespace(sleep=closes_it, monotonic=time.monotonic)  # its own: other threads sleep, too
        monkeypatch.setattr(duckdb_file, "_PATIENCE_SECONDS", 0.0)  # of the file itself; verify has more
        monkeypatch.setattr(duckdb_target, "time", clock)
        position = items.target.position()
    assert position is not None
    assert len(waits) == 1


def test_a_table_is_read_in_sessions_between_which_the_file_is_free(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.source("create table public.many (id int primary key, v text)")
    mirror.source("insert into public.many select n, 'x' from generate_series(1, 1000) n")
    mirror.fill("many")
    monkeypatch.setattr(duckdb_target, "_FEWEST_ROWS", 100)
    monkeypatch.setattr(duckdb_target, "_SESSION_SECONDS", 0.0)  # each is too long, so the next one is the shortest
    mirror.target.rows_at_once = 100
    sessions = []
    opened = DuckDBFile.opened

    def counted(file: DuckDBFile, read_only: bool = False) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        sessions.append(read_only)
        return opened(file, read_only)

    monkeypatch.setattr(DuckDBFile, "opened", counted)
    assert mirror.compare("many").state == "equal"
    assert len(sessions) > 10


def test_without_a_file_there_is_nothing_to_compare(mirror: Mirror) -> None:
    mirror.sink.close()
    mirror.path.unlink()
    with pytest.raises(SinkRefused, match="there is no file"):
        mirror.target.position()
