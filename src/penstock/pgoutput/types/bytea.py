r"""bytea, with bytea_output = hex: ``\x00ff``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.pgoutput.types.family import Family
from penstock.pgoutput.types.flat import flatten, valid_rows, validity

_PREFIX, _INVALID = 256, 257
_DIGITS = b"0123456789abcdef"


def _pair_values() -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Two characters, as one 16-bit number, to the byte that they mean."""
    values = np.full(1 << 16, _INVALID, np.uint16)
    digits = np.frombuffer(_DIGITS, np.uint8).astype(np.uint16)
    pairs = digits[:, None] | digits[None, :] << 8  # little-endian: the first character is the low byte
    values[pairs] = np.arange(256, dtype=np.uint16).reshape(16, 16)
    values[ord("\\") | ord("x") << 8] = _PREFIX
    return values


_PAIR_VALUES = _pair_values()


class ByteStrings(Family):
    written = r"\\x(?:[0-9a-f]{2})*"

    def arrow_type(self, modifier: int) -> pa.DataType:
        return pa.binary()

    def ordinary(self, text: pa.StringArray, modifier: int) -> pa.Array | None:
        """A value is pairs of characters from its first to its last, so the column is one array of pairs."""
        data, offsets = flatten(text)
        starts = offsets[:-1][valid_rows(text)] if text.null_count else offsets[:-1]
        if (offsets & 1).any():
            return None
        values = _PAIR_VALUES[data.view("<u2")]
        prefixes = np.flatnonzero(values >= _PREFIX)
        if (values == _INVALID).any() or not np.array_equal(prefixes, starts >> 1):
            return None
        decoded = np.delete(values.astype(np.uint8), prefixes)
        ends = (offsets >> 1) - np.searchsorted(prefixes, offsets >> 1).astype(np.int32)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(text), [validity(text), pa.py_buffer(ends), pa.py_buffer(decoded)]
        )

    def careful(self, text: pa.StringArray, modifier: int) -> pa.Array:
        decoded = self.ordinary(text, modifier)
        if decoded is None:
            raise pa.ArrowInvalid("not hexadecimal digits")
        return decoded
