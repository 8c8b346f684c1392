"""What the changes of a transaction have in common, as text: LSN, xid, commit time.

Changes come in commit order, so equal values stand next to each other: text is made once for each run of equal values
and then spread over its rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import ChangeBatch, Int64s, UInt8s, UInt64s
from penstock.sinks.events.json_text import LARGE, constant, fixed_width, joined

_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_NIBBLES = np.arange(28, -1, -4, dtype=np.uint64)
_DAY = 86_400_000_000  # microseconds
_TIME = b"T00:00:00.000000Z"
# Where in _TIME a digit stands, and how many microseconds one of it is worth.
_DIGITS = [
    (1, 36_000_000_000), (2, 3_600_000_000), (4, 600_000_000), (5, 60_000_000), (7, 10_000_000), (8, 1_000_000),
    (10, 100_000), (11, 10_000), (12, 1000), (13, 100), (14, 10), (15, 1),
]  # fmt: skip


def lsn_text(lsns: UInt64s) -> pa.Array:
    """``0/16B3748``, as LSN prints it."""
    high, low = lsns >> np.uint64(32), lsns & np.uint64(0xFFFFFFFF)
    return joined(_hex(high), constant("/"), _hex(low))


def _hex(values: UInt64s) -> pa.Array:
    nibbles = (values[:, None] >> _NIBBLES[None, :]) & np.uint64(15)
    text = pc.utf8_ltrim(fixed_width(_HEX[nibbles.astype(np.intp)]), characters="0")
    return pc.if_else(pc.equal(text, constant("")), constant("0"), text)


def timestamp_text(microseconds: Int64s) -> pa.Array:
    """``2026-11-15T07:02:40.290389Z`` for microseconds since 1970."""
    days, which = np.unique(microseconds // _DAY, return_inverse=True)
    # Few days per batch, so these few strings may cost what they cost.
    dates = np.datetime_as_string(days.astype("datetime64[D]")).astype("S10")
    date_characters = dates.view(np.uint8).reshape(len(days), 10)
    return fixed_width(np.hstack([date_characters[which], _times_of_day(microseconds % _DAY)]))


def _times_of_day(microseconds: Int64s) -> UInt8s:
    characters = np.tile(np.frombuffer(_TIME, np.uint8), (len(microseconds), 1))
    remaining = microseconds.copy()
    for position, worth in _DIGITS:
        digit, remaining = np.divmod(remaining, worth)
        characters[:, position] += digit.astype(np.uint8)
    return characters


def number_text(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values).cast(LARGE)


class Transactions:
    """The texts of a batch's transactions, one value for each change."""

    def __init__(self, changes: ChangeBatch) -> None:
        columns = (changes.commit_lsn, changes.xid, changes.commit_time)
        starts = np.ones(len(changes), bool)
        if len(changes):
            starts[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        self._heads = np.flatnonzero(starts)
        self._run_of_row = pa.array(np.cumsum(starts) - 1)
        self._changes = changes

    def lsn(self) -> pa.Array:
        return self._spread(lsn_text(self._changes.commit_lsn[self._heads]))

    def timestamp(self) -> pa.Array:
        return self._spread(timestamp_text(self._changes.commit_time[self._heads]))

    def xid_and_timestamp(self) -> pa.Array:
        """``731,"timestamp":"2026-11-15T07:02:40.290389Z"``: neighbours in an event, so they are spread as one."""
        xid = number_text(self._changes.xid[self._heads])
        time = timestamp_text(self._changes.commit_time[self._heads])
        return self._spread(joined(xid, constant(',"timestamp":"'), time, constant('"')))

    def _spread(self, texts: pa.Array) -> pa.Array:
        return texts.take(self._run_of_row)
