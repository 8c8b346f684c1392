"""Compares a table of the source with the one of a sink, while both are written to.

1. Every chunk of the source's table is read in a short transaction of its own, several at a time, and the target's at the
   same time. Both give a figure per bucket (``target.py``). Where all are equal, the table is.
2. Of the buckets that differ, the rows' keys and hashes are read. Keys that only one side has, or with different hashes,
   are suspects. The two sides were read at different moments, so on a busy table most of them are innocent.
3. Suspects are judged (``judging.py``): only what really differs is reported.

A table without a key has no suspects to look up again. Its figures as a whole are taken until the source's are the same
before and after the target's, with the sink having caught up in between.

Memory is bounded by the chunks that are read at a time and by ``_ROWS_AT_ONCE`` keys of suspicious buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import SourceUnavailable
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.postgres.reading.read_chunk import LayoutChanged
from penstock.sinks.verifying import Figures, Key, TablePair, no_figures
from penstock.verify.judging import ROUNDS, bag_differences, judge, named, suspects
from penstock.verify.report import Difference, Kind, TableReport

_ROWS_PER_BUCKET = 500
_FEWEST_BUCKETS, _MOST_BUCKETS = 64, 16_384
_ROWS_AT_ONCE = 2_000_000

_ONLY_THERE = "(rows that the target alone has were not looked at: existing_rows is keep)"

_R = TypeVar("_R")


@dataclass(frozen=True)
class TableComparison:
    """``catch_up``: returns when the sink holds all that is committed by then. ``most``: differences to name.

    ``progress`` hears of the rows compared so far. ``keys_at_once``: suspects that are judged together.
    ``shared``: the target's table has rows of somebody else's, so that one which the target alone has is no difference.
    """

    sink: str
    layout: TableLayout
    pair: TablePair
    chunks: Sequence[Chunk]
    catch_up: Callable[[], object]
    workers: int = 2
    most: int = 20
    keys_at_once: int = 2_000
    shared: bool = False
    progress: Callable[[int], None] = lambda rows: None

    def run(self) -> TableReport:
        try:
            return self._keyed() if self.layout.relation.key else self._bag()
        except LayoutChanged:
            raise SourceUnavailable(
                f"Table {self.layout.relation.qualified_name} was altered, rewritten, truncated or dropped while it was "
                "compared.",
                "Verify it again.",
            ) from None

    def _keyed(self) -> TableReport:
        source, target = self._figures()
        differences: list[Difference] = []
        unjudged: list[Mapping[str, str | None]] = []
        shared = 0
        more = False
        for buckets in _groups(source, target):
            for keys in _slices(suspects(*self._keys(buckets), of_source=self.shared), self.keys_at_once):
                if len(differences) >= self.most:
                    more = True
                    break
                verdicts = judge(self.pair, keys, self.catch_up)
                differences += verdicts.differences
                unjudged += verdicts.unjudged
                shared += len(verdicts.shared)
            if more:
                break
        return self._report(source, differences, unjudged, more, shared)

    def _bag(self) -> TableReport:
        """Two rounds that find the same, or the source was still moving: see ``judging.py``."""
        known: tuple[Figures, Figures] | None = None
        source, target = self._figures()
        for _ in range(ROUNDS):
            if np.array_equal(source, target):
                return self._report(source, [], [])
            self.catch_up()
            target = self.pair.target_figures(self._buckets)
            again = self._source_figures()
            still = np.array_equal(source, again)
            if still and known is not None and all(map(np.array_equal, known, (again, target))):
                return self._bag_report(again, target)
            known, source = ((again, target) if still else None), again
        return self._report(source, [], [{}])

    def _bag_report(self, source: Figures, target: Figures) -> TableReport:
        """Names rows of the first buckets that differ, and says if there are more."""
        buckets, *others = _groups(source, target)
        lacking, extra = bag_differences(*self._keys(buckets))
        kinds: list[tuple[Kind, Counter[Key]]] = [("missing", lacking), ("extra", extra)]
        found = [
            Difference(named(self.pair, row, known=kind == "missing"), kind, rows=count)
            for kind, rows in kinds
            for row, count in rows.items()
        ]
        return self._report(source, found, [], more=bool(others))

    def _report(
        self,
        source: Figures,
        differences: list[Difference],
        unjudged: Sequence[Mapping[str, str | None]],
        more: bool = False,
        shared: int = 0,
    ) -> TableReport:
        relation = self.layout.relation
        return TableReport(
            self.sink, relation.schema, relation.table,
            "differs" if differences else "changing" if unjudged else "equal", rows=int(source[0].sum()),
            differences=tuple(differences[: self.most]), more=more or len(differences) > self.most,
            because=_ONLY_THERE if self.shared else None, unjudged=tuple(unjudged), shared_keys=shared,
        )  # fmt: skip

    @property
    def _buckets(self) -> int:
        """A power of two. Where nobody knows how many rows there are, by the size: some 100 bytes each."""
        known = self.layout.rows_estimated
        rows = known if known is not None else self.layout.bytes // 100
        wanted = max(_FEWEST_BUCKETS, min(_MOST_BUCKETS, rows // _ROWS_PER_BUCKET))
        return 1 << (wanted - 1).bit_length()

    def _figures(self) -> tuple[Figures, Figures]:
        with ThreadPoolExecutor(1) as beside:
            target = beside.submit(self.pair.target_figures, self._buckets)
            return self._source_figures(), target.result()

    def _source_figures(self) -> Figures:
        total, buckets = no_figures(self._buckets), self._buckets
        for figures in self._each_chunk(lambda chunk: self.pair.source_figures(chunk, buckets)):
            total += figures
            self.progress(int(total[0].sum()))
        return total

    def _keys(self, buckets: Sequence[int]) -> tuple[pa.Table, pa.Table]:
        """Of the source and of the target."""
        source = list(self._each_chunk(lambda chunk: self.pair.source_keys(chunk, self._buckets, buckets)))
        return pa.concat_tables(source), self.pair.target_keys(self._buckets, buckets)

    def _each_chunk(self, read: Callable[[Chunk], _R]) -> Iterator[_R]:
        with ThreadPoolExecutor(max(1, min(self.workers, len(self.chunks)))) as pool:
            try:
                yield from pool.map(read, self.chunks)
            finally:
                pool.shutdown(cancel_futures=True)  # after an error, or Ctrl-C, what has not begun need not


def _differing(source: Figures, target: Figures) -> list[int]:
    return [int(bucket) for bucket in np.flatnonzero((source != target).any(axis=0))]


def _groups(source: Figures, target: Figures) -> Iterator[list[int]]:
    """The buckets that differ, as many at a time as hold not too many rows together."""
    group: list[int] = []
    size = 0
    for bucket in _differing(source, target):
        rows = int(max(source[0][bucket], target[0][bucket]))
        if group and size + rows > _ROWS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(bucket)
        size += rows
    if group:
        yield group


def _slices(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    for first in range(0, len(keys), size):
        yield keys[first : first + size]
