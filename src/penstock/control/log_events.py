"""The changes that the log holds, as the events that the ``stdout`` sink would print. A few segments in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import SegmentFile, SegmentName
from penstock.changelog.units import WorkUnit, change_batches
from penstock.changes.batch import ChangeBatch
from penstock.errors import SegmentMissing
from penstock.lsn import LSN, ZERO
from penstock.settings.tables import TableSelection
from penstock.sinks.events import EVENTS
from penstock.sinks.events.formats.json import JsonFormat
from penstock.sinks.events.lines import merged_lines

logger = logging.getLogger(__name__)

_GROUP_BYTES = 8 << 20  # of small segments that are decoded together
_GROUP_SEGMENTS = 1000


class OpenSegments:
    """Segments that follow each other in the log. They stay readable when they are deleted from it."""

    def __init__(self) -> None:
        self._segments: dict[SegmentName, SegmentFile] = {}

    def add(self, name: SegmentName, segment: SegmentFile) -> None:
        self._segments[name] = segment

    def open(self, name: SegmentName) -> SegmentFile:
        return self._segments[name]

    def __len__(self) -> int:
        return len(self._segments)

    def units(self, tables: TableSelection | None) -> list[WorkUnit]:
        """Those of the selected tables, the units of each table together and in order."""
        units = [
            WorkUnit(str(name), entry.relation.qualified_name, entry.relation.oid, 0, 1, entry.rows, entry.bytes)
            for name, segment in self._segments.items()
            for entry in segment.relations
            if tables is None or tables.selects(entry.relation.schema, entry.relation.table)
        ]
        return sorted(units, key=lambda unit: unit.table)


@dataclass(frozen=True)
class LogRange:
    """Which changes: of these tables (None: all, and logical messages), committed at ``first`` to ``last`` inclusive."""

    tables: TableSelection | None = None
    first: LSN = ZERO
    last: LSN | None = None

    def segments(self, log: ChangeLog) -> Iterator[OpenSegments]:
        """In commit order, as many small ones together as are worth decoding at once.

        A segment that retention has deleted meanwhile is left out, as those before it are.
        """
        group, size = OpenSegments(), 0
        for stretch in log.contents().after(self.first):
            if self.last is not None and stretch.start > self.last:
                break
            for name in stretch.segments:
                segment = _opened(log, name)
                if segment is not None:
                    group.add(name, segment)
            size += stretch.bytes
            if size >= _GROUP_BYTES or len(group) >= _GROUP_SEGMENTS:
                yield group
                group, size = OpenSegments(), 0
        if len(group):
            yield group

    def changes(self, segments: OpenSegments) -> Iterator[ChangeBatch]:
        """In commit order within each table."""
        upto = None if self.last is None else LSN(self.last + 1)
        return change_batches(segments, segments.units(self.tables), self.first, upto)


def event_lines(log: ChangeLog, wanted: LogRange, limit: int | None = None) -> Iterator[pa.Buffer]:
    """The events of the changes in commit order, as text: whole lines, many at a time."""
    left = limit
    for segments in wanted.segments(log):
        if left == 0:
            return
        events = _events(wanted, segments)
        if left is not None:
            events = events.slice(0, left)
            left -= len(events)
        yield from merged_lines(events.combine_chunks().to_batches())


def _events(wanted: LogRange, segments: OpenSegments) -> pa.Table:
    encoder = JsonFormat()
    runs = [events for changes in wanted.changes(segments) for _, events in encoder.runs(changes)]
    # Later segments hold what was committed later, so it is enough to sort these.
    return pa.Table.from_batches(runs, EVENTS).sort_by([("commit_lsn", "ascending"), ("sequence", "ascending")])


def segment_lines(log: ChangeLog, wanted: LogRange) -> Iterator[dict[str, Any]]:
    """What the segments hold, one by one; counted are the tables that are wanted."""
    sizes = {entry.name: entry.size for entry in log.directory.entries()}
    for segments in wanted.segments(log):
        by_segment: dict[str, list[WorkUnit]] = {}
        for unit in segments.units(wanted.tables):
            by_segment.setdefault(unit.segment, []).append(unit)
        for segment, units in sorted(by_segment.items()):
            yield _segment_line(segment, units, sizes.get(segment, 0))


def _segment_line(segment: str, units: Sequence[WorkUnit], size: int) -> dict[str, Any]:
    name = SegmentName.parse(segment)
    assert name is not None
    return {
        "name": segment,
        "start": str(name.start),
        "end": str(name.end),
        "rows": sum(unit.rows for unit in units),
        "bytes": size,
        "tables": sorted({unit.table for unit in units}),
    }


def _opened(log: ChangeLog, name: SegmentName) -> SegmentFile | None:
    try:
        return log.open(name)
    except SegmentMissing:
        if any(name in stretch.segments for stretch in log.contents().stretches):
            raise
    logger.info("Segment %s was deleted meanwhile: every sink has it.", name)
    return None
