"""What a check of a pipeline found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``ok``: True, False (it would fail), or None for a warning. ``remedy`` says what to do, "" if there is nothing."""

    name: str
    ok: bool | None
    message: str
    remedy: str = ""
