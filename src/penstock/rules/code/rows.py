"""The rows that code in rules sees: typed columns, and beside them what happened to the row.

``_op`` (insert, update, read), ``_lsn`` (the commit's, as Postgres writes it), ``_sequence``, ``_timestamp``, ``_xid``. Types
that code can count with are those of Arrow; all others (arrays, json, time, interval, …) are Postgres's text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import OP_NAMES, ChangeBatch, Column, Relation, UInt64s
from penstock.errors import DecodeError, UnrepresentableValue
from penstock.pgoutput.types import arrow_type, typed
from penstock.pgoutput.types.flat import flatten

LSN_COLUMN, SEQUENCE_COLUMN = "_lsn", "_sequence"
ABOUT = (
    pa.field("_op", pa.string()),
    pa.field(LSN_COLUMN, pa.string()),
    pa.field(SEQUENCE_COLUMN, pa.int64()),
    pa.field("_timestamp", pa.timestamp("us", "UTC")),
    pa.field("_xid", pa.int64()),
)
ABOUT_NAMES = frozenset(field.name for field in ABOUT)

_TYPED = {
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "bytea", "date", "timestamp", "timestamptz",
}  # fmt: skip
_UNLIMITED = pa.decimal128(38, 18)  # for a numeric without limits
_LSN = r"\A[0-9A-F]{1,8}/[0-9A-F]{1,8}\z"


class Unseen(Exception):
    """A value of this column has no place in the type that code is given."""

    def __init__(self, column: str, kind: pa.DataType) -> None:
        super().__init__(column)
        self.column, self.kind = column, kind


def seen_type(column: Column) -> pa.DataType:
    if column.base not in _TYPED:
        return pa.string()
    kind = arrow_type(column, "error")
    return _UNLIMITED if column.base == "numeric" and pa.types.is_string(kind) else kind


def seen(text: pa.StringArray, column: Column) -> pa.Array:
    """The column's values in ``seen_type``; Unseen if one has no place there."""
    kind = seen_type(column)
    if pa.types.is_string(kind):
        return text
    try:
        return text.cast(kind) if kind == _UNLIMITED else typed(text, column, "error")
    except (UnrepresentableValue, DecodeError, pa.ArrowInvalid):
        raise Unseen(column.name, kind) from None


def schema_of(relation: Relation) -> pa.Schema:
    return pa.schema([*(pa.field(column.name, seen_type(column)) for column in relation.columns), *ABOUT])


def rows_of(batch: ChangeBatch) -> pa.Table:
    """Of changes that all bring a row."""
    columns = [seen(text, column) for text, column in zip(batch.new, batch.relation.columns, strict=True)]
    names = np.array([OP_NAMES.get(op) for op in range(256)], dtype=object)
    about = [
        pa.array(names[batch.op], pa.string()),
        lsn_text(batch.commit_lsn),
        pa.array(batch.sequence.astype(np.int64)),
        pa.array(batch.commit_time).cast(pa.timestamp("us", "UTC")),
        pa.array(batch.xid.astype(np.int64)),
    ]
    return pa.table([*columns, *about], schema=schema_of(batch.relation))


def lsn_text(lsns: UInt64s) -> pa.StringArray:
    """``16/B374D848``, as Postgres writes it."""
    digits = lsns.astype(">u8").tobytes().hex().upper().encode()
    ends = np.arange(2 * len(lsns) + 1, dtype=np.int32) * 8
    halves = pa.StringArray.from_buffers(2 * len(lsns), pa.py_buffer(ends), pa.py_buffer(digits))
    short = pc.utf8_ltrim(halves, "0")
    short = pc.if_else(pc.equal(short, ""), "0", short)
    places = np.arange(len(lsns)) * 2
    return pc.binary_join_element_wise(short.take(pa.array(places)), short.take(pa.array(places + 1)), "/")


def lsns_of(text: pa.StringArray) -> UInt64s | None:
    """The numbers of such; None if one is none."""
    if text.null_count or not pc.all(pc.match_substring_regex(text, _LSN)).as_py():
        return None if len(text) else np.zeros(0, np.uint64)
    halves = pc.split_pattern(text, "/").flatten()
    data, _ = flatten(pc.utf8_lpad(halves, 8, "0"))
    return np.frombuffer(bytes.fromhex(data.tobytes().decode()), ">u8").astype(np.uint64)
