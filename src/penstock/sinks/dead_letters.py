"""What a sink refused (``on_error: dead_letter``), as it is listed and tried again, whatever kind of sink it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from penstock.lsn import LSN


@dataclass(frozen=True)
class DeadLetter:
    """A row that the sink refused and that no later change has superseded. Values are Postgres's texts."""

    id: int
    sink: str
    schema: str
    table: str
    op: str  # insert, update, delete
    key: Mapping[str, str | None]
    row: Mapping[str, str | None] | None
    lsn: LSN
    sequence: int
    reason: str
    sqlstate: str | None
    constraint: str | None
    at: datetime

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "lsn": str(self.lsn), "at": self.at.isoformat()}


@dataclass(frozen=True)
class Replayed:
    """What became of dead letters that were tried again."""

    replayed: Sequence[DeadLetter]
    left: Sequence[DeadLetter]


class DeadLetters(Protocol):
    """Those of one sink. ``tables``: only of these, as (schema, table)."""

    def count(self) -> int:
        """How many are open."""

    def listed(self, tables: Sequence[tuple[str, str]] = ()) -> list[DeadLetter]:
        """The open ones, oldest first."""

    def replay(self, tables: Sequence[tuple[str, str]] = ()) -> Replayed:
        """Tries each again, in order, until no more goes in. May be done while the sink is delivered to."""
