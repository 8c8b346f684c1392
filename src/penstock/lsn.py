"""A position in Postgres's write-ahead log.

https://www.postgresql.org/docs/current/datatype-pg-lsn.html
"""

from __future__ import annotations

import re

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class LSN(int):
    """An integer that prints as Postgres prints it: ``0/16B3748``."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> LSN:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an LSN (expected something like 0/16B3748)")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"LSN({self})"


ZERO = LSN(0)
