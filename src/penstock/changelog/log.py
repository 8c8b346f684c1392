"""Reading the change log: which transactions it holds, and which segments hold a range of them."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.changelog.segment import RelationRows, SegmentFile, SegmentName
from penstock.errors import LogCorrupt, LogGap, SegmentMissing
from penstock.lsn import LSN, ZERO
from penstock.storage import Directory

_LOOKS = 3
_LISTING_SECONDS = 1.0  # for which an unchanged directory is not listed again


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
    bytes: int  # of all files, also of those that were merged and are still there
    merged: Sequence[SegmentName] = ()  # segments that were merged into one of the stretches, and not deleted yet

    @property
    def start(self) -> LSN | None:
        return self.stretches[0].start if self.stretches else None

    @property
    def end(self) -> LSN | None:
        return self.stretches[-1].end if self.stretches else None

    def after(self, start: LSN) -> Sequence[Stretch]:
        """The stretches with transactions that end after ``start``."""
        return self.stretches[bisect_right(self.stretches, start, key=lambda stretch: stretch.end) :]


class ChangeLog:
    def __init__(self, uri: str) -> None:
        self.directory = Directory(uri)
        self._relations: dict[SegmentName, Sequence[RelationRows]] = {}
        self._names: dict[str, SegmentName] = {}  # parsed
        self._listing: tuple[LogContents, int, float] | None = None  # with the directory's time then, and ours
        self._union: SegmentFile | None = None  # the last one that was opened in place of a segment merged into it

    def __reduce__(self) -> tuple[type[ChangeLog], tuple[str]]:
        return ChangeLog, (self.directory.uri,)

    def contents(self) -> LogContents:
        """What the directory holds. A hole between two segments raises LogCorrupt.

        A listing is not of one moment: while segments come and go, it may show a later one and not the one before. So a
        hole counts only if the third look in a row shows the same one: while many segments go, each look shows another.
        """
        modified, clock, listing = self.directory.modified(), time.monotonic(), self._listing
        if listing is not None and listing[1] == modified and clock - listing[2] < _LISTING_SECONDS:
            return listing[0]
        contents = self._looked_at()
        self._listing = (contents, modified, clock) if modified is not None else None
        return contents

    def _looked_at(self) -> LogContents:
        seen: list[str] = []
        while True:
            try:
                return self._listed()
            except LogCorrupt as hole:
                seen = [*seen, hole.message] if hole.message in seen else [hole.message]
                if len(seen) == _LOOKS:
                    raise

    def _listed(self) -> LogContents:
        sizes, names = {}, {}
        for entry in self.directory.entries():
            name = self._names.get(entry.name) or SegmentName.parse(entry.name)
            if name is not None:
                names[entry.name] = name
                sizes[name] = entry.size
        self._names = names
        stretches: list[Stretch] = []
        unfinished: list[SegmentName] = []
        merged: list[SegmentName] = []
        for start, same_start in groupby(sorted(sizes), key=lambda name: name.start):
            members = tuple(same_start)
            if stretches and start < stretches[-1].end:
                merged.extend(self._merged_into(stretches[-1], members))
                continue
            if members[-1].whole:  # the longest of those that begin here
                merged.extend(self._merged_into(Stretch(members[-1:], 0), members[:-1]))
                members = members[-1:]
            if not members[-1].complete:
                unfinished.extend(members)
                continue
            if [name.part for name in members] != list(range(len(members))):
                raise LogCorrupt(f"Parts of the transaction after {start} are missing from {self.directory.uri}.")
            if stretches and stretches[-1].end != start:
                raise self._hole(stretches[-1].end, start)
            stretches.append(Stretch(members, sum(sizes[name] for name in members)))
        return LogContents(stretches, unfinished, sum(sizes.values()), merged)

    def _merged_into(self, union: Stretch, names: Sequence[SegmentName]) -> Sequence[SegmentName]:
        for name in names:
            if not union.segments[-1].covers(name):
                raise LogCorrupt(f"Segments {union.segments[-1]} and {name} of {self.directory.uri} overlap.")
        return names

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

    def end_of_stretch_at(self, lsn: LSN) -> LSN:
        """The end of a stretch that ended at ``lsn``, also if it was merged with later ones since."""
        for stretch in self.contents().after(LSN(max(lsn - 1, 0))):
            return stretch.end
        return lsn

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

    def after(self, start: LSN, end: LSN | None = None) -> Sequence[Stretch]:
        """The stretches with transactions after ``start`` and not after ``end``; LogGap if some are no longer there.

        Start 0/0 means wherever the log begins.
        """
        contents = self.contents()
        stretches = [stretch for stretch in contents.after(start) if end is None or stretch.start < end]
        first = contents.start
        if first is not None and first > start > ZERO:
            raise LogGap(f"The change log begins at {first}, but changes after {start} are needed.")
        if end is not None and (not stretches or stretches[-1].end < end):
            raise LogGap(f"The change log {self.directory.uri} does not hold the changes up to {end}.")
        return stretches

    def open(self, name: SegmentName) -> SegmentFile:
        """The segment; or, if it was merged since the caller saw it, its rows in the one that it was merged into."""
        try:
            return SegmentFile(self.directory, name)
        except SegmentMissing:
            union = self._union_with(name)
            if union is None:
                raise
        opened = self._union
        if opened is None or opened.name != union:
            opened = self._union = SegmentFile(self.directory, union)
        return opened.narrowed(name)

    def _union_with(self, name: SegmentName) -> SegmentName | None:
        self._listing = None  # it has changed: a segment is missing
        for stretch in self.contents().after(name.start):
            return stretch.segments[-1] if stretch.segments[-1].covers(name) else None
        return None

    def relations(self, name: SegmentName) -> Sequence[RelationRows]:
        """What a segment holds, of which tables. It never changes, so each is opened once."""
        relations = self._relations.get(name)
        if relations is None:
            if len(self._relations) > 2 * len(self._names):
                current, remembered = set(self._names.values()), list(self._relations.items())
                self._relations = {other: held for other, held in remembered if other in current}
            relations = self._relations[name] = self.open(name).relations
        return relations

    def delete(self, names: Iterable[SegmentName]) -> None:
        for name in names:
            self.directory.delete(str(name))
