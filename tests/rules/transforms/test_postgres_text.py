"""Results are what Postgres itself would write: it reads them as the column's type and writes them back unchanged."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.rules.transforms.transformed import applied, transform

MOMENTS = ["2024-02-29 13:37:42.5", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.000001"]
ZONED = [f"{moment}+00" for moment in MOMENTS]
DAYS = ["2024-02-29", "0001-01-01", "9999-12-31", "infinity", "0044-03-15 BC"]
NUMBERS = ["0", "-0.50", "12345678901234567890.123", "99.995", "NaN", "0.00000001"]
ANY = [str(number) for number in range(50)]
RANGE = {"min": "1950-01-01", "max": "2005-12-31"}

CASES: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("truncate", {"unit": "second"}, "timestamp", MOMENTS),
    ("truncate", {"unit": "month"}, "timestamptz", ZONED),
    ("truncate", {"unit": "year"}, "date", DAYS),
    ("truncate", {"digits": 2}, "numeric", NUMBERS),
    ("round", {"digits": 1}, "numeric", NUMBERS),
    ("bucket", {"size": "0.25"}, "numeric", NUMBERS),
    ("noise", {"amount": 3}, "numeric", NUMBERS),
    ("noise", {"ratio": 0.5}, "numeric", NUMBERS),
    ("noise", {"interval": "10d"}, "timestamptz", ZONED),
    ("shift_dates", {"days": 100}, "date", DAYS),
    ("shift_dates", {"days": -100}, "timestamp", MOMENTS),
    ("integer", {"min": -(1 << 63), "max": (1 << 63) - 1}, "bigint", ANY),
    ("float", {"min": -1, "max": 1, "precision": 5}, "numeric", ANY),
    ("boolean", {}, "boolean", ANY),
    ("uuid", {}, "uuid", ANY),
    ("date", RANGE, "date", ANY),
    ("timestamp", {**RANGE, "unit": "millisecond"}, "timestamp", ANY),
    ("timestamp", {**RANGE, "zone": True}, "timestamptz", ANY),
    ("unix_timestamp", RANGE, "integer", ANY),
    ("json", {"operations": [{"operation": "set", "path": "a", "value": [1, {"b": "é"}]}]}, "jsonb", ['{"a": 1.50}', "[1]"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "type_name", "values"), CASES)
def test_results_are_as_postgres_writes_them(
    name: str, settings: dict[str, Any], type_name: str, values: list[str], database: str
) -> None:
    results = applied(transform(name, **settings), values)
    with psycopg.connect(database) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = sql.SQL(
            "SELECT array_agg(format('%%s', v::{kind}) ORDER BY n) FROM unnest(%s::text[]) WITH ORDINALITY AS u (v, n)"
        )
        row = connection.execute(query.format(kind=sql.SQL(type_name)), [results]).fetchone()
    assert row is not None
    assert row[0] == results


@pytest.mark.parametrize(("name", "function"), [("round", "round"), ("truncate", "trunc")])
def test_rounding_is_that_of_postgres(name: str, function: str, database: str) -> None:
    values = ["0.5", "-0.5", "1.25", "-1.25", "2.345", "1234.5678", "-99.995", "12345678901234567890.55"]
    with psycopg.connect(database) as connection:
        for digits in (-2, 0, 1):
            query = sql.SQL(
                "SELECT array_agg({f}(v::numeric, %s)::text ORDER BY n) FROM unnest(%s::text[]) WITH ORDINALITY AS u (v, n)"
            )
            row = connection.execute(query.format(f=sql.Identifier(function)), [digits, values]).fetchone()
            assert row is not None
            assert applied(transform(name, digits=digits), values) == row[0]
