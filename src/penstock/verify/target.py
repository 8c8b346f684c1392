"""What ``verify`` needs of a sink's target: two classes to write for a new one.

Rows are compared by *buckets*: a row belongs to the bucket that the hash of its key says, on both sides alike. Ranges of
the key itself would need one order on both sides, and there is none: collations differ from server to server, and DuckDB
orders text by its bytes. Hashes also let the source be read page by page, in the order it lies on disk.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.changes import Relation
from penstock.imports.layout import TableLayout
from penstock.imports.plan import Chunk
from penstock.lsn import LSN

Key = tuple[str | None, ...]
Row = tuple[str | None, ...]

Figures = npt.NDArray[np.int64]
"""Per bucket: how many rows, and the sums of the lower and of the upper halves of their hashes. Shape (3, buckets).

Sums, not XOR: two equal rows of a table without a key must not cancel each other out.
"""


Columns = Sequence[pa.Array]
"""Of rows, as text."""


class SourceRows(Protocol):
    """The rows that a sink should hold. ``relation``: how they look there. Called from several threads."""

    @property
    def relation(self) -> Relation: ...

    def chunk(self, chunk: Chunk) -> Generator[Columns, None, None]:
        """Those of a chunk, read in a short transaction."""
        ...

    def with_keys(self, keys: Sequence[Key]) -> Generator[tuple[Columns, pa.Array], None, None]:
        """Those with these keys as they are now, and each row's version. Others may be among them."""
        ...


@dataclass(frozen=True)
class Expected:
    """What rules make of a table. ``origins``: only those rows of the target are its own that have these values.

    ``transformed``: columns whose values rules change.
    """

    rows: SourceRows
    origins: Mapping[str, str] = field(default_factory=dict)
    transformed: frozenset[str] = frozenset()


class TablePair(Protocol):
    """A table of the source and the one of the target that mirrors it. ``buckets`` is always a power of two.

    ``key``: the columns that a row is known by; all of them where the table has no key. Keys and values are texts, written
    alike for both sides, so that they can be compared as they are; those of keys can be cast by the source.

    ``hidden``: columns whose values, as the target has them, are not to be shown: rules change them, and the target may have
    one that they did not.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    hidden: frozenset[str]

    def source_figures(self, chunk: Chunk, buckets: int) -> Figures:
        """Of a chunk of the source's table, read in a short transaction. Called from several threads."""
        ...

    def target_figures(self, buckets: int) -> Figures: ...

    def source_keys(self, chunk: Chunk, buckets: int, wanted: Sequence[int]) -> pa.Table:
        """The rows in these buckets: columns k0, k1, … with the key, and h with the hash of the row. From several threads."""
        ...

    def target_keys(self, buckets: int, wanted: Sequence[int]) -> pa.Table: ...

    def source_rows(self, keys: Sequence[Key]) -> list[tuple[Key, str, Row]]:
        """The rows with these keys as they are now, each with its key and its version (xmin).

        Several with one key only where rules make different keys equal; then two of them will do.
        """
        ...

    def target_rows(self, keys: Sequence[Key]) -> list[tuple[Key, Row]]: ...


class VerifiableTarget(Protocol):
    def position(self) -> LSN | None:
        """Up to where the target holds every change, by its own record."""
        ...

    def pair(self, layout: TableLayout) -> TablePair | None:
        """None: the target has no such table."""
        ...

    def ruled_pair(self, expected: Expected) -> TablePair | None:
        """The same of a table with rules."""
        ...

    def has_rows_of_others(self, relation: Relation) -> bool:
        """Whether the target's table has rows that somebody else put there, and that imports keep."""
        ...

    def close(self) -> None: ...


def no_figures(buckets: int) -> Figures:
    return np.zeros((3, buckets), np.int64)


def figures_of(found: pa.Table, buckets: int) -> Figures:
    """From a table of bucket, count, and the two sums."""
    figures = no_figures(buckets)
    bucket, *values = (column.to_numpy() for column in found.columns)
    for part, value in zip(figures, values, strict=True):
        part[bucket.astype(np.int64)] = value
    return figures
