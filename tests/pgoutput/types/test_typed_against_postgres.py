"""What Postgres itself writes, cast and held against what Postgres itself says that the value is."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from datetime import time
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock.changes.batch import Column
from penstock.errors import UnrepresentableValue
from penstock.pgoutput.types import typed
from tests.pgoutput.types.postgres_text import NUMERIC_10_2, cast, column

ROWS = 2000
SETTINGS = (
    "-c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1 -c bytea_output=hex -c TimeZone=UTC"
    " -c client_encoding=UTF8"
)

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True, options=SETTINGS) as connection:
        connection.execute("select setseed(0.5)")
        yield connection


def texts(connection: psycopg.Connection[Any], query: str) -> list[list[str | None]]:
    """The columns of a query's result as the types' output functions wrote them."""
    result = connection.pgconn.exec_(query.encode())
    assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
    cells = [[result.get_value(row, field) for row in range(result.ntuples)] for field in range(result.nfields)]
    return [[None if cell is None else cell.decode() for cell in values] for values in cells]


def random_values(connection: psycopg.Connection[Any], expression: str, *truths: str) -> list[list[str | None]]:
    """Random values of an expression (of ``random()``), and what Postgres says of each ``v`` of them."""
    return texts(
        connection,
        f"select {', '.join(('v', *truths))} from (select {expression} as v from generate_series(1, {ROWS})) as t",
    )


def integers(values: list[str | None]) -> list[int | None]:
    return [None if value is None else int(value) for value in values]


def counts(values: list[str | None], of: Column) -> list[int | None]:
    result = typed(pa.array(values, pa.string()), of, "error")
    return list(result.view(pa.int32() if of.base == "date" else pa.int64()).to_pylist())


@both_versions
def test_dates_over_the_whole_range(connection: psycopg.Connection[Any]) -> None:
    written, days = random_values(
        connection,
        "date '0001-01-01' + (case when random() < 0.5 then random() * 4000000 else random() * 2145762067 end)::int",
        "v - date '1970-01-01'",
    )
    assert counts(written, column("date")) == integers(days)


@both_versions
@pytest.mark.parametrize("base", ["timestamp", "timestamptz"])
def test_timestamps_over_the_whole_range(connection: psycopg.Connection[Any], base: str) -> None:
    written, microseconds = random_values(
        connection,
        f"{base} '0001-01-01 00:00:00'"
        " + make_interval(days => (random() ^ 4 * 107400000)::int, secs => random() * 86400)",
        "(extract(epoch from v) * 1000000)::bigint",
    )
    assert {4, 5, 6} == {(value or "").index("-") for value in written}
    assert counts(written, column(base)) == integers(microseconds)


@both_versions
def test_times_of_day(connection: psycopg.Connection[Any]) -> None:
    written, microseconds = random_values(
        connection,
        "time '00:00:00' + make_interval(secs => random() * 86399)",
        "(extract(epoch from v) * 1000000)::bigint",
    )
    assert counts(written, column("time")) == integers(microseconds)


@both_versions
def test_intervals_of_all_signs(connection: psycopg.Connection[Any]) -> None:
    part = "(random() > 0.3)::int * (random() - 0.5)"
    written, months, days, microseconds = random_values(
        connection,
        f"make_interval(months => ({part} * 1000)::int, days => ({part} * 1000)::int, secs => {part} * 1000000)",
        "extract(year from v)::int * 12 + extract(month from v)::int",
        "extract(day from v)::int",
        "((extract(hour from v) * 60 + extract(minute from v)) * 60000000 + extract(microseconds from v))::bigint",
    )
    parts = zip(integers(months), integers(days), integers(microseconds), strict=True)
    expected = [pa.MonthDayNano((m, d, None if us is None else us * 1000)) for m, d, us in parts]
    assert cast(written, column("interval")) == expected


@both_versions
@pytest.mark.parametrize(("base", "layout"), [("float4", ">f"), ("float8", ">d")])
def test_floats_to_the_last_bit(connection: psycopg.Connection[Any], base: str, layout: str) -> None:
    written, bits = random_values(
        connection, f"((random() - 0.5) * 10 ^ (random() * 70 - 35)::int)::{base}", f"encode({base}send(v), 'hex')"
    )
    assert [struct.pack(layout, value).hex() for value in cast(written, column(base))] == bits


@both_versions
def test_numerics_and_bytes(connection: psycopg.Connection[Any]) -> None:
    written, cents = random_values(connection, "((random() - 0.5) * 190000000)::numeric(10,2)", "(v * 100)::bigint")
    assert [int(value * 100) for value in cast(written, NUMERIC_10_2)] == integers(cents)
    written, digits = random_values(
        connection, "decode(repeat(md5(random()::text), (random() * 3)::int), 'hex')", "encode(v, 'hex')"
    )
    assert [value.hex() for value in cast(written, column("bytea"))] == digits


TRICKY = """(array[null, '', ' ', 'null', 'NULL', '"', '\\', '\\\\"', '{', '}', ',', 'a b', 'plain', e'a\\tb\\n', 'é🐘',
    '{"a": [1, 2]}', '[2:3]={1,2}', e'\\x1f', '(1,2)'])[1 + (random() * 18)::int]"""


@both_versions
def test_arrays_of_tricky_text(connection: psycopg.Connection[Any]) -> None:
    written, as_json = random_values(
        connection, f"array_remove(array[{TRICKY}, {TRICKY}, {TRICKY}, {TRICKY}], 'plain')", "array_to_json(v)"
    )
    assert cast(written, column("text[]")) == [json.loads(value or "null") for value in as_json]


@both_versions
def test_arrays_of_other_types(connection: psycopg.Connection[Any]) -> None:
    number = "nullif((random() * 9)::int, 0)"
    written, as_json = random_values(connection, f"array[{number}, -{number}, {number}]", "array_to_json(v)")
    assert cast(written, column("int4[]")) == [json.loads(value or "null") for value in as_json]
    moments = "array['2024-01-01 12:00:00.5+00', null, '12345-01-01']::timestamptz[]"
    [written] = texts(connection, f"select {moments}")
    [microseconds] = texts(connection, f"select (extract(epoch from m) * 1000000)::bigint from unnest({moments}) as m")
    elements = typed(pa.array(written), column("timestamptz[]"), "error").values
    assert elements.view(pa.int64()).to_pylist() == integers(microseconds)
    [[blobs]] = texts(connection, r"select array['\x00ff', '\x', null]::bytea[]")
    assert cast([blobs], column("bytea[]")) == [[b"\x00\xff", b"", None]]


UNREPRESENTABLE = [
    ("date", "'infinity'"), ("date", "'-infinity'"), ("date", "'4713-01-01 BC'"), ("timestamp", "'infinity'"),
    ("timestamp", "'0044-03-15 12:00 BC'"), ("timestamptz", "'-infinity'"),
    ("timestamptz", "'4713-01-01 12:00:00.5 BC'"),
    ("timestamptz", "'294276-12-31 23:59:59.999999'"), ("time", "'24:00:00'"), ("interval", "'2562047788 hours'"),
    ("interval", "'-3000000 hours 1 day'"), ("int4[]", "'{{1,2},{3,4}}'"), ("int4[]", "'[2:3]={1,2}'"),
    ("text[]", """'[0:1][-1:0]={{"a b",NULL},{"\\"",d}}'"""), ("date[]", "'{2024-01-01,infinity}'"),
]  # fmt: skip


@both_versions
@pytest.mark.parametrize(("base", "literal"), UNREPRESENTABLE)
def test_what_arrow_cannot_hold_is_recognised(connection: psycopg.Connection[Any], base: str, literal: str) -> None:
    [[written]] = texts(connection, f"select {literal}::{base}")
    with pytest.raises(UnrepresentableValue):
        cast([written], column(base), "error")
    [value] = cast([written], column(base), "null")
    assert value is None or (base == "date[]" and value[1] is None)
    assert cast([written], column(base), "text") == [written]


def test_an_interval_without_end_is_recognised(connection: psycopg.Connection[Any]) -> None:
    [values, *_] = texts(connection, "select unnest(array['infinity', '1 day', '-infinity']::interval[])")
    assert cast(values, column("interval"), "null") == [None, pa.MonthDayNano((0, 1, 0)), None]


@both_versions
def test_a_numeric_that_is_no_number_is_recognised(connection: psycopg.Connection[Any]) -> None:
    [[written]] = texts(connection, "select 'NaN'::numeric(10,2)")
    assert cast([written], NUMERIC_10_2, "null") == [None]


@both_versions
def test_extremes(connection: psycopg.Connection[Any]) -> None:
    query = (
        "select '-32768'::int2, '2147483647'::int4, '-9223372036854775808'::int8, 4294967295::oid, true, 'NaN'::float8"
    )
    row = [cell for [cell] in texts(connection, query)]
    bases = ("int2", "int4", "int8", "oid", "bool")
    values = [cast([cell], column(base))[0] for cell, base in zip(row[:5], bases, strict=True)]
    assert values == [-32768, 2147483647, -(2**63), 4294967295, True]
    assert str(cast([row[5]], column("float8"))[0]) == "nan"
    [[last]] = texts(connection, "select '23:59:59.999999'::time")
    assert cast([last], column("time")) == [time(23, 59, 59, 999999)]


def test_the_modifier_of_a_numeric_is_read_as_postgres_packs_it(connection: psycopg.Connection[Any]) -> None:
    connection.execute("create table t (a numeric(10,2), b numeric(38,38), c numeric(5,-2), d numeric(3,5), e numeric)")
    rows = connection.execute(
        "select atttypmod from pg_attribute where attrelid = 't'::regclass and attnum > 0 order by attnum"
    ).fetchall()
    types = [typed(pa.array([], pa.string()), column("numeric", modifier), "error").type for (modifier,) in rows]
    assert types == [pa.decimal128(10, 2), pa.decimal128(38, 38), pa.string(), pa.string(), pa.string()]
