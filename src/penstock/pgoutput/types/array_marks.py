r"""The characters that give an array literal its structure: quotes, backslashes, commas and braces.

They are found in one pass over a column's bytes; what each of them means follows from running sums over all marks of
all rows, without a loop. A row that is not sound can spoil that for the rows after it, never for those before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.changes import Bools, Int64s, UInt8s
from penstock.pgoutput.types.flat import Int32s

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
