"""From the CSV that Postgres writes to change batches with op READ.

Postgres quotes a value that is empty or holds a comma, a quote, a line feed or a carriage return, and writes NULL as
nothing at all. Everything else is the value's own text.
https://www.postgresql.org/docs/current/sql-copy.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv

from penstock.changes.batch import OLD_NONE, READ, ChangeBatch, Relation
from penstock.errors import DecodeError
from penstock.lsn import LSN

BATCH_BYTES = 16 << 20

_COUNTS = re.compile(r"Expected \d+ columns, got \d+")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_AS_POSTGRES_QUOTES = csv.ParseOptions(
    double_quote=True, escape_char=False, newlines_in_values=True,
    ignore_empty_lines=False,  # NULL in a table of one column is an empty line
)  # fmt: skip


def read_rows(
    relation: Relation, pieces: Iterator[pa.Buffer], commit_lsn: LSN, first_sequence: int, commit_time: int
) -> Iterator[ChangeBatch]:
    """Rows of a table as changes at ``commit_lsn``, numbered from ``first_sequence`` on, in batches of some 16 MiB.

    ``commit_time`` is when they were read, in microseconds since 1970.
    """
    parsed: list[list[pa.Array]] = []
    rows = size = 0
    for piece in pieces:
        parsed.append(csv_rows(relation, piece))
        rows += len(parsed[-1][0]) if relation.columns else piece.size  # without columns, a row is its line feed
        size += piece.size
        if size >= BATCH_BYTES:
            yield _batch(relation, parsed, rows, commit_lsn, first_sequence, commit_time)
            first_sequence += rows
            parsed, rows, size = [], 0, 0
    if rows:
        yield _batch(relation, parsed, rows, commit_lsn, first_sequence, commit_time)


def csv_rows(relation: Relation, piece: pa.Buffer) -> list[pa.Array]:
    """The columns of whole rows as text. A piece is parsed in one go, so it should not be very large."""
    if not relation.columns:
        return []
    if piece[:3].to_pybytes() == _BYTE_ORDER_MARK:
        # The reader takes the first one for a mark that says how the file is written; here it is the value's own.
        piece = pa.py_buffer(_BYTE_ORDER_MARK + piece.to_pybytes())
    try:
        return _columns(relation, piece, pa.string())
    except pa.ArrowInvalid as error:
        raise _malformed(relation, piece, error) from None


def _columns(relation: Relation, piece: pa.Buffer, kind: pa.DataType) -> list[pa.Array]:
    names = [str(index) for index in range(len(relation.columns))]  # two columns of the table may be called alike
    table = csv.read_csv(
        pa.BufferReader(piece),
        read_options=csv.ReadOptions(use_threads=False, block_size=max(piece.size, 2), column_names=names),
        parse_options=_AS_POSTGRES_QUOTES,
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, kind),
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""],
        ),
    )  # fmt: skip
    return [column.combine_chunks() for column in table.columns]


def _malformed(relation: Relation, piece: pa.Buffer, error: pa.ArrowInvalid) -> DecodeError:
    """Tells text that is not UTF-8, which a database with encoding SQL_ASCII may hold, from everything else. Never shows a
    value, as Arrow does: it may be one that a rule hides."""
    where = f"Rows of table {relation.qualified_name} cannot be read"
    counts = _COUNTS.search(str(error))
    otherwise = DecodeError(f"{where}: {counts[0] if counts else 'they are not CSV as Postgres writes it'}.")
    try:
        columns = _columns(relation, piece, pa.binary())
    except pa.ArrowInvalid:
        return otherwise
    for column, values in zip(relation.columns, columns, strict=True):
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            return DecodeError(f"{where}: column {column.name} holds text that is not UTF-8.")
    return otherwise


def _batch(
    relation: Relation, parsed: Sequence[Sequence[pa.Array]], rows: int, lsn: LSN, first: int, commit_time: int
) -> ChangeBatch:
    nothing = pa.nulls(rows, pa.string())  # the same one for all columns
    return ChangeBatch(
        relation,
        op=np.full(rows, READ, np.uint8),
        commit_lsn=np.full(rows, lsn, np.uint64),
        sequence=np.arange(first, first + rows, dtype=np.uint64).astype(np.uint32),
        xid=np.zeros(rows, np.uint32),
        commit_time=np.full(rows, commit_time, np.int64),
        new=[pa.concat_arrays(pieces) for pieces in zip(*parsed, strict=True)],
        old=[nothing] * len(relation.columns),
        old_kind=np.full(rows, OLD_NONE, np.uint8),
    )
