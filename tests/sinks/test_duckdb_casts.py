"""Values that get another type: what DuckDB makes of them is what Postgres does."""

from __future__ import annotations

import duckdb
import psycopg
import pytest

from penstock.sinks.duckdb.types import cast

VALUES = {
    "float8": ["0", "1", "-1", "0.1", "1e14", "999999999999999", "1e15", "-1234567890123456", "1e16", "1.5e300", "0.0001",
               "0.00001", "-1.25e-7", "NaN", "Infinity", "-Infinity", "100", "123456.789"],
    "float4": ["0", "1.5", "100000", "999999", "1000000", "16777216", "-1234567.5", "1e10", "3.4e38", "1e-5", "0.001"],
    "bool": ["true", "false"],
    "int8": ["-9223372036854775808", "7"],
    "numeric(10,2)": ["1.5", "-0.01"],
    "bytea": ["\\xab0100ff", "\\x"],
    "date": ["2026-11-15"],
    "time": ["10:00:00.5", "23:59:59"],
    "timestamp": ["2026-11-15 01:02:03.12", "2026-11-15 00:00:00"],
    "timestamptz": ["2026-11-15 01:02:03.12+00"],
    "interval": ["1 year 2 mons 3 days 04:05:06.7", "1 mon", "-1 days", "-1 year -1 mons", "00:00:00"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "int4[]": ["{1,NULL,3}", "{}"],
    "text[]": ['{a,"b c","c\\"d","back\\\\slash",NULL,"NULL","","x,y","{z}"}'],
    "bool[]": ["{t,f,NULL}"],
    "float8[]": ["{1,1e+15,NaN}"],
}  # fmt: skip
IN_DUCKDB = {
    "float8": "DOUBLE", "float4": "FLOAT", "bool": "BOOLEAN", "int8": "BIGINT", "numeric(10,2)": "DECIMAL(10,2)",
    "bytea": "BLOB", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL", "uuid": "UUID", "int4[]": "INTEGER[]", "text[]": "VARCHAR[]", "bool[]": "BOOLEAN[]",
    "float8[]": "DOUBLE[]",
}  # fmt: skip


# What DuckDB reads in other words than Postgres.
LITERALS = {
    "\\xab0100ff": "unhex('ab0100ff')",
    "\\x": "unhex('')",
    "{1,NULL,3}": "[1, NULL, 3]",
    "{}": "[]",
    "{t,f,NULL}": "[true, false, NULL]",
    "{1,1e+15,NaN}": "[1, 1e15, 'nan'::DOUBLE]",
    VALUES["text[]"][0]: """['a', 'b c', 'c"d', 'back\\slash', NULL, 'NULL', '', 'x,y', '{z}']""",
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_that_becomes_text_is_postgress_text(kind: str, database: str) -> None:
    with psycopg.connect(database, options="-c timezone=UTC") as postgres, duckdb.connect() as lake:
        lake.execute("SET TimeZone = 'Asia/Tokyo'")
        for value in VALUES[kind]:
            here = LITERALS.get(value, f"'{value.replace('mon', 'month')}'")
            query = cast(f"({here})::{IN_DUCKDB[kind]}", IN_DUCKDB[kind], "VARCHAR")
            wanted = postgres.execute(f"SELECT %s::{kind}::text".encode(), [value]).fetchall()
            assert lake.execute(f"SELECT {query}").fetchall() == wanted
