"""A digest in the place of the value."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, SecretStr, model_validator

from penstock.changes.batch import Column
from penstock.rules.transforms import contract
from penstock.rules.transforms.contract import Example, Row, Transform, per_distinct
from penstock.rules.transforms.generator import not_text
from penstock.settings.mistakes import mistake

_LENGTHS = {"sha256": 64, "blake2": 64, "xxhash": 32}  # in hexadecimal digits
_UNIQUE = 16  # digits that make 64 bits


class Hash(Transform):
    """Loops over the distinct values in Python: hashlib takes one at a time, some 1 µs each."""

    name: ClassVar = "hash"
    summary: ClassVar = "A digest of the value, in hexadecimal digits."
    fits: ClassVar = "text of at least that length"
    takes_nulls = True
    examples: ClassVar = (
        Example({}, "ada", "fdee430d40bd57deeac186cd9790033d0f06f909a8806e7ce6e717ab7c7d5029"),
        Example({"salt": "pepper", "length": 16}, "ada", "48361492d3e8dd57"),
        Example({"algorithm": "blake2", "length": 32}, "ada", "d4076bbd24e6774a8cced0c59f1e1895"),
        Example({"algorithm": "xxhash"}, "ada", "93ff3b2c3682a669691d4463952c802f"),
    )

    algorithm: Literal["sha256", "blake2", "xxhash"] = Field(
        default="sha256",
        description="`sha256` (64 digits), `blake2` (BLAKE2b of 256 bits, 64 digits) or `xxhash` (XXH3 of 128 bits, 32 digits:"
        " fast, but made for tables, not for secrets).",
    )
    salt: SecretStr = Field(
        default=SecretStr(""),
        description="Secret. Makes it HMAC-SHA-256, BLAKE2b with a key, XXH3 with a seed. Without one, anybody can try which"
        " value gave a digest.",
    )
    length: int | None = Field(default=None, ge=1, description="Digits to keep, from the left; default: all.")

    @model_validator(mode="after")
    def _no_longer_than_it_is(self) -> Self:
        if self.length is not None and self.length > _LENGTHS[self.algorithm]:
            raise mistake(f"a digest of {self.algorithm} has {_LENGTHS[self.algorithm]} digits; use no larger length")
        return self

    @property
    def _digits(self) -> int:
        return self.length or _LENGTHS[self.algorithm]

    @property
    def keeps_uniqueness(self) -> bool:
        return self._digits >= _UNIQUE

    def misfit(self, column: Column) -> str | None:
        return not_text(column, self._digits, "set a smaller length")

    def prepare(self) -> None:
        if self.algorithm == "xxhash":
            contract.load("xxhash", self.name)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        digest, digits = _ALGORITHMS[self.algorithm](self.salt.get_secret_value().encode()), self._digits
        return per_distinct(values, lambda value: None if value is None else digest(value.encode())[:digits])


def _sha256(salt: bytes) -> Callable[[bytes], str]:
    if not salt:
        return lambda value: hashlib.sha256(value).hexdigest()
    return lambda value: hmac.digest(salt, value, "sha256").hex()


def _blake2(salt: bytes) -> Callable[[bytes], str]:
    # A key of BLAKE2b has at most 64 bytes.
    key = salt if len(salt) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.blake2b(salt).digest()
    return lambda value: hashlib.blake2b(value, digest_size=32, key=key).hexdigest()


def _xxhash(salt: bytes) -> Callable[[bytes], str]:
    library: Any = contract.load("xxhash", Hash.name)
    seed = int.from_bytes(hashlib.blake2b(salt, digest_size=8).digest(), "little") if salt else 0
    return lambda value: str(library.xxh3_128_hexdigest(value, seed))


_ALGORITHMS: dict[str, Callable[[bytes], Callable[[bytes], str]]] = {
    "sha256": _sha256,
    "blake2": _blake2,
    "xxhash": _xxhash,
}
