from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.changes.batch import READ
from penstock.errors import SourceRefused, SourceUnavailable
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading import csv_rows, read_chunk
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.copy_out import copy_out
from penstock.postgres.reading.read_chunk import seen_by
from penstock.testing.conditions import wait_until
from tests.imports.tables_to_copy import FROM, Table, published, rows_of, sessions, streamed

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)

WIDE = "create table public.t (id int primary key, pad text)"
FILL = "insert into public.t select i, repeat('x', 100) from generate_series(1, 20000) i"

TYPES = """
create type public.mood as enum ('sad', 'so so', 'ha,ppy');
create domain public.price as numeric(12, 4);
create type public.pair as (x int, y text);
create table public.t (
    id int primary key, a bool, b int2, c int8, d float4, e float8, f numeric, g numeric(10, 2), h money, i text,
    j varchar(20), k char(5), l "char", m name, n bytea, o date, p time, q timetz, r timestamp, s timestamptz,
    t interval, u uuid, v json, w jsonb, y inet, z cidr, aa macaddr, ab macaddr8, ac point, ad lseg, ae box,
    af path, ag polygon, ah circle, ai line, aj bit(5), ak varbit, al tsvector, am tsquery, an int4range,
    ao nummultirange, ap int[], aq text[][], ar public.mood, at public.mood[], au public.price, av public.pair,
    aw public.pair[], ax oid, ay regclass, az pg_lsn, ba xid8, bb jsonpath, bc txid_snapshot, bd box[]
)
"""
ROWS_OF_TYPES = r"""
insert into public.t values
(1, true, 32767, 9223372036854775807, 3.4028235e38, 1.7976931348623157e308, 'NaN', 1.5, '-1234.56', 'plain', 'a,b', 'ab',
 'c', 'a name', '\x00ff10', '2024-02-29', '23:59:59.999999', '12:00:00+05:30', 'infinity', '2024-07-01 12:00:00.5+02',
 '1 year -2 mons +3 days -04:05:06.7', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a" : [1, "x,\n"]}',
 '{"b": "q\"uote", "a": null}', '192.168.1.5/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05',
 '(1.5,-2)', '[(0,0),(1,1)]', '(3,3),(1,1)', '((0,0),(1,1),(2,0))', '((0,0),(1,1),(2,0))', '<(1,2),3>', '{1,-1,0}',
 B'10101', B'1', 'a fat cat', 'fat & (rat | cat)', '[1,5)', '{[1.5,2),(7,)}', '{1,NULL,3}',
 '{{"a,b","c\"d"},{NULL,""}}', 'ha,ppy', '{sad,"so so"}', 12.5, '(1,"a,b")', '{"(1,\"x\")"}', 4294967295,
 'pg_catalog.pg_class', '16/B374D848', '99', '$.a[*] ? (@ > 1)', '10:20:10,14,15', '{(2,2),(1,1);(4,4),(3,3)}'),
(2, false, -1, 0, '-Infinity', '-0', '1e-30', 0, '0', '', '"', '', ' ', '', '', '0044-03-15 BC', '24:00',
 '00:00-15:59', '0001-01-01 BC', '-infinity', '00:00', '00000000-0000-0000-0000-000000000000', 'null', '[]', '::1',
 '::/0', '00:00:00:00:00:00', '00:00:00:00:00:00:00:00', '(NaN,Infinity)', null, null, '[(0,0)]', '((0,0))',
 '<(0,0),0>', '{0,1,0}', B'00000', B'', '', '', 'empty', '{}', '{}', '{}', 'sad', '{}', 0, '(,)', '{}', 0, '0', '0/0',
 '0', '$', '1:1:', '{}')
"""
NULLS = "insert into public.t (id) values (3)"

TEXTS = r"""
insert into public.t values
(1, null), (2, ''), (3, 'a,b'), (4, 'say "hi"'), (5, e'two\nlines'), (6, e'cr\rlf\r\n'), (7, '\.'), (8, '\N'), (9, 'NULL'),
(10, e'back\\slash\\'), (11, ' spaces '), (12, e'\ufeffmark'), (13, '"'), (14, '""'), (15, ','), (16, e'\n'), (17, e'\r'),
(18, 'é🐘日本'), (19, e'\u2028\u0085'), (20, e'\x01\x1a\x7f'), (21, '#comment'), (22, repeat('long "value", ', 300000)),
(23, e'\t')
"""


@both_versions
def test_every_type_reads_as_capture_receives_it(database: str, connection: Connection) -> None:
    """However the database is set to print things."""
    name = sql.Identifier(connection.info.dbname)
    for setting in (
        "DateStyle = 'German'", "IntervalStyle = 'iso_8601'", "bytea_output = 'escape'", "extra_float_digits = -5",
        "TimeZone = 'Asia/Tokyo'", "search_path = 'pg_catalog, public'", "xmlbinary = 'hex'",
    ):  # fmt: skip
        connection.execute(sql.SQL("alter database {} set " + setting).format(name))
    table = published(database, connection, TYPES)
    inserted = streamed(database, connection, table, f"{ROWS_OF_TYPES}; {NULLS}", 3)
    assert table.read() == inserted
    assert inserted[1][9] == ""
    assert inserted[2][1:] == [None] * 54


@both_versions
@pytest.mark.parametrize("columns", ["id int primary key, v text", "gone int, v text"])
def test_every_text_reads_as_capture_receives_it(database: str, connection: Connection, columns: str) -> None:
    """Also in a table of one column, where an empty line is NULL."""
    table = published(database, connection, f"create table public.t ({columns})")
    inserted = streamed(database, connection, table, TEXTS, 23)
    if "gone" in columns:
        connection.execute("alter table public.t drop column gone")
        table, inserted = Table(database, connection), [row[1:] for row in inserted]
    assert table.read() == inserted


def test_the_chunks_of_a_table_hold_each_row_once(database: str, connection: Connection) -> None:
    table = published(database, connection, WIDE, FILL, chunk_bytes=1 << 19)
    assert len(table.chunks) > 3
    read = [row for chunk in table.chunks for row in table.read(chunk)]
    assert sorted(int(row[0] or 0) for row in read) == list(range(1, 20_001))


def test_rows_that_came_after_the_plan_are_in_the_last_chunk(database: str, connection: Connection) -> None:
    table = published(database, connection, WIDE, FILL, chunk_bytes=1 << 19)
    connection.execute("insert into public.t select i, 'late' from generate_series(20001, 30000) i")
    assert ["30000", "late"] in table.read(table.chunks[-1])


def test_a_row_is_a_read_at_the_imports_lsn(database: str, connection: Connection) -> None:
    table = published(database, connection, WIDE, FILL)
    (batch,) = table.reader().batches()
    row = connection.execute("select extract(epoch from now())::float8 * 1000000").fetchone()
    assert row is not None
    assert set(batch.op.tolist()) == {READ}
    assert set(batch.commit_lsn.tolist()) == {FROM}
    assert batch.sequence.tolist() == list(range(1, 20_001))
    assert row[0] - 60e6 < batch.commit_time[0] <= row[0]
    assert batch.relation == table.layout.relation


def test_an_empty_table_has_no_batches(database: str, connection: Connection) -> None:
    assert list(published(database, connection, WIDE).reader().batches()) == []


def test_a_table_without_columns_has_rows(database: str, connection: Connection) -> None:
    table = published(database, connection, "create table public.t ()", "insert into public.t default values")
    connection.execute("insert into public.t default values")
    assert [len(batch) for batch in table.reader().batches()] == [2]


def test_a_row_of_a_hundred_megabytes(database: str, connection: Connection) -> None:
    row = "insert into public.t values (1, repeat('0123456789', 10000000)), (2, 'small')"
    table = published(database, connection, WIDE, row)
    assert table.read() == [["1", "0123456789" * 10_000_000], ["2", "small"]]


def test_a_partitioned_table_is_read_leaf_by_leaf(database: str, connection: Connection) -> None:
    table = published(
        database, connection, "create table public.t (id int, day int, primary key (day, id)) partition by list (day)",
        "create table public.one partition of public.t for values in (1)",
        "create table public.two (day int not null, id int not null)",
        "alter table public.t attach partition public.two for values in (2)",
        "insert into public.t select i, 1 + i % 2 from generate_series(1, 10) i",
    )  # fmt: skip
    assert [sorted(table.read(chunk)) for chunk in table.chunks] == [
        sorted([str(i), "1"] for i in (2, 4, 6, 8, 10)), sorted([str(i), "2"] for i in (1, 3, 5, 7, 9)),
    ]  # fmt: skip


def test_ranges_and_single_keys_are_read_through_the_root(database: str, connection: Connection) -> None:
    table = published(database, connection, WIDE, FILL)
    assert [row[0] for row in table.read(Chunk(1, "keys", lower=("3",), upper=("6",)))] == ["3", "4", "5"]
    assert sorted(row[0] or "" for row in table.read(Chunk(1, "rows", keys=(("7",), ("0",), ("9",))))) == ["7", "9"]


def test_a_table_read_whole_tells_what_its_snapshot_saw(database: str, connection: Connection) -> None:
    table = published(database, connection, "create table public.t (v text)", "insert into public.t values ('seen')")
    with connect(database, autocommit=False) as running:
        row = running.execute("insert into public.t values ('unseen') returning pg_current_xact_id()::text").fetchone()
        assert row is not None
        reader = table.reader()
        batches = reader.batches()
        first = next(batches)
        running.commit()
    assert rows_of(iter([first, *batches])) == [["seen"]]
    assert reader.snapshot is not None
    xids = connection.execute("select xmin::text::bigint from public.t order by v").fetchall()
    assert seen_by(reader.snapshot, np.array([xid for (xid,) in xids], np.uint32)).tolist() == [True, False]
    assert int(row[0]) & 0xFFFFFFFF == xids[1][0]


def test_the_rows_of_a_table_read_whole_are_those_of_its_snapshot(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although COPY is another statement than the one that asks for the snapshot."""
    table = published(database, connection, "create table public.t (v text)", "insert into public.t values ('seen')")

    def later(session: Connection, query: sql.Composed) -> Generator[pa.Buffer, None, None]:
        connection.execute("insert into public.t values ('unseen')")
        return copy_out(session, query)

    monkeypatch.setattr(read_chunk, "copy_out", later)
    assert table.read() == [["seen"]]


def test_a_chunk_of_pages_has_no_snapshot(database: str, connection: Connection) -> None:
    reader = published(database, connection, WIDE, FILL).reader()
    list(reader.batches())
    assert reader.snapshot is None


def test_the_transaction_has_ended_when_the_first_rows_are_handed_out(database: str, connection: Connection) -> None:
    batches = published(database, connection, WIDE, FILL).reader().batches()
    next(batches)
    wait_until(lambda: sessions(connection) == [], what="the session to end")
    batches.close()


def test_what_does_not_fit_into_memory_is_handed_out_while_it_is_read(database: str, connection: Connection) -> None:
    large = "insert into public.t select i, repeat('x', 1000) from generate_series(1, 60000) i"
    table = published(database, connection, WIDE, large)
    batches = table.reader(most_bytes=8 << 20).batches()
    first = next(batches)
    assert sessions(connection) == ["active"]
    assert len(first) < 60_000
    assert len(first) + sum(len(batch) for batch in batches) == 60_000
    wait_until(lambda: sessions(connection) == [], what="the session to end")


def test_a_sink_that_gives_up_ends_the_session(database: str, connection: Connection) -> None:
    large = "insert into public.t select i, repeat('x', 1000) from generate_series(1, 100000) i"
    table = published(database, connection, WIDE, large)

    def write() -> None:
        for _batch in table.reader(most_bytes=8 << 20).batches():
            raise ValueError("the sink's disk is full")

    with pytest.raises(ValueError, match="disk is full"):
        write()
    wait_until(lambda: sessions(connection) == [], what="the session to end")


def test_a_backend_that_is_killed_is_worth_another_try(database: str, connection: Connection) -> None:
    large = "insert into public.t select i, repeat('x', 1000) from generate_series(1, 100000) i"
    batches = published(database, connection, WIDE, large).reader(most_bytes=8 << 20).batches()
    next(batches)
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock copy' "
        "and datname = current_database()"
    )
    with pytest.raises(SourceUnavailable, match=r"Reading table public\.t failed"):
        list(batches)


def test_a_lock_that_is_not_to_be_had_is_not_waited_for_long(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_chunk, "_LOCK_TIMEOUT", "20ms")
    table = published(database, connection, WIDE, FILL)
    with connect(database, autocommit=False) as other:
        other.execute("lock table public.t in access exclusive mode")
        with pytest.raises(SourceUnavailable, match="lock timeout"):
            table.read()


def test_limits_that_are_meant_for_people_do_not_end_it(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "BATCH_BYTES", 1)
    for limit in ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"):
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} set " + limit + " = '500ms'").format(name))
    batches = published(database, connection, WIDE, FILL).reader(most_bytes=1).batches()
    begun = time.monotonic()
    first = next(batches)
    wait_until(lambda: time.monotonic() > begun + 1, what="every limit to be exceeded")
    assert sessions(connection) == ["idle in transaction"]
    assert len(first) + sum(len(batch) for batch in batches) == 20_000


def test_the_session_prints_values_as_captures_does(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those settings that no type of this server depends on."""
    connection.execute(sql.SQL("alter database {} set xmlbinary = hex").format(sql.Identifier(connection.info.dbname)))
    seen: list[tuple[str, ...] | None] = []

    def looked_at(session: Connection, query: sql.Composed) -> Generator[pa.Buffer, None, None]:
        seen.append(session.execute("select current_setting('xmlbinary'), current_setting('lc_monetary')").fetchone())
        return copy_out(session, query)

    monkeypatch.setattr(read_chunk, "copy_out", looked_at)
    published(database, connection, WIDE).read()
    assert seen == [("base64", "C")]


def as_guest(table: Table, guest: str) -> str:
    return psycopg.conninfo.make_conninfo(table.url, user=guest)


def refusal(table: Table, guest: str) -> SourceRefused:
    with pytest.raises(SourceRefused) as caught:
        list(table.reader(url=as_guest(table, guest)).batches())
    return caught.value


def test_what_the_role_may_not_read_is_refused_with_the_grant(
    database: str, connection: Connection, guest: str
) -> None:
    table = published(database, connection, WIDE, FILL)
    no_select = refusal(table, guest)
    assert str(no_select) == "Reading table public.t failed: permission denied for table t."
    assert no_select.advice == f'Run as the owner of the table: GRANT SELECT ON "public"."t" TO "{guest}".'
    connection.execute("revoke usage on schema public from public")
    assert (
        refusal(table, guest).advice == f'Run as the owner of the schema: GRANT USAGE ON SCHEMA "public" TO "{guest}".'
    )


def test_rows_that_a_policy_hides_are_an_error_and_not_left_out(
    database: str, connection: Connection, guest: str
) -> None:
    table = published(database, connection, WIDE, FILL, "alter table public.t enable row level security")
    connection.execute("create policy evens on public.t using (id % 2 = 0)")
    role = sql.Identifier(guest)
    connection.execute(sql.SQL("grant select on public.t to {}").format(role))
    error = refusal(table, guest)
    assert "row-level security policy" in str(error)
    assert error.advice == (
        "Row-level security would hide rows of it. Connect as the owner of the table, or run as a superuser: "
        f'ALTER ROLE "{guest}" BYPASSRLS.'
    )
    connection.execute(sql.SQL("alter role {} bypassrls").format(role))
    assert len(rows_of(table.reader(url=as_guest(table, guest)).batches())) == 20_000


def test_rights_on_the_columns_are_enough(database: str, connection: Connection, guest: str) -> None:
    """By the key then: to go by ctid takes the right to the whole table."""
    table = published(database, connection, WIDE, FILL)
    connection.execute(sql.SQL("grant select (id, pad) on public.t to {}").format(sql.Identifier(guest)))
    with connect(as_guest(table, guest)) as session:
        table = Table(as_guest(table, guest), session)
        assert {chunk.kind for chunk in table.chunks} == {"keys"}
        assert len(table.read()) == 20_000


def test_an_error_that_has_another_cause_is_told_as_it_is(database: str, connection: Connection) -> None:
    published(database, connection, WIDE, FILL)
    connection.execute("alter publication pub set table public.t where (1 / (id - 19000) > 5)")
    table = Table(database, connection)
    with pytest.raises(SourceRefused, match=r"Reading table public\.t failed: division by zero"):
        table.read()
