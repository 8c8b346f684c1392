"""Numbers cut, rounded, put into buckets and moved, held against Python's decimals. Not a digit is lost."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.transforms.settings import steady
from tests.rules.transforms.test_registry import messages
from tests.rules.transforms.transformed import applied, transform

EXACT = Context(prec=2000)


def plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.removeprefix("-") if not number else text


numbers = st.one_of(
    st.integers(-(10**25), 10**25).map(Decimal),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    st.decimals(-(10**6), 10**6, allow_nan=False, allow_infinity=False, places=12),
    st.sampled_from(["0", "0.00", "9.995", "-0.5", "0.5", "1.5", "99999999999999.95", "-9223372036854775808"]).map(
        Decimal
    ),
)
texts = numbers.map(plain)


def cut(number: Decimal, digits: int, rounding: str) -> str:
    scale = max(0, -int(number.as_tuple().exponent))
    if digits >= scale:
        return plain(number)
    whole = number.scaleb(digits, EXACT).to_integral_value(rounding, EXACT).scaleb(-digits, EXACT)
    return plain(whole.quantize(Decimal(1).scaleb(-max(digits, 0)), context=EXACT))


@steady
@given(st.lists(texts, max_size=10), st.integers(-30, 12))
def test_truncating_cuts_towards_zero(values: list[str], digits: int) -> None:
    expected = [cut(Decimal(value), digits, ROUND_DOWN) for value in values]
    assert applied(transform("truncate", digits=digits), values) == expected


@steady
@given(st.lists(texts, max_size=10), st.integers(-30, 12))
def test_rounding_goes_to_the_nearest_and_halves_away_from_zero(values: list[str], digits: int) -> None:
    expected = [cut(Decimal(value), digits, ROUND_HALF_UP) for value in values]
    assert applied(transform("round", digits=digits), values) == expected


@steady
@given(st.lists(texts, max_size=10), st.decimals("0.001", "1e12", places=3) | st.integers(1, 10**30).map(Decimal))
def test_a_bucket_begins_at_a_multiple_of_its_size(values: list[str], size: Decimal) -> None:
    for value, result in zip(values, applied(transform("bucket", size=str(size)), values), strict=True):
        number = Decimal(value)
        begin = EXACT.multiply(EXACT.divide_int(number, size), size)
        if number < begin:
            begin = EXACT.subtract(begin, size)
        assert result is not None
        assert EXACT.compare(Decimal(result), begin) == 0
        assert -int(Decimal(result).as_tuple().exponent) == max(0, -int(size.as_tuple().exponent))


def test_the_oracle_of_buckets_rounds_down() -> None:
    assert (Decimal("-3") / 10).to_integral_value(ROUND_FLOOR) == -1


@steady
@given(st.lists(texts, max_size=10), st.integers(0, 1000))
def test_noise_moves_by_no_more_than_the_amount_and_keeps_the_digits(values: list[str], amount: int) -> None:
    for value, result in zip(values, applied(transform("noise", amount=amount), values), strict=True):
        assert result is not None
        assert abs(EXACT.subtract(Decimal(result), Decimal(value))) <= amount
        assert result.partition(".")[2].__len__() == value.partition(".")[2].__len__()


@steady
@given(st.lists(texts, max_size=10), st.sampled_from(["0.1", "0.5", "1", "3"]))
def test_noise_moves_by_no_more_than_the_ratio(values: list[str], ratio: str) -> None:
    for value, result in zip(values, applied(transform("noise", ratio=ratio), values), strict=True):
        assert result is not None
        moved = abs(EXACT.subtract(Decimal(result), Decimal(value)))
        assert moved <= EXACT.multiply(abs(Decimal(value)), Decimal(ratio))


def test_noise_is_spread_evenly_and_to_both_ends() -> None:
    results = applied(transform("noise", amount=2), [f"10{'0' * 0}.{number:04}" for number in range(5000)])
    moved = [round(float(str(result)) - float(f"10.{number:04}"), 4) for number, result in enumerate(results)]
    assert min(moved) < -1.99
    assert max(moved) > 1.99
    assert abs(sum(moved) / len(moved)) < 0.1


def test_integers_reach_both_ends_of_the_noise() -> None:
    values = [str(number) for number in range(1000)]
    moved = {
        int(str(result)) - int(value)
        for value, result in zip(values, applied(transform("noise", amount=2), values), strict=True)
    }
    assert moved == {-2, -1, 0, 1, 2}


def test_noise_stays_within_min_and_max() -> None:
    results = applied(
        transform("noise", amount=50, min="0.5", max=10), ["5", "0", "10", "5.00", "123456789012345678901234567890"]
    )
    assert all(0.5 <= float(str(result)) <= 10 for result in results)


@pytest.mark.parametrize("name", ["truncate", "round"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "", "not a number", "1.", "1e99999"])
def test_what_is_no_number_is_left_as_it_is(name: str, value: str) -> None:
    assert applied(transform(name, digits=1), [value, "1.25"])[0] == value


@pytest.mark.parametrize(
    ("value", "expected"), [("1.5e-07", "0.0000001"), ("-1e+20", "-100000000000000000000"), ("2.5E3", "2500")]
)
def test_floats_with_an_exponent_are_numbers_too(value: str, expected: str) -> None:
    assert applied(transform("truncate", digits=7), [value]) == [expected]


def test_truncate_wants_one_thing_to_cut() -> None:
    assert "give one" in messages({"transform": "truncate"})[0]
    assert "give one" in messages({"transform": "truncate", "length": 1, "digits": 1})[0]


@pytest.mark.parametrize("size", [0, -1, "x", True, "NaN"])
def test_the_size_of_a_bucket_is_above_zero(size: object) -> None:
    assert messages({"transform": "bucket", "size": size}) == ["expected a number above zero; write it like 10 or 0.5"]


@pytest.mark.parametrize(("low", "high"), [(-(1 << 63), (1 << 63) - 1), (-5, 5), (0, 0), ((1 << 62), (1 << 63) - 1)])
def test_integers_are_within_their_range(low: int, high: int) -> None:
    results = [
        int(str(result)) for result in applied(transform("integer", min=low, max=high), [str(n) for n in range(500)])
    ]
    assert low <= min(results) <= max(results) <= high
    assert high - low < 100 or len(set(results)) == 500
    assert high - low > 100 or set(results) == set(range(low, high + 1))


@pytest.mark.parametrize(("low", "high", "precision"), [(-1, 1, 0), (0.1, 0.3, 1), (-1000.55, 1000.55, 2), (0, 1, 15)])
def test_floats_are_within_their_range_and_have_their_digits(low: float, high: float, precision: int) -> None:
    results = applied(transform("float", min=low, max=high, precision=precision), [str(n) for n in range(500)])
    assert all(Decimal(str(low)) <= Decimal(str(result)) <= Decimal(str(high)) for result in results)
    assert {len(str(result).partition(".")[2]) for result in results} == {precision}


def test_bounds_from_columns_hold_and_never_leave_the_settings() -> None:
    limits = ["3", None, "x", "-7", "99999999999999999999", "50"]
    results = applied(transform("integer", min=0, max=10, dynamic={"max": "limit"}), ["v"] * 6, {"limit": limits})
    assert int(str(results[0])) <= 3
    assert results[3] == "0"
    assert all(0 <= int(str(result)) <= 10 for result in results)
    whole = {"min": -(1 << 63), "max": (1 << 63) - 1}
    assert applied(transform("integer", **whole, dynamic={"min": "low"}), ["v"], {"low": [None]}) == applied(
        transform("integer", **whole), ["v"]
    )
