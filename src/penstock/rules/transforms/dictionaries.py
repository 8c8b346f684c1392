"""Lists of made-up names, companies and addresses, which generators draw from.

Faker makes them, once per process, kind and locale, from a fixed seed. So a list is the same everywhere as long as Faker
is: its version is pinned, another one is refused, and a test holds the lists to their digests.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Int64s
from penstock.rules.transforms import contract
from penstock.settings.mistakes import mistake, nearest, quoted

FAKER = "40.54.0"
DEFAULT_LOCALE = "en_US"
_SAMPLES = 8192
_SEED = 20_240_229
_TAIL = re.compile(r"(?P<head>.*)(?P<tail>(?:[0-9][^0-9]?){3}[0-9])")


@dataclass(frozen=True)
class Dictionary:
    """Words in a fixed order."""

    words: pa.StringArray
    lengths: Int64s  # in characters
    _by_length: dict[int, Dictionary] = field(default_factory=dict, compare=False, repr=False)

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def __len__(self) -> int:
        return len(self.words)

    def up_to(self, length: int) -> Dictionary:
        """Those that are no longer than that; if there are none, the shortest one's beginning."""
        rows = np.flatnonzero(self.lengths <= length)
        if rows.size:
            return of(self.words.take(pa.array(rows)))
        shortest = self.words.take(pa.array([int(self.lengths.argmin())]))
        return of(pc.utf8_slice_codeunits(shortest, 0, length))

    def of_length(self, length: int) -> Dictionary:
        """Those of exactly that many characters; where there are few, beginnings of longer ones, or words in a row."""
        known = self._by_length.get(length)
        if known is None:
            known = self._made_of_length(length)
            if length <= _LONG:  # there are few of those, and they are small
                self._by_length[length] = known
        return known

    def _made_of_length(self, length: int) -> Dictionary:
        rows = np.flatnonzero(self.lengths == length)
        if rows.size >= _FEW:
            return of(self.words.take(pa.array(rows)))
        longer = self.words.to_pylist()
        if length > _LONG:
            some = sorted({word[:_LONG] for word in longer})[:: max(1, len(longer) // _FEW)]
            return of(pa.array(sorted({(word * (length // len(word) + 1))[:length] for word in some}), pa.string()))
        while max(map(len, longer)) < length:
            longer = [first + second.lower() for first, second in zip(longer, longer[1:] + longer[:1], strict=True)]
        return of(pa.array(sorted({word[:length] for word in longer if len(word) >= length}), pa.string()))


_LONG = 64
_FEW = 8  # fewer words of one length than these would give away which they are


def of(words: pa.StringArray) -> Dictionary:
    return Dictionary(words, pc.utf8_length(words).to_numpy().astype(np.int64))


@lru_cache(maxsize=64)
def load(transform: str) -> None:
    """Faker, in the version that the lists belong to, or a ConfigError."""
    contract.load("faker", transform)
    contract.check_version("faker", FAKER, transform)


def check_locale(locale: str) -> str:
    """Refuses a locale that Faker does not know, where Faker is there to ask."""
    try:
        from faker.config import AVAILABLE_LOCALES
    except ModuleNotFoundError:
        return locale
    if locale not in AVAILABLE_LOCALES:
        raise mistake(f"unknown locale{quoted(locale)}; {nearest(locale, sorted(AVAILABLE_LOCALES))}")
    return locale


def dictionary(method: str, locale: str, transform: str) -> Dictionary:
    """What this method of Faker gives in this locale: distinct, sorted, on one line."""
    load(transform)
    return _dictionary(method, locale)


@lru_cache(maxsize=256)
def _dictionary(method: str, locale: str) -> Dictionary:
    faker = importlib.import_module("faker").Faker(locale, use_weighting=False)
    faker.seed_instance(_SEED)
    make = getattr(faker, method)
    return of(pa.array(sorted({", ".join(str(make()).splitlines()) for _ in range(_SAMPLES)}), pa.string()))


@lru_cache(maxsize=64)
def addressable(method: str, locale: str, transform: str) -> Dictionary:
    """Names as they look in e-mail addresses: small Latin letters. English ones where a locale has no Latin names."""
    plain = {_latin(name) for name in dictionary(method, locale, transform).words.to_pylist()} - {""}
    if not plain:
        return addressable(method, DEFAULT_LOCALE, transform)
    return of(pa.array(sorted(plain), pa.string()))


def _latin(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name.lower().replace("ß", "ss"))
    return re.sub(r"[^a-z]", "", letters)


@lru_cache(maxsize=64)
def phone_numbers(locale: str, transform: str) -> tuple[Dictionary, Dictionary]:
    """Beginnings of phone numbers, and all ends of four digits, in the form that is the locale's most frequent one."""
    numbers = dictionary("phone_number", locale, transform).words.to_pylist()
    found = [match for number in numbers if (match := _TAIL.fullmatch(number))]
    forms = [re.sub("[0-9]", "#", match["tail"]) for match in found]
    form = max(sorted(set(forms)), key=forms.count)
    heads = sorted({match["head"] for match, its_form in zip(found, forms, strict=True) if its_form == form})
    return of(pa.array(heads, pa.string())), of(pa.array(_numbered(form), pa.string()))


def _numbered(form: str) -> list[str]:
    """Every number of this form."""
    pattern = form.replace("#", "{}")
    return [pattern.format(*f"{number:04}") for number in range(10_000)]
