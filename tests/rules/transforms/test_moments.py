"""Dates and timestamps cut, moved and made up, held against Python's datetime."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.transforms.settings import days, moments, steady, zoned
from tests.rules.transforms.test_registry import messages
from tests.rules.transforms.transformed import applied, transform

UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]


def floor(moment: datetime, unit: str) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        "second": moment.replace(microsecond=0),
        "minute": moment.replace(second=0, microsecond=0),
        "hour": moment.replace(minute=0, second=0, microsecond=0),
        "day": midnight,
        "week": max(datetime.min, midnight - timedelta(min(midnight.weekday(), (midnight - datetime.min).days))),
        "month": midnight.replace(day=1),
        "quarter": midnight.replace(day=1, month=(moment.month - 1) // 3 * 3 + 1),
        "year": midnight.replace(day=1, month=1),
    }[unit]


def written(moment: datetime) -> str:
    """As Postgres does."""
    text = moment.isoformat(" ")
    return text.rstrip("0") if moment.microsecond else text


@pytest.mark.parametrize("unit", UNITS)
@steady
@given(values=st.lists(moments, max_size=8))
def test_a_timestamp_is_cut_to_its_unit(unit: str, values: list[str]) -> None:
    expected = [written(floor(datetime.fromisoformat(value), unit)) for value in values]
    assert applied(transform("truncate", unit=unit), values) == expected
    with_zone = applied(transform("truncate", unit=unit), [f"{value}+00" for value in values])
    assert with_zone == [f"{value}+00" for value in expected]


@pytest.mark.parametrize("unit", UNITS[3:])
@steady
@given(values=st.lists(days, max_size=8))
def test_a_date_is_cut_to_its_unit(unit: str, values: list[str]) -> None:
    expected = [str(floor(datetime.fromisoformat(value), unit).date()) for value in values]
    assert applied(transform("truncate", unit=unit), values) == expected


@steady
@given(st.lists(days, max_size=8), st.integers(-3_000_000, 3_000_000))
def test_dates_are_shifted_by_days_and_stay_on_the_calendar(values: list[str], shift: int) -> None:
    first, last = date.min.toordinal(), date.max.toordinal()
    expected = [
        str(date.fromordinal(min(max(date.fromisoformat(value).toordinal() + shift, first), last))) for value in values
    ]
    assert applied(transform("shift_dates", days=shift), values) == expected


@steady
@given(st.lists(moments, max_size=8))
def test_timestamps_are_shifted_and_keep_their_time_of_day(values: list[str]) -> None:
    inside = [value for value in values if not value.startswith("9999-12-31")]
    expected = [written(datetime.fromisoformat(value) + timedelta(1)) for value in inside]
    assert applied(transform("shift_dates", days=1), inside) == expected


def test_rows_that_belong_together_are_shifted_alike() -> None:
    shift = transform("shift_dates", max_days=100, min_days=50, by="patient", salt="pepper")
    assert shift.columns() == {"patient"}
    values = ["2024-03-01", "2024-03-11", "2024-03-01", "2024-03-01 12:00:00"]
    results = applied(shift, values, {"patient": ["7", "7", "8", "7"]})
    one, later, other, timestamp = (datetime.fromisoformat(str(result)) for result in results)
    assert later - one == timedelta(10)
    assert other != one
    assert timestamp - one == timedelta(hours=12)
    assert timedelta(50) <= one - datetime(2024, 3, 1) <= timedelta(100)


@steady
@given(st.lists(zoned, max_size=8))
def test_noise_moves_a_timestamp_by_no_more_than_the_interval(values: list[str]) -> None:
    for value, result in zip(values, applied(transform("noise", interval="90m"), values), strict=True):
        assert abs(datetime.fromisoformat(str(result)) - datetime.fromisoformat(value)) <= timedelta(minutes=90)


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 BC", "12024-01-01", "2024-02-30", "soon", ""])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("shift_dates", {"days": 1}),
        ("truncate", {"unit": "year"}),
        ("noise", {"interval": "1d"}),
        ("bucket", {"unit": "week"}),
        ("round", {"unit": "day"}),
    ],
)
def test_what_is_on_no_calendar_of_ours_is_left_as_it_is(name: str, settings: dict[str, object], value: str) -> None:
    results = applied(transform(name, **settings), [value, "2024-02-29"])
    assert results[0] == value
    assert results[1] is not None
    assert date.fromisoformat(results[1])


def test_rounding_goes_to_the_nearest_unit() -> None:
    values = ["2024-02-29 13:29:59.999999", "2024-02-29 13:30:00"]
    assert applied(transform("round", unit="hour"), values) == ["2024-02-29 13:00:00", "2024-02-29 14:00:00"]


@pytest.mark.parametrize("text", ["30", "x", "1 month", True, 5])
def test_a_length_of_time_has_a_unit(text: object) -> None:
    assert "write it like 30d" in messages({"transform": "noise", "interval": text})[0]


MADE_UP = [str(number) for number in range(300)]


def test_made_up_dates_reach_both_ends() -> None:
    results = set(applied(transform("date", min="2024-02-27", max=date(2024, 3, 1)), MADE_UP))
    assert results == {"2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01"}


@pytest.mark.parametrize(("unit", "step"), [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400)])
def test_made_up_timestamps_have_whole_units(unit: str, step: int) -> None:
    made = transform("timestamp", min="2020-01-01 00:00:01", max=datetime(2020, 12, 31, 23, 59, 59), unit=unit)
    for result in applied(made, MADE_UP):
        moment = datetime.fromisoformat(str(result))
        assert datetime(2020, 1, 1, 0, 0, 1) <= moment <= datetime(2020, 12, 31, 23, 59, 59)
        assert (moment - datetime(2020, 1, 1)) % timedelta(seconds=step) == timedelta(0)


def test_ends_with_a_zone_are_taken_as_utc() -> None:
    same = {"min": "2020-01-01 02:00:00+02:00", "max": "2020-01-01T00:00:00Z"}
    assert set(applied(transform("timestamp", **same), MADE_UP)) == {"2020-01-01 00:00:00"}


def test_unix_times_count_what_they_say() -> None:
    assert set(applied(transform("unix_timestamp", min=5, max=5, unit="millisecond"), MADE_UP)) == {"5000"}
    assert set(applied(transform("unix_timestamp", min="1970-01-02", max="86400"), MADE_UP)) == {"86400"}


def test_an_end_that_comes_from_a_column_holds_unless_it_is_none() -> None:
    made = transform("date", min="2000-01-01", max="2030-12-31", dynamic={"min": "born"})
    born = ["2030-12-31", "2030-12-31 13:00:00+00", None, "2030-02-30", "1900-01-01", "x"]
    results = applied(made, ["v"] * 6, {"born": born})
    assert results[0] == "2030-12-31"
    assert all("2000-01-01" <= str(result) <= "2030-12-31" for result in results)
    assert results[2:] == [results[2]] * 4


def test_ends_in_the_wrong_order_are_a_mistake() -> None:
    assert messages({"transform": "date", "min": "2024-01-02", "max": "2024-01-01"}) == ["min is after max; swap them"]
    narrow = {"transform": "timestamp", "min": "2024-01-01 00:00:01", "max": "2024-01-01 00:00:02", "unit": "hour"}
    assert "further apart" in messages(narrow)[0]


@pytest.mark.parametrize("end", ["2024-02-30", "soon", None, 5])
def test_an_end_that_is_no_date_is_a_mistake(end: object) -> None:
    assert "write it like 2024-02-29" in messages({"transform": "date", "min": end, "max": "2024-01-01"})[0]
