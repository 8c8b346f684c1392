"""Masks: what they show and what they hide, in every alphabet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.transforms.settings import steady, texts
from tests.rules.transforms.test_registry import messages
from tests.rules.transforms.transformed import applied, transform


def one(value: str, **settings: object) -> str:
    (result,) = applied(transform("mask", **settings), [value])
    assert result is not None
    return result


@steady
@given(texts)
def test_the_default_hides_every_character(value: str) -> None:
    assert one(value) == "*" * len(value)


@steady
@given(texts)
def test_ends_shows_the_first_and_the_last_of_more_than_two(value: str) -> None:
    expected = value[0] + "*" * (len(value) - 2) + value[-1] if len(value) > 2 else "*" * len(value)
    assert one(value, kind="ends") == expected


@steady
@given(texts)
def test_name_shows_the_first_of_each_word(value: str) -> None:
    assert one(value, kind="name") == " ".join(word[:1] + "*" * (len(word) - 1) for word in value.split(" "))


@steady
@given(texts)
def test_email_shows_the_first_and_the_domain_of_an_address_and_nothing_of_anything_else(value: str) -> None:
    local, at, domain = value.rpartition("@")
    expected = local[:1] + "*" * (len(local) - 1) + "@" + domain if at else "*" * len(value)
    assert one(value, kind="email") == expected


@steady
@given(st.lists(st.text(st.sampled_from("a@.")) | st.just(None), max_size=8), st.sampled_from(["*", "漢"]))
def test_addresses_of_one_alphabet_are_masked_like_those_of_all(values: list[str | None], char: str) -> None:
    mask = transform("mask", kind="email", char=char)
    assert applied(mask, values) == applied(mask, [*values, "é"])[:-1]


@pytest.mark.parametrize("kind", ["phone", "id", "credit_card"])
@steady
@given(value=texts)
def test_of_numbers_that_are_long_enough_the_last_four_are_shown(kind: str, value: str) -> None:
    result = one(value, kind=kind)
    assert len(result) == len(value)
    kept = 4 if len(value) > 8 else 0
    assert result.endswith(value[len(value) - kept :])
    assert not any(character.isalnum() for character in result[: len(value) - kept])


@steady
@given(st.text(st.sampled_from("aZ09é漢ا-. "), max_size=20))
def test_address_hides_letters_and_digits_of_every_alphabet_and_nothing_else(value: str) -> None:
    assert one(value, kind="address") == "".join("*" if character.isalnum() else character for character in value)


@steady
@given(texts, st.integers(0, 12), st.integers(0, 12))
def test_a_range_in_characters_is_hidden(value: str, begin: int, end: int) -> None:
    first, last = min(begin, len(value)), max(min(begin, len(value)), min(end, len(value)))
    masked = value[:first] + "*" * (last - first) + value[last:]
    shown = "*" * first + value[first:last] + "*" * (len(value) - last)
    assert one(value, kind="custom", mask_begin=begin, mask_end=end) == masked
    assert one(value, kind="custom", unmask_begin=begin, unmask_end=end) == shown


@steady
@given(texts, st.integers(0, 100))
def test_a_range_in_percent_goes_with_the_length(value: str, percent: int) -> None:
    hidden = len(value) * percent // 100
    assert one(value, kind="custom", mask_end=f"{percent}%") == "*" * hidden + value[hidden:]
    assert one(value, kind="custom", mask_begin=f"{percent}%") == value[:hidden] + "*" * (len(value) - hidden)


def test_values_of_all_lengths_are_masked_together() -> None:
    values = ["abcdef", None, "", "ab", "漢字漢字"]
    assert applied(transform("mask", kind="custom", mask_begin="50%"), values) == ["abc***", None, "", "a*", "漢字**"]


@pytest.mark.parametrize("char", ["\\", "$", "漢", "#", "."])
@pytest.mark.parametrize("kind", ["default", "address", "phone", "name"])
def test_any_character_may_be_put_there(kind: str, char: str) -> None:
    assert char * 3 in one("Äbcdefghijkl", kind=kind, char=char)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://example.com", "http://example.com"),
        ("s3://bucket/key", "s3://bucket****"),
        ("postgres://u:p@ss@host:5432/db", "postgres://******@host:5432***"),
        ("not a url", "*********"),
        ("https://example.com/é\n", "https://example.com***"),
        ("", ""),
    ],
)
def test_a_url_shows_scheme_and_host(value: str, expected: str) -> None:
    assert one(value, kind="url") == expected


def test_a_mask_of_more_than_one_character_is_a_mistake() -> None:
    assert messages({"transform": "mask", "char": "**"}) == ["char is more than one character; write one"]


def test_a_range_belongs_to_the_kind_custom() -> None:
    assert "kind: custom" in messages({"transform": "mask", "mask_begin": 1})[0]
    assert "needs a range" in messages({"transform": "mask", "kind": "custom"})[0]
    assert "needs a range" in messages({"transform": "mask", "kind": "custom", "mask_begin": 1, "unmask_end": 2})[0]


@pytest.mark.parametrize("position", [-1, "101%", "x", True, 1.5])
def test_a_position_is_a_number_of_characters_or_a_percentage(position: object) -> None:
    assert "write it like 4 or 30%" in messages({"transform": "mask", "kind": "custom", "mask_begin": position})[0]
