"""Puts a character in the place of those that nobody should see. Lengths and positions count characters, not bytes."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from penstock.changes.batch import Column
from penstock.pgoutput.types.flat import flatten
from penstock.rules.transforms.contract import Example, Row, Transform, flags, put, where
from penstock.rules.transforms.generator import not_text
from penstock.settings.mistakes import mistake

Kind = Literal["default", "ends", "password", "name", "address", "email", "phone", "id", "credit_card", "url", "custom"]

_PASSWORD = 8
_KEPT_AT_END = 4
_LONG_ENOUGH = 2 * _KEPT_AT_END  # of values that are shorter, nothing is kept
_LETTERS = (string.ascii_letters + string.digits).encode()
_PERCENT = re.compile(r"(100|[0-9]{1,2})%")
_URL = r"\A(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/?#]*@)?(?P<host>[^/?#]*)(?P<rest>(?s:.*))\z"


def _position(value: Any) -> Any:
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise mistake("expected a number of characters or a percentage; write it like 4 or 30%")


Position = Annotated[int | str, BeforeValidator(_position)]


class Mask(Transform):
    name: ClassVar = "mask"
    summary: ClassVar = "Puts a character in the place of those that nobody should see."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({}, "Zürich", "******"),
        Example({"kind": "ends"}, "secret", "s****t"),
        Example({"kind": "password"}, "hunter2 and more", "********"),
        Example({"kind": "name"}, "Ada Lovelace", "A** L*******"),
        Example({"kind": "address"}, "12 Main Street, Springfield", "** **** ******, ***********"),
        Example({"kind": "email"}, "ada@example.com", "a**@example.com"),
        Example({"kind": "phone"}, "+1 415 555 2671", "+* *** *** 2671"),
        Example({"kind": "id"}, "078-05-1120", "***-**-1120"),
        Example({"kind": "credit_card", "char": "x"}, "4111 1111 1111 1111", "xxxx xxxx xxxx 1111"),
        Example({"kind": "url"}, "https://ada:pw@example.com/a?b=c", "https://******@example.com******"),
        Example({"kind": "custom", "mask_begin": 2, "mask_end": 5}, "abcdefgh", "ab***fgh"),
        Example({"kind": "custom", "unmask_begin": 0, "unmask_end": "25%"}, "abcdefgh", "ab******"),
    )

    kind: Kind = Field(
        default="default",
        description="`default`: all characters. `ends`: all but the first and the last (of one or two: all). `password`: eight"
        " characters, whatever was there. `name`: all but each word's first. `address`: all letters and digits. `email`: all"
        " but the first character and the domain. `phone`, `id`, `credit_card`: all letters and digits but the last four (of"
        " eight or fewer: all). `url`: all but scheme and host. `custom`: by the four positions below.",
    )
    char: str = Field(default="*", min_length=1, description="The character to put there.")
    mask_begin: Position | None = Field(
        default=None, description="`custom`: masked from here, in characters or percent of the length; default 0."
    )
    mask_end: Position | None = Field(default=None, description="`custom`: masked up to here; default `100%`.")
    unmask_begin: Position | None = Field(
        default=None, description="`custom`: shown from here, everything else masked; default 0."
    )
    unmask_end: Position | None = Field(default=None, description="`custom`: shown up to here; default `100%`.")

    @model_validator(mode="after")
    def _one_character_and_one_range(self) -> Self:
        if len(self.char) != 1:
            raise mistake("char is more than one character; write one")
        masked, shown = (self.mask_begin, self.mask_end), (self.unmask_begin, self.unmask_end)
        given = [any(position is not None for position in pair) for pair in (masked, shown)]
        if self.kind == "custom" and sum(given) != 1:
            raise mistake("kind: custom needs a range; give mask_begin and mask_end, or unmask_begin and unmask_end")
        if self.kind != "custom" and any(given):
            raise mistake("a range is for kind: custom; write that kind, or remove the range")
        return self

    def misfit(self, column: Column) -> str | None:
        return not_text(column, _PASSWORD if self.kind == "password" else None)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return _KINDS[self.kind](self, values)

    def _all(self, values: pa.StringArray) -> pa.StringArray:
        return self._repeated(pc.utf8_length(values))

    def _repeated(self, counts: pa.Array) -> pa.StringArray:
        return pc.binary_repeat(pa.scalar(self.char), counts)

    def _letters(self, values: pa.StringArray) -> pa.StringArray:
        """All letters and digits. In ASCII a table of bytes does it, ten times as fast as a regular expression."""
        ascii_rows = flags(pc.string_is_ascii(values))
        if not self.char.isascii() or not ascii_rows.any():
            return self._letters_of_all_alphabets(values)
        if ascii_rows.all():
            return self._ascii_letters(values)
        other = pa.array(~ascii_rows)
        masked = self._ascii_letters(pc.if_else(other, "", values))
        return put(masked, ~ascii_rows, self._letters_of_all_alphabets(values.filter(other)))

    def _letters_of_all_alphabets(self, values: pa.StringArray) -> pa.StringArray:
        return pc.replace_substring_regex(values, r"[\pL\pM\pN]", self.char.replace("\\", r"\\"))

    def _ascii_letters(self, values: pa.StringArray) -> pa.StringArray:
        data, offsets = flatten(values)
        table = np.arange(256, dtype=np.uint8)
        table[np.frombuffer(_LETTERS, np.uint8)] = ord(self.char)
        return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.copy()), pa.py_buffer(table[data]))

    def _ends(self, values: pa.StringArray) -> pa.StringArray:
        length = pc.utf8_length(values)
        middle = self._repeated(pc.max_element_wise(pc.subtract(length, 2), 0))
        first, last = pc.utf8_slice_codeunits(values, 0, 1), pc.utf8_slice_codeunits(values, -1)
        shown = pc.binary_join_element_wise(first, middle, last, "")
        return where(flags(pc.greater(length, 2)), shown, self._all(values))

    def _password(self, values: pa.StringArray) -> pa.StringArray:
        return pa.repeat(pa.scalar(self.char * _PASSWORD), len(values))

    def _name(self, values: pa.StringArray) -> pa.StringArray:
        words = pc.split_pattern(values, " ")
        word = words.flatten()
        rest = self._repeated(pc.max_element_wise(pc.subtract(pc.utf8_length(word), 1), 0))
        masked = pc.binary_join_element_wise(pc.utf8_slice_codeunits(word, 0, 1), rest, "")
        lengths = pc.fill_null(pc.list_value_length(words), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), masked), " ")

    def _email(self, values: pa.StringArray) -> pa.StringArray:
        if self.char.isascii() and pc.all(pc.string_is_ascii(values)).as_py():
            return _ascii_email(values, ord(self.char))
        return self._email_of_all_alphabets(values)

    def _email_of_all_alphabets(self, values: pa.StringArray) -> pa.StringArray:
        parts = pc.split_pattern(values, "@", max_splits=1, reverse=True)
        is_address = flags(pc.equal(pc.list_value_length(parts), 2))
        masked = self._all(values)
        if not is_address.any():
            return masked
        parts = parts.filter(pa.array(is_address))
        local, domain = pc.list_element(parts, 0), pc.list_element(parts, 1)
        rest = self._repeated(pc.max_element_wise(pc.subtract(pc.utf8_length(local), 1), 0))
        shown = pc.binary_join_element_wise(pc.utf8_slice_codeunits(local, 0, 1), rest, "@", domain, "")
        return shown if is_address.all() else put(masked, is_address, shown)

    def _tail(self, values: pa.StringArray) -> pa.StringArray:
        masked = self._letters(pc.utf8_slice_codeunits(values, 0, -_KEPT_AT_END))
        shown = pc.binary_join_element_wise(masked, pc.utf8_slice_codeunits(values, -_KEPT_AT_END), "")
        long_enough = flags(pc.greater(pc.utf8_length(values), _LONG_ENOUGH))
        return where(long_enough, shown, self._letters(values))

    def _url(self, values: pa.StringArray) -> pa.StringArray:
        found = pc.extract_regex(values, _URL)
        scheme, user, host, rest = (pc.struct_field(found, part) for part in ("scheme", "user", "host", "rest"))
        has_user = pc.greater(pc.utf8_length(user), 0)
        hidden = self._repeated(pc.max_element_wise(pc.subtract(pc.utf8_length(user), 1), 0))
        hidden = pc.binary_join_element_wise(hidden, pc.if_else(has_user, "@", ""), "")
        shown = pc.binary_join_element_wise(scheme, hidden, host, self._all(rest), "")
        return where(flags(pc.is_valid(shown)), shown, self._all(values))

    def _custom(self, values: pa.StringArray) -> pa.StringArray:
        """Positions in percent depend on the length, so the values of each length are masked together."""
        lengths = pc.fill_null(pc.utf8_length(values), 0).to_numpy()
        result = values
        for length in np.unique(lengths):
            rows = lengths == length
            part = values if rows.all() else values.filter(pa.array(rows))
            result = put(result, rows, self._range(part, int(length)))
        return result

    def _range(self, values: pa.StringArray, length: int) -> pa.StringArray:
        shows = self.mask_begin is None and self.mask_end is None
        begin, end = (self.unmask_begin, self.unmask_end) if shows else (self.mask_begin, self.mask_end)
        first = _characters(begin, length, 0)
        last = max(first, _characters(end, length, length))
        before, inside, after = pc.utf8_slice_codeunits(values, 0, first), last - first, length - last
        if shows:
            head, middle = self.char * first, pc.utf8_slice_codeunits(values, first, last)
            return pc.binary_join_element_wise(head, middle, self.char * after, "")
        return pc.binary_join_element_wise(before, self.char * inside, pc.utf8_slice_codeunits(values, last), "")


def _ascii_email(values: pa.StringArray, char: int) -> pa.StringArray:
    """The same as for all alphabets, twice as fast: where characters are bytes, they are overwritten in their places."""
    data, offsets = flatten(values)
    begin, end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    signs = np.flatnonzero(data == ord("@"))
    if len(signs) == len(values) and ((begin <= signs) & (signs < end)).all():
        begin, end = begin + 1, signs
    else:
        rows = np.searchsorted(offsets, signs, side="right") - 1
        begin[rows] = offsets[rows] + 1
        end[rows] = signs  # the last one, if there are several
    some = begin < end
    steps = np.zeros(data.size + 1, np.int8)
    steps[begin[some]] += 1
    steps[end[some]] -= 1
    hidden = np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)
    masked = np.where(hidden, np.uint8(char), data)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.copy()), pa.py_buffer(masked))


def _characters(position: int | str | None, length: int, default: int) -> int:
    if position is None:
        return default
    if isinstance(position, int):
        return min(position, length)
    return length * int(position.removesuffix("%")) // 100


_KINDS: dict[str, Callable[[Mask, pa.StringArray], pa.StringArray]] = {
    "default": Mask._all,
    "ends": Mask._ends,
    "password": Mask._password,
    "name": Mask._name,
    "address": Mask._letters,
    "email": Mask._email,
    "phone": Mask._tail,
    "id": Mask._tail,
    "credit_card": Mask._tail,
    "url": Mask._url,
    "custom": Mask._custom,
}
