"""First names, last names, and both."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from penstock.changes.batch import Column, Int64s
from penstock.rules.transforms import dictionaries
from penstock.rules.transforms.contract import Example, Row, flags, put, where
from penstock.rules.transforms.dictionaries import DEFAULT_LOCALE, Dictionary, check_locale, dictionary
from penstock.rules.transforms.generator import Draws, Generator, not_text

Locale = Annotated[str, AfterValidator(check_locale)]
Gender = Literal["any", "female", "male"]

FIRST, LAST = 0, 1  # which numbers of a row's draws
_SHORTEST_FULL_NAME = 5  # two names of two letters and a space
_FIRST_NAMES = {"any": "first_name", "female": "first_name_female", "male": "first_name_male"}
_GENDERS = {"female": ("f", "female", "w"), "male": ("m", "male")}


def drawn(words: Dictionary, draws: Draws, index: int) -> pa.StringArray:
    """A word for each row."""
    return words.words.take(pa.array(draws.below(len(words), index)))


def drawn_of_length(words: Dictionary, lengths: Int64s, draws: Draws, index: int) -> pa.StringArray:
    """A word for each row, of as many characters as it says. Rows of the same length are drawn together."""
    result = pa.repeat(pa.scalar(""), len(draws))
    for length in np.unique(lengths[lengths > 0]):
        rows = lengths == length
        result = put(result, rows, drawn(words.of_length(int(length)), Draws(draws.bits[rows]), index))
    return result


def lengths_of(values: pa.StringArray) -> Int64s:
    lengths: Int64s = pc.fill_null(pc.utf8_length(values), 0).to_numpy().astype(np.int64)
    return lengths


class Name(Generator):
    """What the three have in common."""

    locale: Locale = Field(
        default=DEFAULT_LOCALE, description="Whose names: one of Faker's, like `de_DE`, `ja_JP` or `pt_BR`."
    )
    preserve_length: bool = Field(default=False, description="As many characters as the value had.")
    max_length: int | None = Field(default=None, ge=1, description="At most this many characters.")

    def misfit(self, column: Column) -> str | None:
        kept = self.preserve_length and self.max_length is None
        return not_text(column, None if kept else self.longest(), "set max_length")

    def prepare(self) -> None:
        dictionaries.load(self.name)

    def longest(self) -> int:
        raise NotImplementedError

    def _lengths(self, values: pa.StringArray) -> Int64s | None:
        """How long each name has to be, if that is given."""
        if not self.preserve_length:
            return None
        lengths = lengths_of(values)
        return lengths if self.max_length is None else np.minimum(lengths, self.max_length)

    def _one_name(self, names: Dictionary, draws: Draws, lengths: Int64s | None, index: int) -> pa.StringArray:
        if lengths is not None:
            return drawn_of_length(names, lengths, draws, index)
        return drawn(names if self.max_length is None else names.up_to(self.max_length), draws, index)


class WithGender(Name):
    dynamic_parameters: ClassVar = ("gender",)

    gender: Gender = Field(
        default="any",
        description="`female` or `male` first names only. From a column: `f`, `female`, `w`, `m` or `male`, in any case.",
    )

    def _first_names(self, gender: Gender) -> Dictionary:
        return dictionary(_FIRST_NAMES[gender], self.locale, self.name)

    def _longest_first(self) -> int:
        genders: tuple[Gender, ...] = ("any", "female", "male") if self.dynamic else (self.gender,)
        return max(self._first_names(gender).longest for gender in genders)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        lengths = self._lengths(values)
        result = self._named(self.gender, draws, lengths)
        column = self.dynamic_column("gender", row)
        if column is None:
            return result
        words = pc.utf8_lower(column)
        for gender in ("female", "male"):
            rows = flags(pc.is_in(words, pa.array(_GENDERS[gender])))
            result = where(rows, self._named(gender, draws, lengths), result)
        return result

    def _named(self, gender: Gender, draws: Draws, lengths: Int64s | None) -> pa.StringArray:
        raise NotImplementedError


class FirstName(WithGender):
    name: ClassVar = "first_name"
    summary: ClassVar = "A first name."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "Ada", "Sierra"),
        Example({"salt": "pepper", "preserve_length": True}, "Ada", "Sue"),
        Example({"dynamic": {"gender": "sex"}}, "Ada", "Claire", {"sex": "F"}),
        Example({"locale": "de_DE"}, "Ada", "Edda"),
    )

    def longest(self) -> int:
        return self.max_length or self._longest_first()

    def _named(self, gender: Gender, draws: Draws, lengths: Int64s | None) -> pa.StringArray:
        return self._one_name(self._first_names(gender), draws, lengths, FIRST)


class LastName(Name):
    name: ClassVar = "last_name"
    summary: ClassVar = "A last name."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "Lovelace", "Martin"),
        Example({"max_length": 5}, "Lovelace", "Kerr"),
        Example({"locale": "ja_JP"}, "Lovelace", "斉藤"),
    )

    def _names(self) -> Dictionary:
        return dictionary("last_name", self.locale, self.name)

    def longest(self) -> int:
        return self.max_length or self._names().longest

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        return self._one_name(self._names(), draws, self._lengths(values), LAST)


class FullName(WithGender):
    name: ClassVar = "full_name"
    summary: ClassVar = "A first and a last name."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "Ada Lovelace", "Michelle Underwood"),
        Example({"salt": "pepper", "preserve_length": True}, "Ada Lovelace", "Luke Summers"),
        Example({"gender": "female", "max_length": 11}, "Ada Lovelace", "Norma Stone"),
    )

    def _last_names(self) -> Dictionary:
        return dictionary("last_name", self.locale, self.name)

    def longest(self) -> int:
        return self.max_length or self._longest_first() + 1 + self._last_names().longest

    def _named(self, gender: Gender, draws: Draws, lengths: Int64s | None) -> pa.StringArray:
        first, last = self._first_names(gender), self._last_names()
        if lengths is not None:
            return self._of_lengths(first, last, draws, lengths)
        if self.max_length is not None and self.max_length < _SHORTEST_FULL_NAME:
            return drawn(first.up_to(self.max_length), draws, FIRST)
        if self.max_length is not None:
            room = (self.max_length - 1) // 2
            first, last = first.up_to(room), last.up_to(self.max_length - 1 - room)
        return pc.binary_join_element_wise(drawn(first, draws, FIRST), drawn(last, draws, LAST), " ")

    def _of_lengths(self, first: Dictionary, last: Dictionary, draws: Draws, lengths: Int64s) -> pa.StringArray:
        """The first name takes some two fifths of the room. A value that is too short for two names gets one."""
        of_first = np.where(lengths < _SHORTEST_FULL_NAME, lengths, np.maximum(2, (lengths - 1) * 2 // 5))
        of_last = np.where(lengths < _SHORTEST_FULL_NAME, 0, lengths - 1 - of_first)
        one = drawn_of_length(first, of_first, draws, FIRST)
        other = drawn_of_length(last, of_last, draws, LAST)
        return where(of_last > 0, pc.binary_join_element_wise(one, other, " "), one)
