"""Postgres's hex form of bytea (``\\xdeadbeef``) as base64, a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.changes import Int64s, UInt8s
from penstock.sinks.events.json_text import LARGE, bytes_of, offsets_of

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
