"""Typed columns as Postgres would write them: what is written reads back as the same values, here and in Postgres."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.pgoutput.types import typed
from penstock.pgoutput.types.written import NoPostgresType, NotWritable, column_for, plain, written

MOMENT = datetime(2024, 2, 29, 3, 4, 5, 120_000)
EXAMPLES: list[tuple[pa.Array, list[str | None], str]] = [
    (pa.array([True, None, False]), ["t", None, "f"], "boolean"),
    (pa.array([1, None, -3], pa.int8()), ["1", None, "-3"], "smallint"),
    (pa.array([2**31, 0], pa.uint32()), ["2147483648", "0"], "bigint"),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"], "numeric(20,0)"),
    (
        pa.array([1.5, None, float("inf"), float("-inf"), 1e20, 0.1]),
        ["1.5", None, "Infinity", "-Infinity", "1e+20", "0.1"],
        "double precision",
    ),
    (
        pa.array([Decimal("0"), Decimal("-0.05"), None, Decimal("12345.678")], pa.decimal128(38, 18)),
        ["0.000000000000000000", "-0.050000000000000000", None, "12345.678000000000000000"],
        "numeric(38,18)",
    ),
    (pa.array([Decimal(-5), None], pa.decimal128(5, 0)), ["-5", None], "numeric(5,0)"),
    (pa.array([Decimal("9.99"), Decimal("0.07")], pa.decimal128(4, 2)).slice(1), ["0.07"], "numeric(4,2)"),
    (pa.array([date(2024, 2, 29), None, date(1, 1, 1)]), ["2024-02-29", None, "0001-01-01"], "date"),
    (
        pa.array([MOMENT, None, datetime(2024, 1, 1)], pa.timestamp("us")),
        ["2024-02-29 03:04:05.12", None, "2024-01-01 00:00:00"],
        "timestamp without time zone",
    ),
    (
        pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ns", "Europe/Berlin")),
        ["2024-02-29 03:04:05.12+00"],
        "timestamp with time zone",
    ),
    (pa.array([b"\x00\xff", None, b""]), ["\\x00ff", None, "\\x"], "bytea"),
    (pa.array(["a", None], pa.large_string()), ["a", None], "text"),
    (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"], "text"),
    (pa.array([None, None]), [None, None], "text"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "text", "kind"), EXAMPLES, ids=[kind for *_, kind in EXAMPLES])
def test_values_are_written_as_postgres_does_and_read_back_the_same(
    values: pa.Array, text: list[str | None], kind: str
) -> None:
    column = column_for("x", values.type)
    assert (written(values).to_pylist(), column.type_name) == (text, kind)
    again = typed(written(values), column, "error")
    assert again.to_pylist() == values.cast(plain(values.type)).to_pylist()


def test_not_a_number_is_written_as_postgres_does() -> None:
    assert written(pa.array([float("nan"), 1.0])).to_pylist() == ["NaN", "1"]


@pytest.mark.parametrize("values", [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([1], pa.duration("s"))])
def test_a_type_that_postgres_has_nothing_for_is_refused(values: Any) -> None:
    with pytest.raises(NoPostgresType):
        column_for("x", values.type)
    with pytest.raises(NoPostgresType):
        written(values)


def test_a_date_that_is_written_otherwise_is_refused() -> None:
    with pytest.raises(NotWritable):
        written(pa.array([2_932_897], pa.int32()).cast(pa.date32()))
