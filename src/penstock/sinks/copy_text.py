"""Columns of text as the lines that COPY … FROM STDIN reads. One vector operation per column, no loop over rows.

A line is its values, separated by tabs, and a line feed; NULL is ``\\N``; backslash, tab, line feed and carriage return in
a value are written with a backslash.
https://www.postgresql.org/docs/current/sql-copy.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL = "\\N"

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))  # the backslash first
_PIECE_BYTES = 1 << 20


def copy_lines(columns: Sequence[pa.Array]) -> pa.Array:
    """One line per row, its line feed included. The array's bytes, one after the other, are what COPY wants."""
    *others, last = (_escaped(column) for column in columns)
    ended = pc.binary_join_element_wise(pc.fill_null(last, NULL), "", "\n")
    if not others:
        return ended
    return pc.binary_join_element_wise(*others, ended, "\t", null_handling="replace", null_replacement=NULL)


def pieces(lines: pa.Array) -> Iterator[memoryview]:
    """The array's bytes, without copying them."""
    text = text_bytes(lines)
    for at in range(0, len(text), _PIECE_BYTES):
        yield memoryview(text)[at : at + _PIECE_BYTES]


def text_bytes(values: pa.Array) -> pa.Buffer:
    """What the values are made of, in order; a NULL is nothing."""
    _, offsets, data = values.buffers()
    if data is None or len(values) == 0:
        return pa.py_buffer(b"")
    width = np.int64 if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type) else np.int32
    bounds = np.frombuffer(offsets, width)[[values.offset, values.offset + len(values)]]
    return data.slice(int(bounds[0]), int(bounds[1] - bounds[0]))


def _escaped(column: pa.Array) -> pa.Array:
    """Most columns hold nothing to escape, and looking is cheap."""
    found = np.frombuffer(text_bytes(column), np.uint8)
    for character, escape in _ESCAPES:
        if (found == ord(character)).any():
            column = pc.replace_substring(column, character, escape)
    return column
