"""SipHash-2-4 of every value of a string array at once, and numbers drawn from it.

https://www.aumasson.jp/siphash/siphash.pdf. A keyed hash: without the key nobody can tell which value a number came
from, nor draw the same numbers. NumPy does each step for a block of rows, so that a million values take 0.1 s; the results
are the reference implementation's on every machine, and they never change, since what was written with them has to
match what will be.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pyarrow as pa

from penstock.changes import Int64s, UInt8s, UInt64s
from penstock.pgoutput.types.flat import flatten

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
