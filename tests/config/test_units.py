from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from penstock.settings.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1), ("512KiB", 512 << 10), ("64MiB", 64 << 20), ("20GiB", 20 << 30), ("3TiB", 3 << 40),
        ("10MB", 10_000_000), ("5kB", 5000), ("5KB", 5000), ("1.5GiB", 3 << 29), ("64 MiB", 64 << 20),
        ("64mib", 64 << 20), ("4096", 4096), (4096, 4096), (0, 0),
    ],
)  # fmt: skip
def test_a_size_is_read_as_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "64MiBs", "64 Mi B", "-1B", "1e3", "1,5GiB", "٣MiB", None, True, 1.5, [], "9" * 400]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError, match="not a size; write a number and a unit, like 64MiB or 20GiB"):
        parse_size(text)


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(PydanticCustomError, match="not a whole number of bytes"):
        parse_size("0.3B")


def test_negative_quantities_are_refused() -> None:
    with pytest.raises(PydanticCustomError, match="is negative; use 0 or more"):
        parse_size(-1)
    with pytest.raises(PydanticCustomError, match="is negative; use 0 or more"):
        parse_duration(timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ms", 0.1), ("30s", 30.0), ("5m", 300.0), ("1h", 3600.0), ("2d", 172800.0), ("0s", 0.0), ("1.5s", 1.5),
        ("0.5 h", 1800.0), (0, 0.0), (0.0, 0.0), ("0", 0.0), (timedelta(minutes=2), 120.0),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("number", [30, 0.5, "30", "0.5", -1])
def test_a_duration_without_a_unit_is_refused_with_an_example(number: object) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        parse_duration(number)
    assert refused.value.message() == (
        "a duration needs a unit; write a number and a unit, like 100ms, 30s, 5m, 1h or 2d"
    )


@pytest.mark.parametrize("text", ["", "s", "5x", "5M", "5 minutes", "-5s", "1h30m", True, None, float("nan"), {}])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError, match="write a number and a unit, like 100ms, 30s"):
        parse_duration(text)


@given(st.integers(0, 1 << 49))
def test_a_size_survives_being_printed_and_read(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 1023), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_a_size_is_printed_as_people_write_it(number: int, unit: str) -> None:
    assert format_size(parse_size(f"{number}{unit}")) == (f"{number}{unit}" if number else "0B")


@given(st.integers(0, 10**12))
def test_a_duration_of_whole_milliseconds_survives_being_printed_and_read(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.text())
@pytest.mark.parametrize("parse", [parse_size, parse_duration])
def test_any_text_is_read_or_refused_and_nothing_else(parse: Callable[[str], float], text: str) -> None:
    try:
        quantity = parse(text)
    except PydanticCustomError:
        return
    assert quantity >= 0
