"""``format: json``, Penstock's own events.

::

    {"op":"insert","schema":"public","table":"example","key":{"id":1},"before":null,
     "after":{"id":1,"msg":"hello world"},"lsn":"0/16B3748","sequence":1,"xid":731,
     "timestamp":"2026-11-15T07:02:40.290389Z"}

The rows of a change as JSON objects: key, old row, new row.

What the changes of a transaction have in common, as text: LSN, xid, commit time.

Changes come in commit order, so equal values stand next to each other: text is made once for each run of equal values
and then spread over its rows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import (
    DELETE,
    MESSAGE,
    MESSAGES,
    OLD_KEY,
    OLD_NONE,
    OP_NAMES,
    Bools,
    ChangeBatch,
    Column,
    Int64s,
    Relation,
    UInt8s,
    UInt64s,
)
from penstock.sinks.events.format import EventFormat, Position
from penstock.sinks.events.json_text import LARGE, Line, comma_separated, constant, fixed_width, joined, quoted_name
from penstock.sinks.events.values import Numeric, Shape, Values

_ABSENT = pa.scalar(None, LARGE)


def append_key(line: Line, shape: Shape, values: Values) -> None:
    """Adds the key that the row has after the change; a deleted row's is the one that it had."""
    changes = shape.changes
    if not changes.relation.key or not (shape.has_new_row or shape.op == DELETE):
        line.text("null")
        return
    columns = []
    for index in changes.relation.key_indexes:
        text = changes.new[index] if shape.has_new_row else changes.old[index]
        if shape.has_new_row and index in changes.unchanged:
            # A key long enough for TOAST: Postgres sends it with the old row instead.
            text = pc.if_else(pa.array(changes.unchanged[index]), changes.old[index], text)
        columns.append((changes.relation.columns[index], text))
    _append_object(line, columns, values)


def append_old_row(line: Line, shape: Shape, values: Values) -> None:
    """Adds what Postgres sent of the old row: nothing, the identity's columns, or all."""
    if shape.old_kind == OLD_NONE:
        line.text("null")
        return
    columns = zip(shape.changes.relation.columns, shape.changes.old, strict=True)
    sent = [(column, text) for column, text in columns if column.in_identity or shape.old_kind != OLD_KEY]
    _append_object(line, sent, values)


def append_new_row(line: Line, shape: Shape, values: Values) -> None:
    """Adds the new row, without the columns whose TOAST value was not sent."""
    if not shape.has_new_row:
        line.text("null")
        return
    columns = list(zip(shape.changes.relation.columns, shape.changes.new, strict=True))
    if not shape.partial:
        _append_object(line, columns, values)
        return
    members = [
        _member(column, values.encode(text, column), shape.changes.unchanged.get(index))
        for index, (column, text) in enumerate(columns)
    ]
    line.text("{").values(comma_separated(members)).text("}")


def append_unchanged_names(line: Line, shape: Shape) -> None:
    """Adds the names of the columns whose TOAST value was not sent, separated by commas."""
    columns = shape.changes.relation.columns
    names = [
        pc.if_else(pa.array(mask), constant(quoted_name(columns[index].name)), _ABSENT)
        for index, mask in sorted(shape.changes.unchanged.items())
    ]
    line.values(comma_separated(names))


def _append_object(line: Line, columns: list[tuple[Column, pa.Array]], values: Values) -> None:
    line.text("{")
    for index, (column, text) in enumerate(columns):
        line.text(f"{',' if index else ''}{quoted_name(column.name)}:")
        values.append(line, text, column)
    line.text("}")


def _member(column: Column, encoded: pa.Array, unchanged: Bools | None) -> pa.Array:
    present = Line().text(f"{quoted_name(column.name)}:").values(encoded).build()
    return present if unchanged is None else pc.if_else(pa.array(unchanged), _ABSENT, present)


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


class JsonFormat(EventFormat):
    def __init__(self, numeric: Numeric = "string") -> None:
        self._values = Values(numeric)

    def lines(self, shape: Shape) -> pa.Array:
        line = Line().text(f'{{"op":{quoted_name(OP_NAMES[shape.op])},')
        if shape.op == MESSAGE:
            self._append_message(line, shape)
        else:
            self._append_change(line, shape)
        _append_transaction(line, shape)
        return line.build()

    def _append_message(self, line: Line, shape: Shape) -> None:
        for column, text in zip(MESSAGES.columns, shape.changes.new, strict=True):
            line.text(f"{quoted_name(column.name)}:")
            self._values.append(line, text, column)
            line.text(",")

    def _append_change(self, line: Line, shape: Shape) -> None:
        relation = shape.changes.relation
        line.text(f'"schema":{quoted_name(relation.schema)},"table":{quoted_name(relation.table)},"key":')
        append_key(line, shape, self._values)
        line.text(',"before":')
        append_old_row(line, shape, self._values)
        line.text(',"after":')
        append_new_row(line, shape, self._values)
        if shape.partial:
            line.text(',"unchanged":[')
            append_unchanged_names(line, shape)
            line.text("]")
        line.text(",")

    def schema_line(self, relation: Relation, first: Position) -> str:
        columns = [
            {"name": column.name, "type": column.type_name, "key": column.name in relation.key}
            for column in relation.columns
        ]
        event = {
            "op": "schema", "schema": relation.schema, "table": relation.table, "columns": columns,
            "key": list(relation.key), "lsn": str(first.commit_lsn), "sequence": max(0, first.sequence - 1),
            "xid": first.xid, "timestamp": timestamp_text(np.array([first.commit_time], np.int64))[0].as_py(),
        }  # fmt: skip
        return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _append_transaction(line: Line, shape: Shape) -> None:
    transactions = Transactions(shape.changes)
    line.text('"lsn":"').values(transactions.lsn())
    line.text('","sequence":').values(number_text(shape.changes.sequence))
    line.text(',"xid":').values(transactions.xid_and_timestamp()).text("}")
