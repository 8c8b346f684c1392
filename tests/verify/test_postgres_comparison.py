"""Differences between a source and a Postgres target: each kind is found, and nothing else is."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg import sql

from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading.chunks import plan_chunks
from penstock.sinks.postgres.verify import PostgresPair, PostgresTarget
from penstock.testing.embedded_postgres import EmbeddedPostgres
from penstock.verify.comparison import TableComparison
from penstock.verify.report import TableReport
from tests.postgres.ticket_type import TICKET
from tests.verify.duckdb_mirror import layout_of, said

ITEMS = """
create type public.mood as enum ('sad', 'happy');
create table public.items (id int primary key, note text, price numeric, weight float8, seen_at timestamptz, raw bytea,
    extra jsonb, tags text[], took interval, mood public.mood, span int4range, padded char(5));
insert into public.items values
    (1, '', 1.50, 0, 'infinity', '\\x00ff5c', '{"a": 1}', '{a,NULL,"b,c"}', '1 mon', 'sad', '[1,5)', 'x'),
    (2, null, null, null, null, null, null, null, null, null, null, null),
    (3, 'a "b", c', 'NaN', 'NaN', '4713-01-01 BC', '', '[]', '{}', '-1 day', 'happy', 'empty', '');
"""


class Replica:
    """A source, and a target with the same tables, in a database of its own. ``both`` runs on either side."""

    def __init__(self, source: Connection, source_url: str, url: str) -> None:
        self.source, self.target = source, connect(url)
        self.verified = PostgresTarget("replica", url, source_url)

    def both(self, statements: str) -> None:
        for side in (self.source, self.target):
            side.execute(statements.encode())

    def pair(self, table: str, schema: str = "public") -> PostgresPair:
        found = self.verified.pair(layout_of(self.source, table, schema))
        assert found is not None
        return found

    def compare(
        self, table: str, schema: str = "public", catch_up: Callable[[], object] = lambda: None, **more: Any
    ) -> TableReport:
        layout = layout_of(self.source, table, schema)
        chunks = plan_chunks(self.source, layout, 1 << 16)
        return TableComparison("replica", layout, self.pair(table, schema), chunks, catch_up, **more).run()

    def close(self) -> None:
        self.verified.close()
        self.target.close()


@pytest.fixture
def replica(connection: Connection, database: str, postgres18: EmbeddedPostgres) -> Iterator[Replica]:
    name = f"replica_{uuid.uuid4().hex[:12]}"
    made = Replica(connection, database, postgres18.create_database(name))
    yield made
    made.close()
    postgres18.drop_database(name)


@pytest.fixture
def items(replica: Replica) -> Replica:
    replica.both(ITEMS)
    return replica


def test_the_same_rows_are_equal_whatever_the_databases_settings(items: Replica) -> None:
    for setting in (
        "datestyle = 'German'",
        "extra_float_digits = 0",
        "bytea_output = 'escape'",
        "timezone = 'Asia/Tokyo'",
    ):
        name = sql.Identifier(items.target.info.dbname)
        items.target.execute(sql.SQL("alter database {} set " + setting).format(name))
    other = PostgresTarget("replica", items.target.info.dsn, items.source.info.dsn)
    layout = layout_of(items.source, "items")
    pair = other.pair(layout)
    assert pair is not None
    report = TableComparison("replica", layout, pair, plan_chunks(items.source, layout, 1 << 16), lambda: None).run()
    other.close()
    assert (report.state, report.rows) == ("equal", 3)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update public.items set note = null where id = 1", "id=1: differs in note"),
        ("update public.items set note = '' where id = 2", "id=2: differs in note"),
        ("update public.items set price = 1.5 where id = 1", "id=1: differs in price"),
        ("update public.items set weight = '-0' where id = 1", "id=1: differs in weight"),
        ("update public.items set weight = 'Infinity' where id = 3", "id=3: differs in weight"),
        ("update public.items set seen_at = '-infinity' where id = 1", "id=1: differs in seen_at"),
        ("update public.items set raw = '\\x00ff' where id = 1", "id=1: differs in raw"),
        ("update public.items set extra = '{\"a\": 1.0}' where id = 1", "id=1: differs in extra"),
        ('update public.items set tags = \'{a,"NULL","b,c"}\' where id = 1', "id=1: differs in tags"),
        ("update public.items set took = '30 days' where id = 1", "id=1: differs in took"),
        ("update public.items set mood = 'happy', span = null where id = 1", "id=1: differs in mood, span"),
        ("delete from public.items where id = 2", "id=2: missing in the sink"),
        ("insert into public.items (id) values (5)", "id=5: only in the sink"),
    ],
)
def test_each_kind_of_difference_is_found_and_named(items: Replica, statement: str, expected: str) -> None:
    items.target.execute(statement.encode())
    report = items.compare("items")
    assert (report.state, said(report)) == ("differs", [expected])


def test_unusual_names_composite_keys_and_another_order_of_columns(replica: Replica) -> None:
    replica.both('create schema "Odd ""one"""; create collation "Odd ""one""".byte from "C"')
    name = '"Odd ""one"""."the Table.x"'
    replica.source.execute(
        f'create table {name} (q int, h text, bucket bytea, "k0" char(4), primary key (bucket, k0))'.encode()
    )
    replica.target.execute(
        f'create table {name} (extra int default 7, bucket bytea, h text, "k0" char(4), q int)'.encode()
    )
    replica.both(f"insert into {name} (q, h, bucket, k0) values (1, 'x', '\\x00', 'a'), (2, 'it''s', '\\xff', 'b')")
    assert replica.compare("the Table.x", 'Odd "one"').state == "equal"
    replica.target.execute(f"update {name} set q = 9 where k0 = 'b'".encode())
    replica.target.execute(f"insert into {name} (bucket, k0, q, h) values ('\\x00', 'a', 1, 'x')".encode())
    assert said(replica.compare("the Table.x", 'Odd "one"')) == [
        "bucket=\\x00, k0=a   : more than once in the sink, 2 rows",
        "bucket=\\xff, k0=b   : differs in q",
    ]


def test_a_row_without_a_key_in_a_target_without_a_primary_key_is_found(replica: Replica) -> None:
    replica.source.execute("create table public.t (a int, b int, v text, primary key (a, b))")
    replica.target.execute("create table public.t (a int, b int, v text)")
    replica.both("insert into public.t values (1, 1, 'x')")
    replica.target.execute("insert into public.t values (1, null, 'x')")
    assert said(replica.compare("t")) == ["a=1, b=NULL: only in the sink"]


def test_text_keys_need_no_common_collation(replica: Replica) -> None:
    replica.source.execute("create table public.words (word text primary key, n int)")
    replica.target.execute('create table public.words (word text collate "pg_unicode_fast" primary key, n int)')
    replica.both("insert into public.words select chr(64 + n % 60) || n, n from generate_series(1, 5000) n")
    replica.both("insert into public.words values ('ä', 1), ('Zebra', 2), ('zebra', 3), ('', 4)")
    assert replica.compare("words").state == "equal"
    replica.target.execute("update public.words set n = 0 where word in ('zebra', 'ä')")
    assert said(replica.compare("words")) == ["word=zebra: differs in n", "word=ä: differs in n"]


def test_a_table_without_a_key_is_a_bag_of_rows(replica: Replica) -> None:
    replica.both("create table public.bag (word text, n float8)")
    replica.both("insert into public.bag values ('a', 1), ('a', 1), ('b', null), (null, 0), (null, 0)")
    assert replica.compare("bag").state == "equal"
    replica.target.execute("delete from public.bag where ctid = (select min(ctid) from public.bag where word = 'a')")
    replica.target.execute("insert into public.bag values (null, 0), (null, '-0')")
    assert sorted(said(replica.compare("bag"))) == [
        "word=NULL, n=-0: only in the sink",
        "word=NULL, n=0: only in the sink",
        "word=a, n=1: missing in the sink",
    ]


def test_many_chunks_and_an_empty_table(replica: Replica) -> None:
    replica.both("create table public.many (id int primary key, v text); create table public.none (id int primary key)")
    replica.both(
        "insert into public.many select n, repeat('x', n % 50) from generate_series(1, 30000) n; analyze public.many"
    )
    report = replica.compare("many", workers=3)
    assert (report.state, report.rows) == ("equal", 30000)
    replica.target.execute("delete from public.many where id in (1, 15000)")
    assert said(replica.compare("many")) == ["id=1: missing in the sink", "id=15000: missing in the sink"]
    assert (replica.compare("none").state, replica.compare("none").rows) == ("equal", 0)


def test_row_filters_and_column_lists_are_honoured(replica: Replica) -> None:
    replica.both(ITEMS)
    replica.source.execute("drop publication verified")
    replica.source.execute("create publication verified for table public.items (id, note) where (id < 3)")
    replica.target.execute("delete from public.items where id = 3; update public.items set price = 5")
    assert replica.compare("items").state == "equal"
    replica.target.execute("insert into public.items (id) values (3)")
    assert said(replica.compare("items")) == ["id=3: only in the sink"]


def test_rows_on_their_way_are_no_difference(items: Replica) -> None:
    items.source.execute("update public.items set note = 'new' where id = 2; delete from public.items where id = 3")
    items.target.execute("update public.items set note = 'planted' where id = 1")

    def delivered() -> None:
        items.target.execute("update public.items set note = 'new' where id = 2; delete from public.items where id = 3")

    assert said(items.compare("items", catch_up=delivered)) == ["id=1: differs in note"]


def test_a_column_that_the_target_lacks_counts_as_null(items: Replica) -> None:
    items.source.execute("alter table public.items add column later int")
    assert items.compare("items").state == "equal"
    items.source.execute("update public.items set later = 1 where id = 2")
    assert said(items.compare("items")) == ["id=2: differs in later"]


def test_the_position_is_the_sinks_own_record(replica: Replica) -> None:
    assert replica.verified.position() is None
    replica.target.execute("create schema penstock")
    replica.target.execute("create table penstock.progress (pipeline text, sink text, lsn pg_lsn)")
    assert replica.verified.position() is None
    replica.target.execute(
        "insert into penstock.progress values ('', 'replica', '1/2A'), ('', 'other', '9/9'), ('other', 'replica', '9/9')"
    )
    assert replica.verified.position() == LSN.parse("1/2A")


def test_a_table_that_is_not_there_is_told_from_one_that_is(items: Replica) -> None:
    items.source.execute("create table public.new (id int primary key)")
    assert items.verified.pair(layout_of(items.source, "new")) is None


def test_what_goes_wrong_on_the_target_is_the_sinks_error_without_its_password(items: Replica) -> None:
    with pytest.raises(SinkUnavailable, match='Sink "replica": Connecting to') as failed:
        PostgresTarget("replica", "postgresql://me:hidden@127.0.0.1:1/shop", items.source.info.dsn)
    assert "hidden" not in str(failed.value)
    pair = items.pair("items")
    items.target.execute("drop table public.items")
    with pytest.raises(SinkRefused, match=r'Sink "replica": Reading table public\.items failed'):
        pair.target_figures(64)


def test_keys_of_a_type_with_operators_of_its_own_are_found(replica: Replica) -> None:
    replica.both(
        f"{TICKET} create table public.t (k public.ticket primary key, v text); insert into public.t values ('1', 'a')"
    )
    replica.target.execute("update public.t set v = 'b'; insert into public.t values ('2', 'a')")
    assert said(replica.compare("t")) == ["k=1: differs in v", "k=2: only in the sink"]


def test_rows_of_tables_that_inherit_from_one_of_the_target_are_not_its_own(replica: Replica) -> None:
    replica.both("create table public.t (id int primary key); insert into public.t values (1)")
    replica.target.execute("create table public.child () inherits (public.t); insert into public.child values (2)")
    assert replica.compare("t").state == "equal"
