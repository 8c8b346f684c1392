r"""Arrays of one dimension as Arrow lists. Arrow's lists have no lower bounds and no second dimension.

Postgres's array literals, ``{1,NULL,"a \"b\""}``, taken apart for a whole column at once.

https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO

The characters that give an array literal its structure: quotes, backslashes, commas and braces.

They are found in one pass over a column's bytes; what each of them means follows from running sums over all marks of
all rows, without a loop. A row that is not sound can spoil that for the rows after it, never for those before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.changes.batch import Bools, Column, Int64s, UInt8s
from penstock.pgoutput.types.flat import Int32s, bitmap, flatten, valid_rows

QUOTE, BACKSLASH, COMMA, OPEN, CLOSE = b'"\\,{}'
_IS_MARK = np.isin(np.arange(256), [QUOTE, BACKSLASH, COMMA, OPEN, CLOSE])


@dataclass(frozen=True)
class Marks:
    at: Int64s  # positions in the column's bytes
    kind: UInt8s
    escapes: Bools  # backslashes that take the meaning of the next byte away
    quotes: Bools  # quotes that are not escaped
    quoted: Bools  # after an opening quote and before the closing one
    separates: Bools  # braces and commas that are neither escaped nor quoted


@dataclass(frozen=True)
class Separators:
    mark: Int64s  # which of the marks they are
    at: Int64s
    kind: UInt8s
    bounds: Int64s  # row i has those from bounds[i] to bounds[i + 1]


def marks_in(data: UInt8s) -> Marks:
    at = np.flatnonzero(_IS_MARK[data])
    kind = data[at]
    escapes = _escapes(at, kind)
    escaped = np.zeros(kind.size, np.bool_)
    escaped[1:] = escapes[:-1] & (np.diff(at) == 1)
    quotes = (kind == QUOTE) & ~escaped
    quoted = (np.cumsum(quotes) & 1).astype(np.bool_)
    separates = (kind != QUOTE) & (kind != BACKSLASH) & ~escaped & ~quoted
    return Marks(at, kind, escapes, quotes, quoted, separates)


def _escapes(at: Int64s, kind: UInt8s) -> Bools:
    """Of several backslashes in a row, the first, the third and so on escape what follows."""
    backslash: Bools = kind == BACKSLASH
    if not backslash.any():
        return backslash
    index = np.arange(kind.size)
    continues = np.zeros(kind.size, np.bool_)
    continues[1:] = backslash[:-1] & (np.diff(at) == 1)
    start_of_run = np.maximum.accumulate(np.where(backslash & ~continues, index, 0))
    every_other: Bools = (index - start_of_run) & 1 == 0
    return backslash & every_other


def separators_of(marks: Marks, offsets: Int32s) -> Separators:
    mark = np.flatnonzero(marks.separates)
    at = marks.at[mark]
    return Separators(mark, at, marks.kind[mark], np.searchsorted(at, offsets))


def running_sum(numbers: npt.NDArray[np.bool_] | Int64s) -> Int32s:
    """The sum of what lies before each position, and of all at the end. In 32 bits, as a string array's offsets are."""
    sums = np.empty(numbers.size + 1, np.int32)
    sums[0] = 0
    np.cumsum(numbers, dtype=np.int32, out=sums[1:])
    return sums


_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\v\f\r"))  # what Postgres quotes as such; no other control characters
_NULL = np.frombuffer(b"NULL", np.uint8)


class Literals:
    """The literals of a column. ``elements`` and ``list_offsets`` mean something only if ``all_flat``."""

    def __init__(self, text: pa.StringArray) -> None:
        self._data, self._offsets = flatten(text)
        self._valid = valid_rows(text)
        self._marks = marks_in(self._data)
        self._separators = separators_of(self._marks, self._offsets)
        # What lies between two separators is an element, but for the nothing in `{}` and for what is between rows.
        kind, at = self._separators.kind, self._separators.at
        nothing = (kind[:-1] == OPEN) & (kind[1:] == CLOSE) & (np.diff(at) == 1)
        self._left = np.flatnonzero((kind[:-1] != CLOSE) & ~nothing)
        self._start, self._end = at[self._left] + 1, at[self._left + 1]
        self._bare = self._marks_within(self._marks.quotes) == 0

    def _marks_within(self, mask: Bools) -> Int32s:
        """How many of the marks in the mask each element has."""
        if not mask.any():
            return np.zeros(self._left.size, np.int32)
        before = running_sum(mask)
        within: Int32s = before[self._separators.mark[self._left + 1]] - before[self._separators.mark[self._left]]
        return within

    @property
    def all_flat(self) -> bool:
        """Whether every row is NULL or a sound literal of one dimension that counts from 1."""
        return bool(self._flat.all())

    @cached_property
    def _flat(self) -> Bools:
        flat: Bools = self._in_one_pair_of_braces.copy()
        rows = np.repeat(np.arange(flat.size), np.diff(self._separators.bounds))
        flat[rows[self._left[~self._sound_elements()]]] = False
        stray = self._marks.at[self._marks.escapes & ~self._marks.quoted]
        flat[np.searchsorted(self._offsets, stray, side="right") - 1] = False
        flat |= ~self._valid
        return flat

    @cached_property
    def _in_one_pair_of_braces(self) -> Bools:
        braces = np.diff(running_sum(self._separators.kind != COMMA)[self._separators.bounds])
        one_pair: Bools = braces == 2
        return one_pair & self._enclosed(self._offsets[:-1])

    def _enclosed(self, starts: Int64s | Int32s) -> Bools:
        """Rows whose first separator is an opening brace at ``starts`` and whose last is a brace that ends the row."""
        at, kind, bounds = self._separators.at, self._separators.kind, self._separators.bounds
        several: Bools = np.diff(bounds) >= 2
        if not several.any():
            return several
        first, last = np.minimum(bounds[:-1], at.size - 1), np.maximum(bounds[1:] - 1, 0)
        opened: Bools = (at[first] == starts) & (kind[first] == OPEN)
        closed: Bools = (at[last] == self._offsets[1:] - 1) & (kind[last] == CLOSE)
        return several & opened & closed

    def _sound_elements(self) -> Bools:
        """Elements that are quoted from end to end, or bare: not empty, and without blanks around."""
        head, tail = self._byte(self._start), self._byte(self._end - 1)
        length = self._end - self._start
        bare: Bools = self._bare & (length > 0) & ~_IS_BLANK[head] & ~_IS_BLANK[tail]
        if bare.all():
            return bare
        quoted: Bools = (
            (self._marks_within(self._marks.quotes) == 2) & (head == QUOTE) & (tail == QUOTE) & (length >= 2)
        )
        return bare | quoted

    @cached_property
    def nested(self) -> pa.BooleanArray:
        """Rows of several dimensions (``{{1},{2}}``), or that do not count from 1 (``[2:3]={1,2}``)."""
        bounds, kind = self._separators.bounds, self._separators.kind
        steps = (kind == OPEN).astype(np.int64) - (kind == CLOSE)
        depth = running_sum(steps)
        outside = depth[1:] == np.repeat(depth[bounds[:-1]], np.diff(bounds))
        balanced = depth[bounds[1:]] == depth[bounds[:-1]]
        closed_at_end = balanced & (np.diff(running_sum(outside)[bounds]) == 1)
        first = np.append(self._separators.at, self._data.size)[bounds[:-1]]
        deep = self._enclosed(self._offsets[:-1]) & ~self._in_one_pair_of_braces
        shifted = (
            (self._byte(self._offsets[:-1]) == ord("[")) & (self._byte(first - 1) == ord("=")) & self._enclosed(first)
        )
        return pa.array(closed_at_end & (deep | shifted))

    @property
    def malformed(self) -> pa.BooleanArray:
        """Rows that are neither NULL nor flat nor nested. Only the first is sure to be so."""
        return pa.array(~self._flat & ~self.nested.to_numpy(zero_copy_only=False))

    def _byte(self, at: Int64s | Int32s) -> UInt8s:
        return self._data[np.clip(at, 0, self._data.size - 1)] if self._data.size else np.zeros(at.size, np.uint8)

    @property
    def list_offsets(self) -> Int32s:
        """Row i has the elements from list_offsets[i] to list_offsets[i + 1]."""
        begins = np.zeros(self._separators.at.size, np.bool_)
        begins[self._left] = True
        return running_sum(begins)[self._separators.bounds]

    @property
    def elements(self) -> pa.StringArray:
        """The elements of all rows one after the other, without quotes and backslashes; NULL for a bare NULL."""
        marks = self._marks
        null = self._nulls()
        keep = np.ones(self._data.size, np.bool_)
        removed = marks.quotes | marks.escapes
        keep[marks.at[removed | marks.separates]] = False
        keep[self._start[null][:, None] + np.arange(_NULL.size)] = False
        lengths = np.where(null, 0, self._end - self._start - self._marks_within(removed))
        offsets = running_sum(lengths)
        valid = bitmap(~null) if null.any() else None
        buffers = pa.py_buffer(offsets), pa.py_buffer(self._data[keep])
        return pa.StringArray.from_buffers(lengths.size, *buffers, valid)

    def _nulls(self) -> Bools:
        null: Bools = self._bare & (self._end - self._start == _NULL.size)
        candidates = np.flatnonzero(null)
        letters = self._data[self._start[candidates][:, None] + np.arange(_NULL.size)]
        # Postgres quotes the string "null" however it is spelt, so a bare one is a NULL.
        null[candidates] = ((letters & ~np.uint8(0x20)) == _NULL).all(axis=1)
        return null


# Arrays of boxes are the only built-in ones with a semicolon between the elements; they stay text.
_BOX, _BOX_ARRAY_OID = "box", 1020


def is_list(column: Column) -> bool:
    if column.base != "array" or column.element is None:
        return False
    return column.element != _BOX and column.type_oid != _BOX_ARRAY_OID


def element(column: Column) -> Column:
    """The column that the elements of an array column would make."""
    return replace(column, base=column.element or "other", element=None)


def lists(text: pa.StringArray, literals: Literals, values: pa.Array) -> pa.ListArray:
    """The lists of the rows, from the typed elements of all of them."""
    offsets = pa.array(literals.list_offsets)
    mask = text.is_null() if text.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(values.type), mask=mask)
