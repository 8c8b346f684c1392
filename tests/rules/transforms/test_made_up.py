"""Made-up values: what they look like, how long they are, and where their parameters come from."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.transforms.settings import steady, texts
from tests.rules.transforms.test_registry import messages
from tests.rules.transforms.transformed import applied, transform

VALUES = [f"person {number}" for number in range(500)]
ADDRESS = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*@[^@\s.]+(\.[^@\s.]+)*")


def made(name: str, values: list[str], **settings: object) -> list[str]:
    results = applied(transform(name, **settings), values)
    assert None not in results
    return [str(result) for result in results]


@pytest.mark.parametrize("name", ["first_name", "last_name", "full_name", "string"])
@pytest.mark.parametrize("locale", ["en_US", "ja_JP"])
@steady
@given(values=st.lists(texts | st.text("x", min_size=60, max_size=90), max_size=8))
def test_the_length_is_kept_where_that_is_asked_for(name: str, locale: str, values: list[str]) -> None:
    settings = {} if name == "string" else {"locale": locale}
    results = made(name, values, preserve_length=True, **settings)
    assert list(map(len, results)) == list(map(len, values))


@pytest.mark.parametrize("name", ["first_name", "last_name", "full_name", "company", "address"])
@pytest.mark.parametrize("length", [1, 2, 4, 5, 8, 20])
def test_no_result_is_longer_than_allowed(name: str, length: int) -> None:
    results = made(name, VALUES, max_length=length)
    assert max(map(len, results)) <= length
    assert min(map(len, results)) >= 1


@steady
@given(st.lists(texts, max_size=8), st.integers(3, 40))
def test_addresses_are_addresses_however_short(values: list[str], length: int) -> None:
    for settings in ({}, {"max_length": length}, {"unique": True}):
        for result in made("email", values, **settings):
            assert ADDRESS.fullmatch(result)
            assert len(result) <= settings.get("max_length", 100)


@steady
@given(st.lists(st.from_regex(r"\A[a-z.]{1,12}@[a-z]{1,8}\.(com|org)\Z"), max_size=8))
def test_an_address_keeps_its_length_and_its_domain(values: list[str]) -> None:
    results = made("email", values, preserve_domain=True, preserve_length=True)
    for value, result in zip(values, results, strict=True):
        assert len(result) == len(value)
        assert result.partition("@")[2] == value.partition("@")[2]
        assert ADDRESS.fullmatch(result)


def test_addresses_at_some_domains_are_left_alone() -> None:
    values = ["bot@Example.com", "ada@example.org", "no address", "a@b@example.com"]
    results = made("email", values, keep_domains=["example.com"], domain="hidden.net")
    assert results[0] == values[0]
    assert all(result.endswith("@hidden.net") for result in results[1:])


def test_a_domain_from_a_column_holds_if_it_can_be_one() -> None:
    hosts = ["a.net", None, "", "two words", "x@y"]
    results = applied(transform("email", dynamic={"domain": "host"}), ["v"] * 5, {"host": hosts})
    assert [str(result).partition("@")[2] for result in results] == ["a.net", *["example.com"] * 4]


@pytest.mark.parametrize("locale", ["ja_JP", "ar_SA", "ru_RU", "de_DE", "el_GR"])
def test_addresses_have_latin_letters_in_every_locale(locale: str) -> None:
    assert all(ADDRESS.fullmatch(result) for result in made("email", VALUES, locale=locale))


@pytest.mark.parametrize("locale", ["en_US", "de_DE", "fr_FR", "ja_JP", "pt_BR", "zh_CN", "ar_SA", "is_IS"])
def test_every_kind_of_name_and_place_exists_in_a_locale(locale: str) -> None:
    for name in ("first_name", "last_name", "full_name", "phone", "company", "address"):
        results = made(name, VALUES, locale=locale)
        assert len(set(results)) > 10, name
        assert not [result for result in results if not result.strip() or "\n" in result], name
    for part in ("street", "city", "postcode", "country"):
        assert len(set(made("address", VALUES, locale=locale, part=part))) > 10, part


def test_a_locale_that_there_is_not_names_the_nearest() -> None:
    assert messages({"transform": "first_name", "locale": "de_DD"})[0].startswith(
        'unknown locale "de_DD"; did you mean'
    )


def test_first_names_go_by_the_gender_of_another_column() -> None:
    female = set(made("first_name", VALUES, gender="female"))
    male = set(made("first_name", VALUES, gender="male"))
    assert len(female & male) < 20
    by_column = transform("first_name", dynamic={"gender": "sex"})
    for word, names in (("F", female), ("Female", female), ("m", male), ("MALE", male)):
        assert set(applied(by_column, VALUES, {"sex": [word] * len(VALUES)})) == names
    unknown = applied(by_column, VALUES, {"sex": [None] * len(VALUES)})
    assert unknown == applied(transform("first_name"), VALUES)


@steady
@given(st.lists(texts | st.from_regex(r"\A\+?[0-9() -]{1,60}\Z"), max_size=8))
def test_only_the_digits_of_a_phone_number_change(values: list[str]) -> None:
    for value, result in zip(values, made("phone", values, preserve_format=True), strict=True):
        assert re.sub("[0-9]", "#", value) == re.sub("[0-9]", "#", result)


def test_all_digits_of_a_phone_number_are_new() -> None:
    numbers = [f"{number:020}" for number in range(300)]
    places = zip(*made("phone", numbers, preserve_format=True), strict=True)
    assert all(set(place) == set("0123456789") for place in places)


def test_phone_numbers_with_a_prefix_have_their_length() -> None:
    results = made("phone", VALUES, prefix="+49", min_length=8, max_length=10)
    assert {len(result) for result in results} == {8, 9, 10}
    assert all(re.fullmatch(r"\+49[0-9]+", result) for result in results)


def test_phone_numbers_without_a_prefix_have_their_length_too() -> None:
    assert {len(result) for result in made("phone", VALUES, min_length=12)} == {12}
    assert {len(result) for result in made("phone", VALUES, max_length=4)} == {4}
    assert "set them in order" in messages({"transform": "phone", "min_length": 9, "max_length": 8})[0]
    assert "preserve_format" in messages({"transform": "phone", "preserve_format": True, "prefix": "+1"})[0]


def test_a_prefix_that_leaves_no_room_stays_alone() -> None:
    made = transform("phone", prefix="+1", min_length=4, max_length=4, dynamic={"prefix": "code"})
    results = applied(made, ["a", "b", "c"], {"code": ["+358", None, "+3581234"]})
    assert results[0] == "+358"
    assert results[1] is not None
    assert re.fullmatch(r"\+1[0-9]{2}", results[1])
    assert results[2] == "+3581234"


@pytest.mark.parametrize(("generator", "version"), [("deterministic", 8), ("random", 4)])
def test_uuids_say_how_they_were_made(generator: str, version: int) -> None:
    results = made("uuid", VALUES, generator=generator)
    assert len(set(results)) == len(VALUES)
    assert {(UUID(result).version, UUID(result).variant) for result in results} == {
        (version, UUID(int=0x8 << 60).variant)
    }
    assert all(str(UUID(result)) == result for result in results)


@steady
@given(st.text(min_size=1, max_size=12), st.integers(0, 20), st.integers(0, 20))
def test_strings_have_their_characters_and_their_length(symbols: str, shortest: int, more: int) -> None:
    for result in made("string", VALUES[:20], symbols=symbols, min_length=shortest, max_length=shortest + more):
        assert set(result) <= set(symbols)
        assert shortest <= len(result) <= shortest + more


def test_lengths_from_columns_hold_up_to_the_settings() -> None:
    string = transform("string", min_length=2, max_length=9, dynamic={"min_length": "low", "max_length": "high"})
    row: dict[str, list[str | None]] = {"low": ["4", None, "50", "x"], "high": ["4", "2", "7", "-1"]}
    lengths = [len(str(result)) for result in applied(string, ["v"] * 4, row)]
    assert lengths[0] == 4
    assert lengths[1] == 2
    assert lengths[2] == 9
    assert 2 <= lengths[3] <= 9


def test_characters_of_a_string_are_drawn_one_by_one() -> None:
    results = made("string", VALUES, symbols="abcd", min_length=30, max_length=30)
    assert len(set(results)) == len(VALUES)
    assert all(set(place) == set("abcd") for place in zip(*results, strict=True))


def test_long_text_is_drawn_in_parts_and_all_the_same() -> None:
    values = ["", "x" * 1_500_000, "a", "", "y" * 700_000, "b"]
    for symbols in ("abcdefgh", "αβγδ漢𝄞ab"):
        results = made("string", values, preserve_length=True, symbols=symbols)
        assert list(map(len, results)) == list(map(len, values))
        assert [results[2], results[5]] == made("string", ["a", "b"], preserve_length=True, symbols=symbols)
        assert results[1] == made("string", [values[1]], preserve_length=True, symbols=symbols)[0]
        assert set(results[1]) == set(symbols)


def test_long_values_keep_their_length_without_much_memory() -> None:
    values = ["x" * 3_000_000, "Ada", *["Grace Hopper"] * 5000]
    for name in ("first_name", "full_name"):
        results = made(name, values, preserve_length=True)
        assert list(map(len, results)) == list(map(len, values))
        assert results[1] == made(name, ["Ada"], preserve_length=True)[0]
    addresses = made("email", values, preserve_length=True, domain="x.org")
    assert list(map(len, addresses[1:])) == [3, *[12] * 5000]
    assert len(addresses[0]) == 3_000_000


def test_phone_numbers_in_long_columns_are_as_in_short_ones() -> None:
    values = [f"+{number} {'0' * 1000}" for number in range(10_000)]
    results = made("phone", values, preserve_format=True)
    assert results[-3:] == made("phone", values[-3:], preserve_format=True)


def test_choices_are_as_likely_as_their_weights() -> None:
    results = made("choice", [str(number) for number in range(4000)], choices=["a", "b", "c"], weights=[3, 0, 1])
    assert set(results) == {"a", "c"}
    assert 0.7 < results.count("a") / len(results) < 0.8


def test_booleans_are_as_likely_as_asked_for() -> None:
    values = [str(number) for number in range(4000)]
    assert 0.05 < made("boolean", values, probability=0.1).count("t") / len(values) < 0.15
    assert set(made("boolean", values, probability=0)) == {"f"}


@pytest.mark.parametrize("weights", [[1], [0, 0], [-1, 2], [float("inf"), 1]])
def test_weights_that_make_no_sense_are_a_mistake(weights: list[float]) -> None:
    assert "weights needs a number" in messages({"transform": "choice", "choices": ["a", "b"], "weights": weights})[0]


def test_no_choices_are_a_mistake() -> None:
    assert "at least one" in messages({"transform": "choice", "choices": []})[0]


@pytest.mark.parametrize(
    "name", ["string", "integer", "float", "boolean", "uuid", "first_name", "email", "phone", "company"]
)
def test_null_is_drawn_for_only_where_asked(name: str) -> None:
    assert applied(transform(name), [None]) == [None]
    replaced = applied(transform(name, nulls="replace"), [None, "", "a"])
    assert replaced[0] == replaced[1]
    assert replaced == applied(transform(name), ["", "", "a"])


@pytest.mark.parametrize("name", ["string", "integer", "uuid", "full_name", "email", "phone"])
def test_by_chance_every_row_is_another_one_every_time(name: str) -> None:
    random = transform(name, generator="random")
    assert not random.deterministic
    assert not random.keeps_uniqueness
    assert len(set(applied(random, ["same"] * 50))) > 25
    assert applied(random, ["same"] * 50) != applied(random, ["same"] * 50)


def test_chance_with_a_seed_repeats_itself() -> None:
    from penstock.rules.transforms.generator import Generator

    random = transform("uuid", generator="random")
    assert isinstance(random, Generator)
    assert applied(random.seeded(1), ["a", "b"]) == applied(random.seeded(1), ["a", "b"])
    assert applied(random.seeded(1), ["a", "b"]) != applied(random.seeded(2), ["a", "b"])


def test_another_salt_gives_other_names() -> None:
    assert made("full_name", VALUES, salt="a") != made("full_name", VALUES, salt="b")


def test_the_same_value_gets_the_same_name_in_columns_of_other_lengths() -> None:
    assert made("last_name", ["x", "Ada"])[1] == made("last_name", ["Ada"])[0]
