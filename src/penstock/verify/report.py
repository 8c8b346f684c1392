"""What came out of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock.verify.target import Key

Progress = Callable[[str, str, int, int | None], None]
"""Sink, table, rows compared so far, and how many there are about; None if nobody knows."""

Kind = Literal["missing", "extra", "differs", "repeated"]

_SAID: dict[Kind, str] = {
    "missing": "missing in the sink",
    "extra": "only in the sink",
    "repeated": "more than once in the sink",
}


@dataclass(frozen=True)
class Difference:
    """A row that really differs. Of a table without a key, ``key`` is the whole row, and ``rows`` how many there are."""

    key: Mapping[str, str | None]
    kind: Kind
    columns: tuple[str, ...] = ()  # those that differ
    rows: int = 1

    def __str__(self) -> str:
        key = ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in self.key.items())
        said = _SAID.get(self.kind) or f"differs in {', '.join(self.columns)}"
        return f"{key}: {said}" + (f", {self.rows} rows" if self.rows > 1 else "")


@dataclass(frozen=True)
class TableReport:
    """``state``: equal, differs, changing (nothing differs, but some rows changed too fast to be judged), left_out.

    ``more``: there are differences beyond those that are named. ``rows``: how many the source had.
    """

    sink: str
    schema: str
    table: str
    state: Literal["equal", "differs", "changing", "left_out"]
    rows: int = 0
    differences: tuple[Difference, ...] = ()
    more: bool = False
    unjudged: tuple[Mapping[str, str | None], ...] = ()
    because: str | None = None  # it was left out, or the sink has no such table

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdicts:
    """Of some suspects."""

    differences: list[Difference] = field(default_factory=list)
    unjudged: list[Key] = field(default_factory=list)


def unwatched(sink: str, table: str, rows: int, estimated: int | None) -> None:
    """Nobody wants to hear of progress."""
