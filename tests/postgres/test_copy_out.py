"""Both ways to read COPY, ours and libpq's: the same bytes, the same errors, and a connection that can be used afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import LiteralString, TypeAlias

import psycopg
import pyarrow as pa
import pytest
from psycopg import pq, sql

from penstock.errors import SourceRefused, SourceUnavailable
from penstock.postgres.connection import Connection, connect, translated_errors
from penstock.postgres.reading import copy_out as module
from penstock.postgres.reading.copy_out import PIECE_BYTES, copy_out, encrypted, past_libpq, through_libpq
from penstock.testing.conditions import wait_until

Way: TypeAlias = Callable[[Connection, sql.Composed], Generator[pa.Buffer, None, None]]

both_ways = pytest.mark.parametrize("way", [past_libpq, through_libpq])
both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)

# Seven columns and every character that CSV has a rule for.
AWKWARD = """
select i, case i % 7 when 0 then null when 1 then '' when 2 then 'a,b' when 3 then 'say "hi"' when 4 then e'a\\nb'
    when 5 then '\\.' else e'\\r' end, repeat('é🐘', i % 50), null, i % 2 = 0, array[i, null], '{"a": "\\""}'::jsonb
from generate_series(1, $count) i
"""


def awkward(count: int) -> str:
    return AWKWARD.replace("$count", str(count))


def copy_of(query: str) -> sql.Composed:
    return sql.SQL("copy ({}) to stdout (format csv)").format(as_sql(query))


def as_sql(query: str) -> sql.Composed:
    text: LiteralString = query
    return sql.Composed([sql.SQL(text)])


def rows_of(pieces: Generator[pa.Buffer, None, None]) -> bytes:
    return b"".join(piece.to_pybytes() for piece in pieces)


def numbers(count: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, count + 1))


def backend_state(database: str, pid: int) -> str | None:
    with connect(database) as other:
        row = other.execute("select state from pg_stat_activity where pid = %s", [pid]).fetchone()
    return row[0] if row else None


@both_versions
@pytest.mark.parametrize("count", [0, 1, 1000, 200_000])
def test_both_ways_give_the_same_bytes(connection: Connection, count: int) -> None:
    ours = list(past_libpq(connection, copy_of(awkward(count))))
    assert b"".join(ours) == rows_of(through_libpq(connection, copy_of(awkward(count))))
    assert (len(ours) > 1) == (count == 200_000)


@both_ways
def test_pieces_end_at_a_rows_end_and_are_neither_small_nor_large(connection: Connection, way: Way) -> None:
    pieces = list(way(connection, copy_of("select repeat('x', i % 200) || i from generate_series(1, 100000) i")))
    assert b"".join(pieces) == b"".join(b"x" * (i % 200) + b"%d\n" % i for i in range(1, 100_001))
    assert len(pieces) >= 2
    assert all(piece[-1:].to_pybytes() == b"\n" for piece in pieces)
    assert all(PIECE_BYTES // 2 <= piece.size <= PIECE_BYTES + 210 for piece in pieces[:-1])


def test_without_encryption_the_socket_is_read_by_ourselves(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not encrypted(connection)
    query = as_sql("select i from generate_series(1, 3) i")
    assert rows_of(copy_out(connection, query)) == b"1\n2\n3\n"
    monkeypatch.setattr(module, "past_libpq", lambda connection, command: iter([b"ours"]))
    assert list(copy_out(connection, query)) == [b"ours"]
    monkeypatch.setattr(module, "encrypted", lambda connection: True)
    assert rows_of(copy_out(connection, query)) == b"1\n2\n3\n"


def test_the_environment_can_have_every_copy_read_through_libpq(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = as_sql("select i from generate_series(1, 3) i")
    monkeypatch.setattr(module, "past_libpq", lambda connection, command: iter([b"ours"]))
    monkeypatch.setenv("PENSTOCK_COPY", "libpq")
    assert rows_of(copy_out(connection, query)) == b"1\n2\n3\n"


@both_ways
def test_the_transaction_goes_on_afterwards(connection: Connection, way: Way) -> None:
    flags = os.get_blocking(connection.pgconn.socket)
    with connection.transaction():
        connection.execute("create temporary table t (id int)")
        connection.execute("insert into t select generate_series(1, 5)")
        assert rows_of(way(connection, copy_of("select id from pg_temp.t"))) == numbers(5)
        assert connection.info.transaction_status == pq.TransactionStatus.INTRANS
        connection.execute("delete from t where id = 5")
        assert rows_of(way(connection, copy_of("select id from pg_temp.t"))) == numbers(4)
    assert connection.execute("select count(*) from t").fetchone() == (4,)
    assert os.get_blocking(connection.pgconn.socket) == flags


@both_ways
def test_no_descriptor_is_left_open(connection: Connection, way: Way) -> None:
    before = len(os.listdir("/proc/self/fd"))
    rows_of(way(connection, copy_of("select 1")))
    with pytest.raises(psycopg.Error):
        rows_of(way(connection, copy_of("select 1 / 0")))
    pieces = way(connection, copy_of("select repeat('x', 100), generate_series(1, 10000000)"))
    next(pieces)
    pieces.close()
    assert len(os.listdir("/proc/self/fd")) == before


@both_ways
@pytest.mark.parametrize("megabytes", [5, 100])
def test_a_row_may_be_much_larger_than_a_piece(connection: Connection, way: Way, megabytes: int) -> None:
    value = f"case when i = 2 then repeat('0123456789', {megabytes} * 100000) end"
    pieces = list(way(connection, copy_of(f"select i, {value} from generate_series(1, 3) i")))
    assert b"".join(pieces) == b"1,\n2," + b"0123456789" * (megabytes * 100_000) + b"\n3,\n"


@both_ways
def test_a_large_command_is_sent_whole(connection: Connection, way: Way) -> None:
    text = "x" * 20_000_000
    assert rows_of(way(connection, copy_of(f"select length('{text}')"))) == b"20000000\n"


@both_ways
def test_an_error_at_once_is_psycopgs(connection: Connection, way: Way) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as caught:
        rows_of(way(connection, copy_of("select * from public.nowhere")))
    assert caught.value.diag.message_primary == 'relation "public.nowhere" does not exist'
    assert rows_of(way(connection, copy_of("select 1"))) == b"1\n"


@both_ways
def test_an_error_after_many_rows_comes_after_them(connection: Connection, way: Way) -> None:
    connection.execute("begin")
    pieces = way(connection, copy_of("select repeat('x', 100), 1 / (100000 - i) from generate_series(1, 200000) i"))
    assert next(pieces).to_pybytes().startswith(b"x" * 100 + b",0\n")
    next(pieces)
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        rows_of(pieces)
    assert connection.info.transaction_status == pq.TransactionStatus.INERROR
    connection.execute("rollback")
    assert connection.execute("select 1").fetchone() == (1,)


@both_ways
def test_what_the_error_means_is_told_by_its_sqlstate(connection: Connection, way: Way) -> None:
    with pytest.raises(SourceRefused, match="Reading failed: division by zero"), translated_errors("Reading"):
        rows_of(way(connection, copy_of("select 1 / 0")))
    assert connection.info.transaction_status == pq.TransactionStatus.IDLE


@both_ways
def test_a_backend_that_is_killed_in_the_middle_is_worth_another_try(
    connection: Connection, database: str, way: Way
) -> None:
    pieces = way(connection, copy_of("select repeat('x', 100), generate_series(1, 100000000)"))
    next(pieces)
    with connect(database) as other:
        other.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
    with pytest.raises(SourceUnavailable), translated_errors("Reading"):
        rows_of(pieces)
    assert connection.closed


@both_ways
def test_a_backend_that_was_killed_before_says_so(connection: Connection, database: str, way: Way) -> None:
    pid = connection.info.backend_pid
    with connect(database) as other:
        other.execute("select pg_terminate_backend(%s)", [pid])
    wait_until(lambda: backend_state(database, pid) is None, what="the backend to end")
    with pytest.raises(SourceUnavailable, match="terminating connection"), translated_errors("Reading"):
        rows_of(way(connection, copy_of("select 1")))
    assert connection.closed


@both_ways
def test_stopping_early_ends_the_query_and_leaves_a_connection_that_works(
    connection: Connection, database: str, way: Way
) -> None:
    connection.execute("begin")
    pieces = way(connection, copy_of("select repeat('x', 100), generate_series(1, 1000000000)"))
    next(pieces)
    pieces.close()
    assert not connection.closed
    assert connection.info.transaction_status == pq.TransactionStatus.INERROR
    connection.execute("rollback")
    assert rows_of(way(connection, copy_of("select 1"))) == b"1\n"


@both_ways
def test_stopping_after_the_last_piece_is_no_harm(connection: Connection, way: Way) -> None:
    connection.execute("begin")
    pieces = way(connection, copy_of("select 1"))
    assert next(pieces).to_pybytes() == b"1\n"
    pieces.close()
    assert connection.info.transaction_status == pq.TransactionStatus.INTRANS
    assert connection.execute("select 2").fetchone() == (2,)


@both_ways
def test_stopping_before_the_beginning_does_nothing(connection: Connection, way: Way) -> None:
    way(connection, copy_of("select pg_terminate_backend(pg_backend_pid())")).close()
    assert connection.execute("select 1").fetchone() == (1,)


@both_ways
def test_stopping_when_the_server_is_gone_closes_the_connection(
    connection: Connection, database: str, way: Way
) -> None:
    pid = connection.info.backend_pid
    pieces = way(connection, copy_of("select repeat('x', 100), generate_series(1, 100000000)"))
    next(pieces)
    with connect(database) as other:
        other.execute("select pg_terminate_backend(%s)", [pid])
    wait_until(lambda: backend_state(database, pid) is None, what="the backend to end")
    pieces.close()
    assert connection.closed


def test_an_interruption_closes_the_connection(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "readv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rows_of(past_libpq(connection, copy_of("select 1")))
    assert connection.closed


def test_what_else_the_server_sends_in_between_is_passed_over(connection: Connection) -> None:
    """Notices, a changed setting, and a notification of our own."""
    connection.execute("set client_min_messages = notice")
    connection.execute("listen bell")
    connection.execute("""
        create function public.noisy(i int) returns text language plpgsql as $$ begin
            if i % 100 = 0 then
                raise notice 'row %', i using detail = e'\\nd';
                perform set_config('application_name', 'noisy ' || i, false);
                perform pg_notify('bell', i::text);
            end if;
            return repeat('x', i % 7);
        end $$
    """)
    query = "select i, public.noisy(i) from generate_series(1, 20000) i"
    ours = rows_of(past_libpq(connection, copy_of(query)))
    assert ours == b"".join(
        b'%d,%s\n' % (i, b"x" * (i % 7) or b'""') for i in range(1, 20_001)
    )  # fmt: skip
    assert connection.execute("show application_name").fetchone() == ("noisy 20000",)


def test_a_server_that_pauses_is_waited_for(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENCE", 0.005)
    query = "select i from generate_series(1, 5) i, lateral (select pg_sleep(0.03 * i)) pause"
    assert rows_of(past_libpq(connection, copy_of(query))) == numbers(5)
    assert connection.execute("select 1").fetchone() == (1,)


def test_another_kind_of_answer_is_refused_and_the_connection_closed(connection: Connection) -> None:
    with pytest.raises(psycopg.OperationalError, match="message of kind 'T'"):
        rows_of(past_libpq(connection, as_sql("select 1")))
    assert connection.closed
