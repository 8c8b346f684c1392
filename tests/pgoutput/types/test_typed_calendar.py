from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DecodeError, UnrepresentableValue
from penstock.pgoutput.types import Unrepresentable, typed
from tests.pgoutput.types.postgres_text import cast, column, steady, write_interval

ZONE = {"timestamp": "", "timestamptz": "+00"}


def counts(values: list[str | None], base: str) -> list[int | None]:
    """Days or microseconds since 1970, since Python knows no year above 9999."""
    result = typed(pa.array(values, pa.string()), column(base), "error")
    return list(result.view(pa.int32() if base == "date" else pa.int64()).to_pylist())


def test_timestamps_are_cast_to_the_microsecond() -> None:
    values = [
        "2024-02-29 12:34:56.123456",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        "1969-12-31 23:59:59.5",
        None,
    ]
    expected = [
        datetime(2024, 2, 29, 12, 34, 56, 123456), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1969, 12, 31, 23, 59, 59, 500000), None,
    ]  # fmt: skip
    assert cast(values, column("timestamp")) == expected
    with_zone = [None if value is None else f"{value}+00" for value in values]
    assert cast(with_zone, column("timestamptz")) == [e and e.replace(tzinfo=UTC) for e in expected]


def test_years_of_more_than_four_digits_are_right() -> None:
    # The days from 1970 as Postgres counts them: select date '…' - date '1970-01-01'.
    assert counts(["10000-01-01", None, "2024-01-01", "5874897-12-31"], "date") == [2932897, None, 19723, 2145042905]
    assert counts(["10000-01-01 00:00:00", "2024-01-01 00:00:00"], "timestamp") == [
        2932897 * 86_400_000_000,
        19723 * 86_400_000_000,
    ]


@steady
@given(
    st.integers(10_000, 294_246),
    st.integers(1, 12),
    st.integers(1, 28),
    st.integers(0, 86_399),
    st.integers(0, 999_999),
)
def test_long_years_are_what_duckdb_takes_them_for(year: int, month: int, day: int, second: int, fraction: int) -> None:
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{fraction:06}"
    text = f"{year}-{month:02}-{day:02} {clock}"
    with duckdb.connect() as connection:
        row = connection.execute("select epoch_us(?::timestamp), ?::date - date '1970-01-01'", [text, text[:-16]])
        microseconds, days = row.fetchall()[0]
    assert counts([text], "timestamp") == counts([f"{text}+00"], "timestamptz") == [microseconds]
    assert counts([text[:-16]], "date") == [days]


@pytest.mark.parametrize("base", ["timestamp", "timestamptz"])
def test_the_last_year_that_fits_and_the_first_that_does_not(base: str) -> None:
    last, first = f"294246-12-31 23:59:59.999999{ZONE[base]}", f"294247-01-01 00:00:00{ZONE[base]}"
    assert counts([last], base) == [9223371244799999999]
    assert cast([first, None], column(base), "null") == [None, None]
    with pytest.raises(UnrepresentableValue, match="294247-01-01"):
        cast([last, first], column(base), "error")


@pytest.mark.parametrize(
    ("base", "ordinary", "value"),
    [
        ("date", "2024-01-01", "infinity"), ("date", "2024-01-01", "-infinity"),
        ("date", "2024-01-01", "0044-03-15 BC"),
        ("timestamp", "2024-01-01 00:00:00", "infinity"),
        ("timestamp", "2024-01-01 00:00:00", "0044-03-15 12:00:00 BC"),
        ("timestamptz", "2024-01-01 00:00:00+00", "-infinity"),
        ("timestamptz", "2024-01-01 00:00:00+00", "4713-01-01 12:00:00.5+00 BC"),
        ("timestamptz", "2024-01-01 00:00:00+00", "294276-12-31 23:59:59.999999+00"),
        ("interval", "1 day", "infinity"), ("interval", "1 day", "-infinity"), ("interval", "1 day", "2562048:00:00"),
        ("interval", "1 day", "-2562047788:00:54.775808"), ("interval", "1 day", "2 mons 2562047:47:16.854776"),
    ],
)  # fmt: skip
def test_what_arrow_cannot_hold_follows_the_policy(base: str, ordinary: str, value: str) -> None:
    [kept] = cast([ordinary], column(base))
    assert cast([ordinary, value, None], column(base), "null") == [kept, None, None]
    assert cast([ordinary, value, None], column(base), "text") == [ordinary, value, None]
    with pytest.raises(UnrepresentableValue) as raised:
        cast([ordinary, value, None], column(base), "error")
    assert f"holds {value!r}" in str(raised.value)


@pytest.mark.parametrize(
    ("base", "value"),
    [
        ("timestamp", "2024-01-01"), ("timestamp", "2024-01-01 12:00"), ("timestamp", "2024-01-01T12:00:00"),
        ("timestamp", "2024-01-01 12:00:00+00"), ("timestamp", "2024-01-01 24:00:00"),
        ("timestamp", "2023-02-29 00:00:00"),
        ("timestamp", "12345-02-30 00:00:00"), ("timestamp", "2024-01-01 00:00:00.1234567"), ("timestamp", "Infinity"),
        ("timestamptz", "2024-01-01 12:00:00"), ("timestamptz", "2024-01-01 12:00:00Z"), ("timestamptz", " BC"),
        ("date", "0000-01-01"), ("timestamp", "0000-12-31 00:00:00"), ("date", "02024-01-01"),
        ("date", "2024-13-01"), ("date", "0001-01-01 AD"),
        ("interval", ""), ("interval", "P1Y"), ("interval", "1 week"),
        ("interval", "1 day 1 year"), ("interval", "1:2:3"),
        ("interval", "00:60:00"), ("interval", "9999999999 days"),
        ("interval", "999999999 years"), ("interval", "@ 1 day"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["error", "null"])
def test_what_postgres_never_writes_is_refused(base: str, value: str, policy: Unrepresentable) -> None:
    with pytest.raises(DecodeError) as raised:
        cast([None, value], column(base), policy)
    assert f"holds {value!r}" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:00:00", (0, 0, 0)), ("1 year", (12, 0, 0)), ("-1 years", (-12, 0, 0)), ("1 mon", (1, 0, 0)),
        ("1 year 2 mons 3 days 04:05:06.789", (14, 3, 14_706_789_000_000)),
        ("1 year 2 mons -3 days +04:05:06", (14, -3, 14_706_000_000_000)),
        ("-1 years -2 mons +3 days -04:05:06.000001", (-14, 3, -14_706_000_001_000)),
        ("-00:00:00.5", (0, 0, -500_000_000)), ("-1 days", (0, -1, 0)), ("100:00:00", (0, 0, 360_000_000_000_000)),
        ("178956970 years 7 mons 2147483647 days 2562047:47:16.854775",
         (2**31 - 1, 2**31 - 1, (2**63 - 1) // 1000 * 1000)),
        ("-178956970 years -8 mons -2147483648 days", (-(2**31), -(2**31), 0)),
    ],
)  # fmt: skip
def test_intervals_keep_months_days_and_time_apart(text: str, expected: Any) -> None:
    assert cast([text, None], column("interval")) == [pa.MonthDayNano(expected), None]


@steady
@given(
    st.lists(
        st.none()
        | st.tuples(
            st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**53), 2**53)
        )
    )
)  # fmt: skip
def test_any_interval_comes_back(intervals: list[tuple[int, int, int] | None]) -> None:
    texts = [None if interval is None else write_interval(*interval) for interval in intervals]
    expected = [None if i is None else pa.MonthDayNano((i[0], i[1], i[2] * 1000)) for i in intervals]
    assert cast(texts, column("interval")) == expected
