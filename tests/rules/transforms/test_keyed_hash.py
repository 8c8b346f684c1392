"""SipHash against its reference's answers, and what is drawn from it. What is pinned here must never change."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.rules.transforms.generator import Draws, key_of, siphash
from tests.rules.transforms.settings import steady
from tests.rules.transforms.transformed import text

REFERENCE_KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
# The answers of the reference implementation for 0, 1, 2, … bytes 00 01 02 …, as it prints them.
REFERENCE = [
    "310e0edd47db6f72", "fd67dc93c539f874", "5a4fa9d909806c0d", "2d7efbd796666785", "b7877127e09427cf",
    "8da699cd64557618", "cee3fe586e46c9cb", "37d1018bf50002ab", "6224939a79f5f593",
]  # fmt: skip
MASK = (1 << 64) - 1


def siphash_of_one(data: bytes, key: tuple[int, int]) -> int:
    """Written from the paper, a value at a time."""
    v0, v1, v2, v3 = (
        key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D, key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573,
    )  # fmt: skip

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = (v0 + v1) & MASK, (v2 + v3) & MASK
            v1, v3 = rotated(v1, 13) ^ v0, rotated(v3, 16) ^ v2
            v0, v2 = (rotated(v0, 32) + v3) & MASK, (v2 + v1) & MASK
            v1, v3 = rotated(v1, 17) ^ v2, rotated(v3, 21) ^ v0
            v2 = rotated(v2, 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for place in range(0, len(padded), 8):
        word = int.from_bytes(padded[place : place + 8], "little")
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


def test_it_is_the_siphash_of_the_reference() -> None:
    values = text([bytes(range(length)).decode() for length in range(len(REFERENCE))])
    assert [int(number).to_bytes(8, "little").hex() for number in siphash(values, REFERENCE_KEY)] == REFERENCE


def test_it_is_the_siphash_of_the_paper() -> None:
    assert siphash(text([bytes(range(15)).decode()]), REFERENCE_KEY)[0] == 0xA129CA6149BE45E5


@steady
@given(st.lists(st.text(max_size=70) | st.text(st.sampled_from("aé漢𝄞"), min_size=40, max_size=300), max_size=20))
def test_all_values_at_once_give_what_one_gives(values: list[str]) -> None:
    short = [value for value in values if len(value.encode()) <= 256]
    expected = [siphash_of_one(value.encode(), REFERENCE_KEY) for value in short]
    assert siphash(text(short), REFERENCE_KEY).tolist() == expected


def test_a_long_value_is_hashed_by_blake2b_with_the_same_key() -> None:
    key = bytes(range(16))
    long = "é" * 129
    digest = hashlib.blake2b(long.encode(), digest_size=8, key=key).digest()
    assert siphash(text(["a", long]), REFERENCE_KEY)[1] == int.from_bytes(digest, "little")


def test_many_rows_give_what_few_give() -> None:
    values = text([f"value {number}" for number in range(100_000)])
    hashes = siphash(values, REFERENCE_KEY)
    for row in (0, 32_767, 32_768, 99_999):
        assert hashes[row] == siphash_of_one(values[row].as_py().encode(), REFERENCE_KEY)


def test_a_slice_is_hashed_like_a_copy_and_null_like_empty_text() -> None:
    values = text(["one", None, "three", "", "five"])
    assert (
        siphash(values.slice(1, 3), REFERENCE_KEY).tolist() == siphash(text(["", "three", ""]), REFERENCE_KEY).tolist()
    )


def test_keys_and_hashes_are_those_of_all_times() -> None:
    assert [hex(half) for half in key_of("pepper")] == ["0x4175f1af85b35323", "0x35860d63cf77c205"]
    assert hex(int(siphash(text(["Ada"]), key_of("pepper"))[0])) == "0x858291f1a7428289"
    assert [int(Draws.of_values(text(["Ada"]), "pepper").number(index)[0]) for index in range(2)] == [
        16133903667587410898,
        8764702201574348863,
    ]


@pytest.mark.parametrize("limit", [1, 2, 10, 1 << 32, (1 << 32) + 1, 1 << 63, 1 << 64])
def test_draws_are_below_their_limit_and_reach_it(limit: int) -> None:
    drawn = Draws.by_chance(10_000, seed=1).below(limit, 0)
    assert all(int(number) < limit for number in drawn[:100])
    assert int(drawn.max()) >= (limit - 1) * 0.99
    assert int(drawn.min()) <= limit * 0.01


def test_draws_may_have_a_limit_for_each_row() -> None:
    limits = np.array([1, 5, 1 << 40], np.uint64)
    assert (Draws.by_chance(3, seed=1).below(limits, 0) < limits).all()


def test_chance_repeats_itself_only_with_a_seed() -> None:
    assert Draws.by_chance(8, seed=1).bits.tolist() == Draws.by_chance(8, seed=1).bits.tolist()
    assert Draws.by_chance(8).bits.tolist() != Draws.by_chance(8).bits.tolist()


def test_rows_may_be_at_different_numbers() -> None:
    draws = Draws.by_chance(3, seed=1)
    each = draws.number(np.array([0, 1, 7], np.uint64))
    assert each.tolist() == [draws.number(index)[row] for row, index in enumerate((0, 1, 7))]


def test_other_salts_and_other_draws_give_other_numbers() -> None:
    values = pa.array(["Ada"])
    one = Draws.of_values(values, "salt")
    assert one.number(0)[0] != Draws.of_values(values, "pepper").number(0)[0]
    assert one.number(0)[0] != one.number(1)[0]
