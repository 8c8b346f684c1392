"""What came out of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock.sinks.verifying import Key

Progress = Callable[[str, str, int, int | None], None]
"""Sink, table, rows compared so far, and how many there are about; None if nobody knows."""

HIDDEN = "(hidden)"

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
    """``state``: equal, differs, changing (nothing differs, but some rows changed too fast to be judged), left_out;
    not_comparable: the source has a value that the sink cannot hold.

    ``more``: there are differences beyond those that are named. ``rows``: how many the source had, or rules let through.
    The last four are of tables with rules.
    """

    sink: str
    schema: str
    table: str
    state: Literal["equal", "differs", "changing", "left_out", "not_comparable"]
    rows: int = 0
    differences: tuple[Difference, ...] = ()
    more: bool = False
    unjudged: tuple[Mapping[str, str | None], ...] = ()
    because: str | None = (
        None  # it was left out or is not comparable, or the sink has no such table, or some rows were not compared
    )
    target: str | None = None  # its name in the sink, if that is another
    together_with: tuple[str, ...] = ()  # tables that go to the same name, with nothing to tell their rows apart
    columns_left_out: Mapping[str, str] = field(default_factory=dict)  # by their names in the sink, and why
    shared_keys: int = 0  # keys that several rows have after the rules, which cannot be judged

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def is_whole(self) -> bool:
        """Whether everything was compared: the table, all its columns, every row."""
        return self.state not in ("left_out", "not_comparable") and not (
            self.unjudged or self.columns_left_out or self.shared_keys
        )

    @property
    def notes(self) -> list[str]:
        """What was not compared, or not by itself."""
        found = [f"column {name} was not compared: {why}" for name, why in self.columns_left_out.items()]
        if self.together_with:
            found.append(f"compared together with {', '.join(self.together_with)}")
        if self.shared_keys:
            found.append(f"{self.shared_keys:,} keys were not compared: the rules give each of them to several rows")
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdicts:
    """Of some suspects."""

    differences: list[Difference] = field(default_factory=list)
    unjudged: list[Mapping[str, str | None]] = field(default_factory=list)
    shared: list[Key] = field(default_factory=list)


def unwatched(sink: str, table: str, rows: int, estimated: int | None) -> None:
    """Nobody wants to hear of progress."""
