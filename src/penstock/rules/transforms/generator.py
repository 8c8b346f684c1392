"""What all transforms have in common that make up a value instead of changing the one that was there.

Which columns a transform's results can be put into.

SipHash-2-4 of every value of a string array at once, and numbers drawn from it.

https://www.aumasson.jp/siphash/siphash.pdf. A keyed hash: without the key nobody can tell which value a number came
from, nor draw the same numbers. NumPy does each step for a block of rows, so that a million values take 0.1 s; the results
are the reference implementation's on every machine, and they never change, since what was written with them has to
match what will be.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container
from typing import Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, SecretStr

from penstock.changes.batch import Column, Int64s, UInt8s, UInt64s
from penstock.pgoutput.types.flat import flatten
from penstock.pgoutput.types.numbers import precision_and_scale
from penstock.rules.transforms.contract import Row, Transform

_BLOCK = 32_768  # rows whose state stays in the processor's cache
_LONG = 256  # bytes; longer values are rare, and are first cut down to a digest one by one
_WORD = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def key_of(salt: str) -> tuple[int, int]:
    """The two halves of a SipHash key."""
    digest = hashlib.blake2b(salt.encode(), digest_size=16, person=b"penstock").digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def siphash(values: pa.StringArray, key: tuple[int, int]) -> UInt64s:
    """64 bits for each value. NULL counts as empty text."""
    data, offsets = flatten(values)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes = np.empty(len(values), np.uint64)
    rows_of = _rows_by_words(lengths)
    words = np.ndarray(data.size + 1, "<u8", _padded(data), strides=(1,))  # at any byte, aligned or not
    for count, rows in rows_of:
        for first in range(0, len(rows), _BLOCK):
            block = rows[first : first + _BLOCK]
            hashes[block] = _hash_block(words, starts[block], lengths[block], count, key)
    for row in np.flatnonzero(lengths > _LONG):
        hashes[row] = _hash_long(data[starts[row] : starts[row] + lengths[row]], key)
    return hashes


def _rows_by_words(lengths: Int64s) -> list[tuple[int, Int64s]]:
    """The rows that have as many whole words, for each number of words, without the long ones."""
    counts = lengths // _WORD
    short = lengths <= _LONG
    return [(int(count), np.flatnonzero((counts == count) & short)) for count in np.unique(counts[short])]


def _padded(data: UInt8s) -> UInt8s:
    padded = np.zeros(data.size + _WORD, np.uint8)
    padded[: data.size] = data
    return padded


def _hash_block(words: UInt64s, starts: Int64s, lengths: Int64s, count: int, key: tuple[int, int]) -> UInt64s:
    state = _State(len(starts), key)
    for word in range(count):
        state.absorb(words[starts + word * _WORD])
    size = lengths.astype(np.uint64)
    rest = words[starts + count * _WORD] & ((np.uint64(1) << ((size & np.uint64(7)) * np.uint64(8))) - np.uint64(1))
    state.absorb(rest | (size << np.uint64(56)))
    return state.finish()


def _hash_long(value: UInt8s, key: tuple[int, int]) -> int:
    whole_key = b"".join(half.to_bytes(8, "little") for half in key)
    return int.from_bytes(hashlib.blake2b(value.tobytes(), digest_size=8, key=whole_key).digest(), "little")


class _State:
    """The four words of SipHash's state, for many values. Everything happens in place."""

    def __init__(self, count: int, key: tuple[int, int]) -> None:
        initial = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
        self._v = [np.full(count, word ^ key[index % 2], np.uint64) for index, word in enumerate(initial)]
        self._spare = np.empty(count, np.uint64)

    def absorb(self, word: UInt64s) -> None:
        self._v[3] ^= word
        self._round()
        self._round()
        self._v[0] ^= word

    def finish(self) -> UInt64s:
        self._v[2] ^= np.uint64(0xFF)
        for _ in range(4):
            self._round()
        result: UInt64s = self._v[0] ^ self._v[1] ^ self._v[2] ^ self._v[3]
        return result

    def _round(self) -> None:
        v0, v1, v2, v3 = self._v
        v0 += v1
        self._rotate(v1, 13)
        v1 ^= v0
        self._rotate(v0, 32)
        v2 += v3
        self._rotate(v3, 16)
        v3 ^= v2
        v0 += v3
        self._rotate(v3, 21)
        v3 ^= v0
        v2 += v1
        self._rotate(v1, 17)
        v1 ^= v2
        self._rotate(v2, 32)

    def _rotate(self, word: UInt64s, bits: int) -> None:
        np.left_shift(word, np.uint64(bits), out=self._spare)
        np.right_shift(word, np.uint64(64 - bits), out=word)
        np.bitwise_or(word, self._spare, out=word)


class Draws:
    """One unending sequence of random numbers for each row, from 64 bits each: by hash, or by chance."""

    def __init__(self, bits: UInt64s) -> None:
        self.bits = bits

    @classmethod
    def of_values(cls, values: pa.StringArray, salt: str) -> Draws:
        return cls(siphash(values, key_of(salt)))

    @classmethod
    def by_chance(cls, count: int, seed: int | None = None) -> Draws:
        entropy = int.from_bytes(os.urandom(16), "little") if seed is None else seed
        return cls(np.random.default_rng(entropy).integers(0, _MASK, count, np.uint64, endpoint=True))

    def __len__(self) -> int:
        return len(self.bits)

    def number(self, index: int | UInt64s) -> UInt64s:
        """The sequence's number at this index, or at one for each row (SplitMix64): 64 bits per row."""
        if isinstance(index, int):
            mixed = self.bits + np.uint64((index + 1) * _GOLDEN & _MASK)
        else:
            mixed = self.bits + (index + np.uint64(1)) * np.uint64(_GOLDEN)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))

    def below(self, limit: int | UInt64s, index: int) -> UInt64s:
        """A whole number from 0 to just below the limit (one for all rows, or one for each)."""
        number = self.number(index)
        if isinstance(limit, int) and limit <= 1 << 32:
            return ((number >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)
        if isinstance(limit, int):
            return number if limit > _MASK else number % np.uint64(limit)
        return number % limit


class Generator(Transform):
    """Draws its values: by a keyed hash of the value that was there, or by chance.

    By hash, the same value and salt give the same result: in every table, batch, process and machine.
    """

    takes_nulls = True

    generator: Literal["deterministic", "random"] = Field(
        default="deterministic",
        description="`deterministic`: the same value and salt always give the same result. `random`: by chance.",
    )
    salt: SecretStr = Field(
        default=SecretStr(""), description="Secret. Without one, anybody can try which value gave a result."
    )
    _seed: int | None = PrivateAttr(None)

    @property
    def deterministic(self) -> bool:
        return self.generator == "deterministic"

    def seeded(self, seed: int) -> Self:
        """The same with chance that repeats itself, for tests."""
        copy = self.model_copy()
        copy._seed = seed
        return copy

    def draws(self, values: pa.StringArray) -> Draws:
        if self.generator == "random":
            return Draws.by_chance(len(values), self._seed)
        return Draws.of_values(values, self.salt.get_secret_value())

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return self.generate(self.draws(values), values, row)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        raise NotImplementedError


_HEADER = 4  # what Postgres adds to a length in a type modifier (VARHDRSZ)

TEXT = frozenset({"text", "varchar", "bpchar", "name"})
INTEGERS = frozenset({"int2", "int4", "int8", "oid"})
NUMBERS = INTEGERS | {"numeric", "float4", "float8"}
DATES = frozenset({"date"})
TIMESTAMPS = frozenset({"timestamp", "timestamptz"})
JSON = frozenset({"json", "jsonb"})

# The names that extensions give to types that are text, or like it; Postgres qualifies them unless public is searched.
_EXTENSION_TYPES = {"citext": "text", "hstore": "hstore"}
_NAME_LENGTH = 63
_WHOLE_RANGES = {
    "int2": (-(1 << 15), (1 << 15) - 1),
    "int4": (-(1 << 31), (1 << 31) - 1),
    "int8": (-(1 << 63), (1 << 63) - 1),
    "oid": (0, (1 << 32) - 1),
}


def base_of(column: Column) -> str:
    """The column's base type, with citext as text and hstore under its own name."""
    if column.base != "other":
        return column.base
    return _EXTENSION_TYPES.get(column.type_name.rpartition(".")[2].strip('"'), "other")


def length_limit(column: Column) -> int | None:
    """How many characters the column holds; None: as many as one likes."""
    base = base_of(column)
    if base == "name":
        return _NAME_LENGTH
    return column.modifier - _HEADER if base in ("varchar", "bpchar") and column.modifier > _HEADER else None


def not_of(column: Column, bases: Container[str], what: str) -> str | None:
    """The sentence for a column whose type is none of these."""
    return None if base_of(column) in bases else f"it needs {what}, and the column is {column.type_name}"


def not_text(column: Column, longest: int | None = None, remedy: str = "") -> str | None:
    """The sentence for a column that is not text, or too short for results of that many characters."""
    wrong = not_of(column, TEXT, "a text column")
    limit = length_limit(column)
    if wrong is None and longest is not None and limit is not None and longest > limit:
        hint = f"; {remedy}" if remedy else ""
        return f"its results have up to {longest} characters, and {column.type_name} holds {limit}{hint}"
    return wrong


def too_many_digits(column: Column, largest: int, after: int) -> str | None:
    """The sentence for a numeric(p,s) that does not hold that number, or not that many digits after the point."""
    limits = precision_and_scale(column.modifier) if base_of(column) == "numeric" else None
    if limits is None or (largest < 10 ** (limits[0] - limits[1]) and after <= limits[1]):
        return None
    return f"its results have more digits than {column.type_name} holds"


def whole_range(column: Column) -> tuple[int, int] | None:
    """The smallest and the largest integer of the column's type, if it is a type of integers."""
    return _WHOLE_RANGES.get(base_of(column))
