"""Made-up addresses and companies."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from penstock.changes.batch import Column
from penstock.rules.transforms import dictionaries
from penstock.rules.transforms.contract import Example, Row
from penstock.rules.transforms.dictionaries import DEFAULT_LOCALE, Dictionary, dictionary
from penstock.rules.transforms.generator import Draws, Generator, not_text
from penstock.rules.transforms.names import Locale, drawn

_METHODS = {"full": "address", "street": "street_address", "city": "city", "postcode": "postcode", "country": "country"}


class FromDictionary(Generator):
    """What both have in common: one word of a dictionary."""

    locale: Locale = Field(
        default=DEFAULT_LOCALE, description="How they look: one of Faker's, like `de_DE` or `ja_JP`."
    )
    max_length: int | None = Field(default=None, ge=1, description="At most this many characters.")

    def words(self) -> Dictionary:
        raise NotImplementedError

    def prepare(self) -> None:
        dictionaries.load(self.name)

    def misfit(self, column: Column) -> str | None:
        return not_text(column, self.max_length or self.words().longest, "set max_length")

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        words = self.words()
        return drawn(words if self.max_length is None else words.up_to(self.max_length), draws, 0)


class Address(FromDictionary):
    name: ClassVar = "address"
    summary: ClassVar = "A postal address on one line, or a part of one; drawn from some thousands."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "12 St James's Square", "PSC 7141, Box 7160, APO AA 38399"),
        Example({"part": "city", "locale": "de_DE", "salt": "pepper"}, "London", "Demmin"),
    )

    part: Literal["full", "street", "city", "postcode", "country"] = Field(
        default="full", description="`full`, `street` (with number), `city`, `postcode` or `country`."
    )

    def words(self) -> Dictionary:
        return dictionary(_METHODS[self.part], self.locale, self.name)


class Company(FromDictionary):
    name: ClassVar = "company"
    summary: ClassVar = "A company's name; drawn from some thousands."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "Analytical Engines Ltd", "Choi-Rowland"),
        Example({"salt": "pepper", "max_length": 12}, "Analytical Engines Ltd", "Clark-Barr"),
    )

    def words(self) -> Dictionary:
        return dictionary("company", self.locale, self.name)
