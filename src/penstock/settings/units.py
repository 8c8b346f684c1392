"""Sizes (``64MiB``) and durations (``100ms``) as people write and read them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, PlainSerializer

from penstock.settings.mistakes import mistake

_SIZE_UNITS = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_DURATION_UNITS = {
    "ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400),
}  # fmt: skip
# 15 digits are plenty, and keep a slip of the finger from becoming an endless number.
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)

N = TypeVar("N", int, float)

SIZE_HINT = "write a number and a unit, like 64MiB or 20GiB"
DURATION_HINT = "write a number and a unit, like 100ms, 30s, 5m, 1h or 2d"


def parse_size(value: Any) -> int:
    """Bytes. Accepts whole numbers of bytes and text with a unit: B, kB, MB, GB, TB (powers of 1000), KiB … TiB."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _not_negative(value)
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = _SIZE_UNITS.get(match[2].lower() or "b") if match else None
    if match is None or factor is None:
        raise mistake(f"not a size; {SIZE_HINT}")
    size = Decimal(match[1]) * factor
    if size != int(size):
        raise mistake(f"not a whole number of bytes; {SIZE_HINT}")
    return int(size)


def parse_duration(value: Any) -> float:
    """Seconds. A unit is required (ms, s, m, h, d): a bare number leaves open which one was meant. 0 needs none."""
    if isinstance(value, timedelta):
        return _not_negative(value.total_seconds())
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value == 0:
            return 0.0
        raise mistake(f"a duration needs a unit; {DURATION_HINT}")
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise mistake(f"not a duration; {DURATION_HINT}")
    number = Decimal(match[1])
    if not match[2] and number:
        raise mistake(f"a duration needs a unit; {DURATION_HINT}")
    factor = _DURATION_UNITS.get(match[2] or "s")
    if factor is None:
        raise mistake(f"not a duration; {DURATION_HINT}")
    return float(number * factor)


def format_size(size: int) -> str:
    """The shortest exact form with a binary unit: ``33554432`` is ``32MiB``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def format_duration(seconds: float) -> str:
    """The shortest form that keeps whole milliseconds: ``0.1`` is ``100ms``, ``7200.0`` is ``2h``."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % factor == 0:
            return f"{milliseconds // factor}{unit}"
    return f"{milliseconds}ms"


def _not_negative(value: N) -> N:
    if value < 0:
        raise mistake("is negative; use 0 or more")
    return value


Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size, when_used="json")]
Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(format_duration, when_used="json")]


def size_in_words(count: float) -> str:
    """1536 is ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
