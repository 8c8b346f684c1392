r"""Text columns as JSON strings, whole columns at a time.

Most columns hold nothing that JSON wants escaped, which three SIMD passes over the data buffer find out; only where
that fails are the values rewritten, and only values with control characters pay for those.

Postgres's hex form of bytea (``\xdeadbeef``) as base64, a column at a time.

Postgres array literals (``{1,NULL,"a b"}``) as lists of their elements' text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Bools, Column, Int64s, UInt8s
from penstock.pgoutput.types import typed

LARGE = pa.large_string()  # lines of a batch may well be more than the 2 GiB that 32-bit offsets can address
_CONTROLS = {code: json.dumps(chr(code)).strip('"') for code in range(0x20)}


def quoted_name(name: str) -> str:
    """A name as a JSON string. Not escaped to ASCII: a table called 🐘 stays readable."""
    return json.dumps(name, ensure_ascii=False)


def constant(text: str) -> pa.Scalar:
    return pa.scalar(text, LARGE)


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Concatenation, row by row; NULL where any part is NULL."""
    return pc.binary_join_element_wise(*parts, constant(""), null_handling="emit_null")


def comma_separated(parts: Sequence[pa.Array]) -> pa.Array:
    """The parts that are not NULL, row by row. None of them may start with a comma.

    Arrow's own way (``null_handling="skip"``) leaves out rows in which all parts are NULL, so the others would move up.
    """
    with_commas = [joined(constant(","), part) for part in parts]
    text = pc.binary_join_element_wise(*with_commas, constant(""), null_handling="replace", null_replacement="")
    return pc.utf8_ltrim(text, characters=",")


def flat(text: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values as one array of LARGE."""
    if isinstance(text, pa.ChunkedArray):
        text = text.combine_chunks()
    return text if text.type == LARGE else text.cast(LARGE)


def offsets_of(text: pa.Array) -> npt.NDArray[np.int64]:
    """Start of each value in the data buffer, and the end of the last one. For LARGE arrays."""
    if len(text) == 0:  # Arrow may leave out the buffer
        return np.zeros(1, np.int64)
    return np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]


def bytes_of(text: pa.Array) -> UInt8s:
    """The values' bytes, one after the other, without a copy. For LARGE arrays."""
    data = text.buffers()[2]
    if data is None or len(text) == 0:
        return np.zeros(0, np.uint8)
    offsets = offsets_of(text)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def fixed_width(characters: UInt8s) -> pa.Array:
    """The rows of a matrix of ASCII characters, as text."""
    rows, width = characters.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int64) if width else np.zeros(rows + 1, np.int64)
    data = np.ascontiguousarray(characters)
    return pa.Array.from_buffers(LARGE, rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def replaced(values: pa.Array, mask: Bools, replacement: pa.Array) -> pa.Array:
    """``values`` with the masked rows taken from ``replacement``, one element for each such row."""
    return pc.replace_with_mask(values, pa.array(mask), replacement)


def as_mask(values: pa.Array) -> Bools:
    """A boolean array for NumPy; NULL is False."""
    mask: Bools = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


def escaped(text: pa.Array) -> pa.Array:
    """What goes between the quotes of a JSON string. NULL stays NULL."""
    data = bytes_of(text)
    if len(data) == 0:
        return text
    if (data == ord("\\")).any():
        text = pc.replace_substring(text, "\\", "\\\\")
    if (data == ord('"')).any():
        text = pc.replace_substring(text, '"', '\\"')
    return text if data.min() >= 0x20 else _without_controls(text, data)


def _without_controls(text: pa.Array, data: UInt8s) -> pa.Array:
    """Escapes the control characters that occur, in the rows that have any."""
    rows = as_mask(pc.match_substring_regex(text, r"[\x00-\x1f]"))
    some = text.filter(pa.array(rows))
    for code in np.unique(data[data < 0x20]).tolist():
        some = pc.replace_substring(some, chr(code), _CONTROLS[code])
    return replaced(text, rows, some)


def string(text: pa.Array) -> pa.Array:
    """JSON strings. NULL stays NULL."""
    return joined(constant('"'), escaped(text), constant('"'))


class Line:
    """Collects the pieces of a line (constant text, and columns of values) and puts all lines together in one pass.

    A NULL among the values prints as ``null``.
    """

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self._constant: list[str] = []

    def text(self, text: str) -> Line:
        self._constant.append(text)
        return self

    def values(self, values: pa.Array) -> Line:
        self._flush()
        self._pieces.append(values)
        return self

    def strings(self, text: pa.Array) -> Line:
        """Text as JSON strings. Without NULLs the quotes are constants, which saves a copy of the column."""
        if text.null_count:
            return self.values(string(text))
        return self.text('"').values(escaped(text)).text('"')

    def build(self) -> pa.Array:
        self._flush()
        return pc.binary_join_element_wise(
            *self._pieces, constant(""), null_handling="replace", null_replacement="null"
        )

    def _flush(self) -> None:
        if self._constant:
            self._pieces.append(constant("".join(self._constant)))
            self._constant = []


_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PADDING = ord("=")
_NIBBLE = np.zeros(256, np.uint8)
_NIBBLE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_NIBBLE[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


def base64_of_hex(text: pa.Array) -> pa.Array:
    """Base64 of values that all match ``\\x([0-9a-f]{2})*``; there must be no NULL."""
    lengths = (np.diff(offsets_of(text)) - 2) // 2
    triples = (lengths + 2) // 3
    padded = _in_triples(_unhex(bytes_of(text), lengths), lengths, triples).astype(np.uint32)
    group = padded[:, 0] << 16 | padded[:, 1] << 8 | padded[:, 2]
    sextets = np.stack([group >> 18, group >> 12 & 63, group >> 6 & 63, group & 63], axis=1)
    characters = _ALPHABET[sextets]
    _pad(characters, lengths, triples)
    offsets = np.zeros(len(text) + 1, np.int64)
    np.cumsum(4 * triples, out=offsets[1:])
    return pa.Array.from_buffers(LARGE, len(text), [None, pa.py_buffer(offsets), pa.py_buffer(characters)])


def _unhex(data: UInt8s, lengths: Int64s) -> UInt8s:
    """The bytes of all values, without the ``\\x``. Every value has an even length, so pairs never straddle two."""
    pairs = data.reshape(-1, 2)
    decoded: UInt8s = _NIBBLE[pairs[:, 0]] << np.uint8(4) | _NIBBLE[pairs[:, 1]]
    keep = np.ones(len(pairs), bool)
    keep[np.cumsum(lengths + 1) - lengths - 1] = False
    return decoded[keep]


def _in_triples(decoded: UInt8s, lengths: Int64s, triples: Int64s) -> UInt8s:
    """The bytes in rows of three, each value starting on a row of its own, zeros after its end."""
    padded = np.zeros(3 * int(triples.sum()), np.uint8)
    padding_before = np.cumsum(3 * triples - lengths) - (3 * triples - lengths)
    padded[np.arange(len(decoded)) + np.repeat(padding_before, lengths)] = decoded
    return padded.reshape(-1, 3)


def _pad(characters: UInt8s, lengths: Int64s, triples: Int64s) -> None:
    """Base64 marks the bytes that are missing in a value's last group."""
    last = np.cumsum(triples) - 1
    missing = 3 * triples - lengths
    characters[last[missing >= 1], 3] = _PADDING
    characters[last[missing == 2], 2] = _PADDING


def array_elements(text: pa.Array, column: Column) -> tuple[Bools, pa.ListArray]:
    """Which rows are arrays of one dimension, and the elements of just those rows, as text.

    The others (more dimensions, bounds of their own) have no list of elements that would say all that the text says.
    """
    as_text = replace(column, element="text", modifier=-1)
    lists = typed(text.cast(pa.string()), as_text, "null")
    parsed = as_mask(pc.is_valid(lists))
    return parsed, lists.filter(pa.array(parsed)) if not parsed.all() else lists
