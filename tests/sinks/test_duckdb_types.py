from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.changes.batch import Column
from penstock.pgoutput.types import Unrepresentable, typed
from penstock.sinks.duckdb.types import duckdb_type

NUMERIC_12_2, NUMERIC_38_38 = (12 << 16 | 2) + 4, (38 << 16 | 38) + 4
POLICIES: tuple[Unrepresentable, ...] = ("error", "null", "text")

# Column, its DuckDB type, and values as Postgres writes them with what DuckDB writes for the same value.
ROUND_TRIPS: list[tuple[Column, str, dict[str, str]]] = [
    (Column("c", 16, "boolean", "bool"), "BOOLEAN", {"t": "true", "f": "false"}),
    (Column("c", 21, "smallint", "int2"), "SMALLINT", {"-32768": "-32768", "32767": "32767"}),
    (Column("c", 23, "integer", "int4"), "INTEGER", {"-2147483648": "-2147483648", "2147483647": "2147483647"}),
    (Column("c", 20, "bigint", "int8"), "BIGINT", {str(-(2**63)): str(-(2**63)), str(2**63 - 1): str(2**63 - 1)}),
    (Column("c", 26, "oid", "oid"), "BIGINT", {"4294967295": "4294967295"}),
    (Column("c", 700, "real", "float4"), "FLOAT", {"3.4028235e+38": "3.4028235e+38", "NaN": "nan", "Infinity": "inf"}),
    (Column("c", 701, "double precision", "float8"), "DOUBLE",
     {"1.7976931348623157e+308": "1.7976931348623157e+308", "5e-324": "5e-324", "NaN": "nan", "-Infinity": "-inf"}),
    (Column("c", 1700, "numeric(12,2)", "numeric", NUMERIC_12_2), "DECIMAL(12,2)",
     {"9999999999.99": "9999999999.99", "-0.01": "-0.01"}),
    (Column("c", 1700, "numeric(38,38)", "numeric", NUMERIC_38_38), "DECIMAL(38,38)",
     {"0." + "9" * 38: "." + "9" * 38, "-0." + "9" * 38: "-." + "9" * 38}),
    (Column("c", 1700, "numeric", "numeric"), "VARCHAR", {"NaN": "NaN", "1" * 99: "1" * 99}),
    (Column("c", 25, "text", "text"), "VARCHAR", {"": "", "Grüße 🐘": "Grüße 🐘", " a\n": " a\n"}),
    (Column("c", 2950, "uuid", "uuid"), "UUID",
     {value: value for value in ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")}),
    (Column("c", 114, "json", "json"), "JSON", {' {"b":1, "a" : 2} ': ' {"b":1, "a" : 2} ', "null": "null"}),
    (Column("c", 3802, "jsonb", "jsonb"), "JSON", {'{"a": 1e999}': '{"a": 1e999}', "1" * 400: "1" * 400, '""': '""'}),
    (Column("c", 17, "bytea", "bytea"), "BLOB", {"\\x": "", "\\x00ff41": "\\x00\\xFFA"}),
    (Column("c", 1082, "date", "date"), "DATE",
     {"0001-01-01": "0001-01-01", "5874897-12-31": "5874897-12-31", "2024-02-29": "2024-02-29"}),
    (Column("c", 1083, "time", "time"), "TIME", {"00:00:00": "00:00:00", "23:59:59.999999": "23:59:59.999999"}),
    (Column("c", 1266, "time with time zone", "timetz"), "VARCHAR", {"12:00:00+05:30": "12:00:00+05:30"}),
    (Column("c", 1114, "timestamp", "timestamp"), "TIMESTAMP",
     {"0001-01-01 00:00:00": "0001-01-01 00:00:00", "294246-12-31 23:59:59.999999": "294246-12-31 23:59:59.999999"}),
    (Column("c", 1184, "timestamptz", "timestamptz"), "TIMESTAMPTZ",
     {"0001-01-01 00:00:00+00": "0001-01-01 00:00:00+00", "2024-01-01 00:00:00.5+00": "2024-01-01 00:00:00.5+00"}),
    (Column("c", 1186, "interval", "interval"), "INTERVAL",
     {"1 year 2 mons -3 days +04:05:06.789": "1 year 2 months -3 days 04:05:06.789", "00:00:00": "00:00:00",
      "-178956970 years -8 mons": "-178956970 years -8 months",
      "2562047:47:16.854775": "2562047:47:16.854775"}),
    (Column("c", 0, "mood", "enum"), "VARCHAR", {"happy": "happy"}),
    (Column("c", 869, "inet", "other"), "VARCHAR", {"::1": "::1"}),
    (Column("c", 1007, "integer[]", "array", -1, "int4"), "INTEGER[]", {"{1,NULL,3}": "[1, NULL, 3]", "{}": "[]"}),
    (Column("c", 1009, "text[]", "array", -1, "text"), "VARCHAR[]", {'{"",a}': "['', a]", "{NULL}": "[NULL]"}),
    (Column("c", 1231, "numeric(12,2)[]", "array", NUMERIC_12_2, "numeric"), "DECIMAL(12,2)[]", {"{1.50}": "[1.50]"}),
    (Column("c", 2951, "uuid[]", "array", -1, "uuid"), "UUID[]",
     {"{00000000-0000-0000-0000-000000000000,NULL}": "[00000000-0000-0000-0000-000000000000, NULL]", "{}": "[]"}),
    (Column("c", 3807, "jsonb[]", "array", -1, "jsonb"), "JSON[]", {r'{"[1, 2]",NULL}': "[[1, 2], NULL]"}),
    (Column("c", 1001, "bytea[]", "array", -1, "bytea"), "BLOB[]", {r'{"\\x4142","\\x"}': "[AB, '']"}),
    (Column("c", 1182, "date[]", "array", -1, "date"), "DATE[]", {"{2024-01-01,NULL}": "[2024-01-01, NULL]"}),
    (Column("c", 1185, "timestamptz[]", "array", -1, "timestamptz"), "TIMESTAMPTZ[]",
     {'{"2024-01-01 00:00:00+00"}': "['2024-01-01 00:00:00+00']"}),
    (Column("c", 1187, "interval[]", "array", -1, "interval"), "INTERVAL[]", {'{"1 mon"}': "[1 month]"}),
    (Column("c", 1020, "box[]", "array", -1, "other"), "VARCHAR",
     {"{(1,1),(0,0);(2,2),(1,1)}": "{(1,1),(0,0);(2,2),(1,1)}"}),
]  # fmt: skip
NAMES = [f"{column.type_name}" for column, *_ in ROUND_TRIPS]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set autoinstall_known_extensions = false")
        connection.execute("set autoload_known_extensions = false")
        connection.execute("set timezone = 'UTC'")
        yield connection


def stored(
    connection: duckdb.DuckDBPyConnection, column: Column, policy: Unrepresentable, texts: list[str | None]
) -> list[Any]:
    """What DuckDB holds after an insert of the typed column, written by DuckDB."""
    connection.execute(f"create table target (c {duckdb_type(column, policy)})")
    connection.register("changes", pa.table({"c": typed(pa.array(texts, pa.string()), column, policy)}))
    connection.execute("insert into target select * from changes")
    return [value for (value,) in connection.execute("select c::varchar from target order by rowid").fetchall()]


@pytest.mark.parametrize(("column", "expected", "values"), ROUND_TRIPS, ids=NAMES)
def test_every_type_arrives_whole(
    connection: duckdb.DuckDBPyConnection, column: Column, expected: str, values: dict[str, str]
) -> None:
    assert duckdb_type(column, "error") == duckdb_type(column, "null") == expected
    assert stored(connection, column, "error", [None, *values, None]) == [None, *values.values(), None]


@pytest.mark.parametrize(("column", "expected", "values"), ROUND_TRIPS, ids=NAMES)
def test_under_the_policy_text_a_value_is_typed_without_loss_or_kept_as_written(
    connection: duckdb.DuckDBPyConnection, column: Column, expected: str, values: dict[str, str]
) -> None:
    as_text = duckdb_type(column, "text") == "VARCHAR"
    assert as_text or duckdb_type(column, "text") == expected
    arrived = stored(connection, column, "text", [None, *values])
    assert arrived == [None, *(values if as_text else values.values())]


@pytest.mark.parametrize(
    ("base", "value"),
    [
        ("date", "infinity"), ("timestamp", "0044-03-15 12:00:00 BC"), ("timestamptz", "-infinity"),
        ("time", "24:00:00"),
        ("interval", "infinity"), ("json", r'"\ud800"'),
    ],
)  # fmt: skip
def test_the_policy_text_takes_what_duckdb_has_no_place_for(
    connection: duckdb.DuckDBPyConnection, base: str, value: str
) -> None:
    assert stored(connection, Column("c", 0, base, base), "text", [value, None]) == [value, None]


def test_the_policy_null_stores_null_for_it(connection: duckdb.DuckDBPyConnection) -> None:
    column = Column("c", 1082, "date", "date")
    assert stored(connection, column, "null", ["infinity", "2024-01-01"]) == [None, "2024-01-01"]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unknown_type_is_text(policy: Unrepresentable) -> None:
    assert duckdb_type(Column("c", 0, "geometry", "geometry"), policy) == "VARCHAR"
