"""What rules make of the source's rows, read as they are without rules: chunk by chunk, or by key.

A key that rules transform cannot be looked up in the source: there is no way back. Then all rows of the table are read, in one
statement, so that none is missed that moves meanwhile, and go through the rules.

What rules make of a table's columns, as far as its rows alone tell what a sink should hold.

A sink holds what the rules made of *changes*. Mostly that is what they make of the source's row as it is now, but not always:

- A transform that draws its values by chance gave others then. So did one that is for inserts only, or for updates only, of a
  row that saw both. Such columns cannot be compared, nor what is made from them.
- A filter that looks at such a column, or that is not for inserts and updates alike, let rows pass by what they were once.
  Then nobody can tell which rows should be there.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.changes.batch import OLD_NONE, READ, ChangeBatch, Relation
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.rules.compiled import CompiledRules, Step
from penstock.sinks.verifying import Columns, Key, PlainRows, versioned_rows

_NEW_ROWS = {"insert", "update"}
_BY_CHANCE = "its transform gives another value each time"
_BY_OPERATION = "its transform is not for inserts and updates alike"


@dataclass(frozen=True)
class Traced:
    """A column that comes out of the rules. ``source``: its place in the source's relation; None for an origin.

    ``unsure``: why nobody can tell from the source's row what the sink should have; None if one can.
    """

    source: int | None
    transformed: bool = False
    unsure: str | None = None
    constant: str | None = None  # the value of an origin


@dataclass(frozen=True)
class Outcome:
    """``columns``: one for each of ``relation``, which is what comes out. ``obstacle``: why nothing can be compared."""

    relation: Relation
    columns: tuple[Traced, ...]
    obstacle: str | None = None

    @cached_property
    def by_name(self) -> dict[str, Traced]:
        return {column.name: traced for column, traced in zip(self.relation.columns, self.columns, strict=True)}

    @property
    def origins(self) -> dict[str, str]:
        """Columns that have one value in all rows of this table."""
        return {name: traced.constant for name, traced in self.by_name.items() if traced.constant is not None}

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that cannot be compared, and why."""
        return {name: traced.unsure for name, traced in self.by_name.items() if traced.unsure is not None}

    @property
    def transformed(self) -> frozenset[str]:
        return frozenset(name for name, traced in self.by_name.items() if traced.transformed)

    @property
    def transforms_key(self) -> bool:
        return not self.transformed.isdisjoint(self.relation.key)


def outcome_of(relation: Relation, steps: Sequence[Step]) -> Outcome:
    columns = tuple(Traced(index) for index in range(len(relation.columns)))
    obstacle = None
    for step in steps:
        obstacle = obstacle or _obstacle(step, columns)
        columns = _through(step, columns)
        relation = step.route.relation
    found = Outcome(relation, columns, obstacle)
    unsure = next((name for name in relation.key if name in found.left_out), None)
    if obstacle is None and unsure is not None:
        return replace(found, obstacle=f"of column {unsure} of its key, {found.left_out[unsure]}")
    return found


def _obstacle(step: Step, columns: Sequence[Traced]) -> str | None:
    if step.filter is None:
        return None
    if not _NEW_ROWS.issubset(step.rule.operations):
        return f"the filter of {step.path} is not for inserts and updates alike, so that a row's past decides"
    unsure = next((index for index in step.filter.columns if columns[index].unsure), None)
    if unsure is None:
        return None
    name = step.relation.columns[unsure].name
    return f"the filter of {step.path} looks at column {name}, of which {columns[unsure].unsure}"


def _through(step: Step, columns: Sequence[Traced]) -> tuple[Traced, ...]:
    """All transforms of a rule see what went into it."""
    operations = _NEW_ROWS & set(step.rule.operations)
    places = {column.name: index for index, column in enumerate(step.relation.columns)}
    made = list(columns)
    for index, transform in step.transforms if operations else ():
        reasons = [columns[place].unsure for place in (index, *(places[name] for name in sorted(transform.columns())))]
        if not transform.deterministic:
            reasons.append(_BY_CHANCE)
        if operations != _NEW_ROWS:
            reasons.append(_BY_OPERATION)
        unsure = next((reason for reason in reasons if reason is not None), None)
        made[index] = Traced(columns[index].source, transformed=True, unsure=unsure)
    kept = [made[index] for index in step.route.kept]
    return (*kept, Traced(None, constant=step.route.origin)) if step.route.origin is not None else tuple(kept)


@dataclass(frozen=True)
class RuledRows:
    """Of one table. ``relation``: the columns of the outcome that are compared, in this order."""

    url: str
    layout: TableLayout
    publications: Sequence[str]
    rules: CompiledRules
    outcome: Outcome
    relation: Relation

    def chunk(self, chunk: Chunk) -> Generator[Columns, None, None]:
        with closing(PlainRows(self.url, self.layout, self.publications).chunk(chunk)) as pieces:
            for columns in pieces:
                ruled = self.rules.apply(_read(self.layout.relation, columns))
                if ruled is not None:
                    yield self._compared(ruled)

    def with_keys(self, keys: Sequence[Key]) -> Generator[tuple[Columns, pa.Array], None, None]:
        wanted = None if self.outcome.transforms_key else self._source_keys(keys)
        with closing(versioned_rows(self.url, self.layout, wanted)) as pieces:
            for columns, versions in pieces:
                ruled = self.rules.apply(_read(self.layout.relation, columns))
                if ruled is not None:
                    yield self._compared(ruled), versions.take(pa.array(ruled.sequence))

    def _compared(self, ruled: ChangeBatch) -> list[pa.Array]:
        return [ruled.new[index] for index in self._places]

    @cached_property
    def _places(self) -> list[int]:
        places = {column.name: index for index, column in enumerate(self.outcome.relation.columns)}
        return [places[column.name] for column in self.relation.columns]

    def _source_keys(self, keys: Sequence[Key]) -> list[Key]:
        """The same keys as the source has them: in its order, and without origins."""
        places = {self.outcome.by_name[name].source: place for place, name in enumerate(self.relation.key)}
        order = [places[index] for index in self.layout.relation.key_indexes]
        return list(dict.fromkeys(tuple(key[place] for place in order) for key in keys))


class UnitedRows:
    """Of several tables that go to one, with the chunks of each. In ``chunks`` they have numbers of their own."""

    def __init__(self, parts: Sequence[tuple[RuledRows, Sequence[Chunk]]]) -> None:
        self._parts = [rows for rows, _ in parts]
        self._of: dict[int, RuledRows] = {}
        self.relation = self._parts[0].relation
        self.chunks: list[Chunk] = []
        for rows, chunks in parts:
            for chunk in chunks:
                number = len(self.chunks) + 1
                self._of[number] = rows
                self.chunks.append(replace(chunk, number=number))

    def chunk(self, chunk: Chunk) -> Generator[Columns, None, None]:
        return self._of[chunk.number].chunk(chunk)

    def with_keys(self, keys: Sequence[Key]) -> Generator[tuple[Columns, pa.Array], None, None]:
        for rows in self._parts:
            yield from rows.with_keys(keys)

    def any(self) -> bool:
        """Whether any row gets through."""
        return any(True for chunk in self.chunks for _ in self.chunk(chunk))


def _read(relation: Relation, columns: Columns) -> ChangeBatch:
    """Rows as an import reads them; ``sequence`` is the place of each."""
    rows = len(columns[0])
    return ChangeBatch(
        relation, np.full(rows, READ, np.uint8), np.zeros(rows, np.uint64), np.arange(rows, dtype=np.uint32),
        np.zeros(rows, np.uint32), np.zeros(rows, np.int64), columns, [pa.nulls(rows, pa.string())] * len(columns),
        np.full(rows, OLD_NONE, np.uint8),
    )  # fmt: skip
