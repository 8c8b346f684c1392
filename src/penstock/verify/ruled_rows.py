"""What rules make of the source's rows, read as they are without rules: chunk by chunk, or by key.

A key that rules transform cannot be looked up in the source: there is no way back. Then all rows of the table are read, in one
statement, so that none is missed that moves meanwhile, and go through the rules.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.changes import OLD_NONE, READ, ChangeBatch, Relation
from penstock.imports.layout import TableLayout
from penstock.imports.plan import Chunk
from penstock.rules.compiled import CompiledRules
from penstock.verify.outcome import Outcome
from penstock.verify.source_rows import PlainRows, versioned_rows
from penstock.verify.target import Columns, Key


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
