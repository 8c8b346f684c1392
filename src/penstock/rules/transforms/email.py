"""E-mail addresses."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.changes.batch import Bools, Column, Int64s
from penstock.rules.transforms import dictionaries
from penstock.rules.transforms.contract import Example, Row, flags, put, where
from penstock.rules.transforms.dictionaries import DEFAULT_LOCALE, Dictionary, addressable
from penstock.rules.transforms.drawn_numbers import base32, counting
from penstock.rules.transforms.generator import Draws, Generator, not_text
from penstock.rules.transforms.names import FIRST, LAST, Locale, drawn, lengths_of

_NUMBER = 2
_DIGITS = 4
_UNIQUE_DIGITS = 13  # of five bits each: 64 bits
_ADDRESS = r"\A[^@\s]+@[^@\s]+\z"


class Email(Generator):
    name: ClassVar = "email"
    summary: ClassVar = "An e-mail address."
    fits: ClassVar = "text"
    dynamic_parameters: ClassVar = ("domain",)
    examples: ClassVar = (
        Example({"salt": "pepper"}, "ada@lovelace.org", "rhonda.hubbard9798@example.com"),
        Example({"salt": "pepper", "unique": True}, "ada@lovelace.org", "rhonda.hubbard.pbgl3lt7u2qmh@example.com"),
        Example({"preserve_domain": True, "preserve_length": True}, "ada.king@lovelace.org", "tristanx@lovelace.org"),
        Example({"keep_domains": ["example.com"]}, "bot@example.com", "bot@example.com"),
        Example(
            {"dynamic": {"domain": "host"}},
            "ada@lovelace.org",
            "noah.chambers3269@example.net",
            {"host": "example.net"},
        ),
    )

    domain: str = Field(default="example.com", min_length=1, description="Where the addresses are.")
    preserve_domain: bool = Field(default=False, description="The value's own domain stays.")
    keep_domains: tuple[str, ...] = Field(default=(), description="Addresses at these domains are left as they are.")
    preserve_length: bool = Field(
        default=False,
        description="As many characters as the value had, if its domain leaves room for one before the @.",
    )
    max_length: int | None = Field(default=None, ge=3, description="At most this many characters.")
    unique: bool = Field(
        default=False,
        description="Ends in 13 characters of the hash, so that addresses stay distinct, for unique columns.",
    )
    locale: Locale = Field(default=DEFAULT_LOCALE, description="Whose names.")

    @property
    def keeps_uniqueness(self) -> bool:
        cut = self.preserve_length or self.max_length is not None or self.keep_domains
        return self.unique and self.deterministic and not cut

    def misfit(self, column: Column) -> str | None:
        kept = self.preserve_length or self.preserve_domain or self.dynamic
        return not_text(column, self.max_length or (None if kept else self._longest()), "set max_length")

    def prepare(self) -> None:
        dictionaries.load(self.name)

    def _names(self) -> tuple[Dictionary, Dictionary]:
        return tuple(addressable(kind, self.locale, self.name) for kind in ("first_name", "last_name"))  # type: ignore[return-value]

    def _longest(self) -> int:
        first, last = self._names()
        number = _UNIQUE_DIGITS + 1 if self.unique else _DIGITS
        return first.longest + 1 + last.longest + number + 1 + len(self.domain)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        domain = self._domain(values, row)
        local = self._local(draws)
        if self.preserve_length or self.max_length is not None:
            local, domain = self._cut(local, domain, values)
        address = pc.binary_join_element_wise(local, domain, "@")
        return where(self._kept(values), values, address) if self.keep_domains else address

    def _local(self, draws: Draws) -> pa.StringArray:
        first, last = self._names()
        if self.unique:
            number = pc.binary_join_element_wise("", base32(draws.bits), ".")
        else:
            number = counting(10**_DIGITS).take(pa.array(draws.below(10**_DIGITS, _NUMBER)))
        names = pc.binary_join_element_wise(drawn(first, draws, FIRST), drawn(last, draws, LAST), ".")
        return pc.binary_join_element_wise(names, number, "")

    def _domain(self, values: pa.StringArray, row: Row) -> pa.StringArray | pa.Scalar:
        column = self.dynamic_column("domain", row)
        if column is not None:
            known = flags(pc.match_substring_regex(column, r"\A[^@\s]+\z"))
            return where(known, column, pa.repeat(pa.scalar(self.domain), len(values)))
        return _domain_of(values, self.domain) if self.preserve_domain else pa.scalar(self.domain)

    def _kept(self, values: pa.StringArray) -> Bools:
        own = pc.utf8_lower(_domain_of(values, ""))
        return flags(pc.is_in(own, pa.array([domain.lower() for domain in self.keep_domains])))

    def _cut(
        self, local: pa.StringArray, domain: pa.StringArray | pa.Scalar, values: pa.StringArray
    ) -> tuple[pa.StringArray, pa.StringArray]:
        """Names that fill the room before the @; a domain that leaves none is cut as well."""
        domains = pa.repeat(domain, len(values)) if isinstance(domain, pa.Scalar) else domain
        room = lengths_of(values) if self.preserve_length else lengths_of(local) + 1 + lengths_of(domains)
        room = np.maximum(room if self.max_length is None else np.minimum(room, self.max_length), 3)
        of_domain = np.minimum(lengths_of(domains), room - 2)
        of_local = room - 1 - of_domain
        return _fitted(local, of_local), _fitted(domains, of_domain)


def _domain_of(values: pa.StringArray, default: str) -> pa.StringArray:
    """What follows the @ of each value that is an address, else the default."""
    is_address = flags(pc.match_substring_regex(values, _ADDRESS))
    addresses = where(is_address, values, pa.repeat(pa.scalar(f"x@{default}"), len(values)))
    return pc.list_element(pc.split_pattern(addresses, "@", max_splits=1), 1)


def _fitted(texts: pa.StringArray, lengths: Int64s) -> pa.StringArray:
    """Each text cut, or repeated, to that many characters. Rows of the same length are cut together."""
    repeated = pc.binary_repeat(texts, pa.array(-(-lengths // np.maximum(lengths_of(texts), 1))))
    result = repeated
    for length in np.unique(lengths):
        rows = lengths == length
        part = pc.utf8_slice_codeunits(repeated.filter(pa.array(rows)), 0, int(length))
        result = put(result, rows, part)
    return pc.replace_substring_regex(result, r"\.\z", "x")  # no part of an address ends in a dot
