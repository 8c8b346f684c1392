"""Reading the change log: which transactions it holds, and which segments hold a range of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.changelog.segment import RelationRows, SegmentFile, SegmentName
from penstock.errors import LogCorrupt, LogGap
from penstock.lsn import LSN, ZERO
from penstock.storage import Directory

_LOOKS = 3
_REMEMBERED = 2000  # segments


@dataclass(frozen=True)
class Stretch:
    """A complete segment and the partial ones of its first transaction: all or nothing for readers."""

    segments: tuple[SegmentName, ...]
    bytes: int

    @property
    def start(self) -> LSN:
        return self.segments[0].start

    @property
    def end(self) -> LSN:
        return self.segments[-1].end

    @property
    def schema_change(self) -> bool:
        return self.segments[0].schema_change

    @property
    def has_schema_change(self) -> bool:
        """Also within its first transaction."""
        return any(segment.schema_change for segment in self.segments)


@dataclass(frozen=True)
class LogContents:
    """What the listing showed at one moment."""

    stretches: Sequence[Stretch]
    unfinished: Sequence[SegmentName]  # parts of a transaction whose end is not there (yet)
    bytes: int

    @property
    def start(self) -> LSN | None:
        return self.stretches[0].start if self.stretches else None

    @property
    def end(self) -> LSN | None:
        return self.stretches[-1].end if self.stretches else None


class ChangeLog:
    def __init__(self, uri: str) -> None:
        self.directory = Directory(uri)
        self._relations: dict[SegmentName, Sequence[RelationRows]] = {}

    def contents(self) -> LogContents:
        """What the directory holds. A hole between two segments raises LogCorrupt.

        A listing is not of one moment: while segments come and go, it may show a later one and not the one before. So a
        hole counts only if the third look in a row shows the same one: while many segments go, each look shows another.
        """
        seen: list[str] = []
        while True:
            try:
                return self._listed()
            except LogCorrupt as hole:
                seen = [*seen, hole.message] if hole.message in seen else [hole.message]
                if len(seen) == _LOOKS:
                    raise

    def _listed(self) -> LogContents:
        sizes = {}
        for entry in self.directory.entries():
            name = SegmentName.parse(entry.name)
            if name is not None:
                sizes[name] = entry.size
        stretches: list[Stretch] = []
        unfinished: list[SegmentName] = []
        for start, members in groupby(sorted(sizes), key=lambda name: name.start):
            names = tuple(members)
            if not names[-1].complete:
                unfinished.extend(names)
                continue
            if [name.part for name in names] != list(range(len(names))):
                raise LogCorrupt(f"Parts of the transaction after {start} are missing from {self.directory.uri}.")
            if stretches and stretches[-1].end != start:
                raise self._hole(stretches[-1].end, start)
            stretches.append(Stretch(names, sum(sizes[name] for name in names)))
        return LogContents(stretches, unfinished, sum(sizes.values()))

    def _hole(self, end: LSN, start: LSN) -> LogCorrupt:
        return LogCorrupt(f"The change log {self.directory.uri} has a hole: nothing between {end} and {start}.")

    def end_of_next_batch(self, start: LSN, max_bytes: int | None, target: LSN | None = None) -> LSN:
        """Where a batch from ``start`` ends: before a schema change, past ``max_bytes``, at ``target`` at the latest.

        ``start`` itself when there is nothing new.
        """
        end, size = start, 0
        for stretch in self.after(start):
            if target is not None and stretch.end > target:
                break
            if end > start and (stretch.schema_change or (max_bytes is not None and size >= max_bytes)):
                break
            end, size = stretch.end, size + stretch.bytes
        return end

    def bytes_after(self, start: LSN) -> int:
        """Of what there is for a batch from ``start``, up to the next schema change.

        Or of its WAL, where that is less: a few rows of each of a hundred tables make a large segment.
        """
        size, end = 0, start
        for number, stretch in enumerate(self.after(start)):
            if number and stretch.schema_change:
                break
            size, end = size + stretch.bytes, stretch.end
        return min(size, end - start)

    def after(self, start: LSN, end: LSN | None = None) -> list[Stretch]:
        """The stretches with transactions after ``start`` and not after ``end``; LogGap if some are no longer there.

        Start 0/0 means wherever the log begins.
        """
        contents = self.contents()
        found = [s for s in contents.stretches if s.end > start and (end is None or s.start < end)]
        first = contents.start
        if first is not None and first > start > ZERO:
            raise LogGap(f"The change log begins at {first}, but changes after {start} are needed.")
        if end is not None and (not found or found[-1].end < end):
            raise LogGap(f"The change log {self.directory.uri} does not hold the changes up to {end}.")
        return found

    def open(self, name: SegmentName) -> SegmentFile:
        return SegmentFile(self.directory, name)

    def relations(self, name: SegmentName) -> Sequence[RelationRows]:
        """What a segment holds, of which tables. It never changes: who asks often opens it once."""
        if name not in self._relations:
            if len(self._relations) >= _REMEMBERED:
                self._relations.clear()
            self._relations[name] = self.open(name).relations
        return self._relations[name]

    def delete(self, names: Iterable[SegmentName]) -> None:
        for name in names:
            self.directory.delete(str(name))
