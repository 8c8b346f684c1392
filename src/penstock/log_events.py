"""The changes that the log holds, as the events that the ``stdout`` sink would print. One segment in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.changelog.changes_of_units import change_batches
from penstock.changelog.log import ChangeLog
from penstock.changelog.plan import WorkUnit
from penstock.changelog.segment import SegmentFile, SegmentName
from penstock.changes import ChangeBatch
from penstock.config.tables import TableSelection
from penstock.errors import LogCorrupt
from penstock.lsn import LSN, ZERO
from penstock.sinks.events import EVENTS
from penstock.sinks.events.json_format import JsonFormat
from penstock.sinks.events.merge import merged_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogRange:
    """Which changes: of these tables (None: all, and logical messages), committed at ``first`` to ``last`` inclusive."""

    tables: TableSelection | None = None
    first: LSN = ZERO
    last: LSN | None = None

    def segments(self, log: ChangeLog) -> Iterator[SegmentFile]:
        """In commit order. One that retention has deleted meanwhile is left out, as those before it are."""
        for stretch in log.contents().stretches:
            if stretch.end > self.first and (self.last is None or stretch.start <= self.last):
                for name in stretch.segments:
                    segment = _opened(log, name)
                    if segment is not None:
                        yield segment

    def changes(self, log: ChangeLog, segment: SegmentFile) -> Iterator[ChangeBatch]:
        """In commit order within each table."""
        for batch in change_batches(log, self._units(segment), self.first):
            upto = batch.commit_lsn <= (self.last if self.last is not None else np.iinfo(np.uint64).max)
            some = batch if upto.all() else batch.take(np.flatnonzero(upto))
            if len(some):
                yield some

    def _units(self, segment: SegmentFile) -> list[WorkUnit]:
        return [
            WorkUnit(str(segment.name), found.relation.qualified_name, entry, 0, 1, found.rows, found.bytes)
            for entry, found in enumerate(segment.relations)
            if self.tables is None or self.tables.selects(found.relation.schema, found.relation.table)
        ]


def event_lines(log: ChangeLog, wanted: LogRange, limit: int | None = None) -> Iterator[pa.Buffer]:
    """The events of the changes in commit order, as text: whole lines, many at a time."""
    left = limit
    for segment in wanted.segments(log):
        if left == 0:
            return
        events = _events(log, wanted, segment)
        if left is not None:
            events = events.slice(0, left)
            left -= len(events)
        yield from merged_lines(events.combine_chunks().to_batches())


def _events(log: ChangeLog, wanted: LogRange, segment: SegmentFile) -> pa.Table:
    encoder = JsonFormat()
    runs = [events for changes in wanted.changes(log, segment) for _, events in encoder.runs(changes)]
    # What a later segment holds was sent later, so sorting one by one is enough.
    return pa.Table.from_batches(runs, EVENTS).sort_by([("commit_lsn", "ascending"), ("sequence", "ascending")])


def segment_lines(log: ChangeLog, wanted: LogRange) -> Iterator[dict[str, Any]]:
    """What the segments hold, one by one; counted are the tables that are wanted."""
    sizes = {entry.name: entry.size for entry in log.directory.entries()}
    for segment in wanted.segments(log):
        units = wanted._units(segment)
        if units:
            yield {
                "name": str(segment.name),
                "start": str(segment.name.start),
                "end": str(segment.name.end),
                "rows": sum(unit.rows for unit in units),
                "bytes": sizes.get(str(segment.name), 0),
                "tables": sorted({unit.table for unit in units}),
            }


def _opened(log: ChangeLog, name: SegmentName) -> SegmentFile | None:
    try:
        return log.open(name)
    except LogCorrupt:
        if any(name in stretch.segments for stretch in log.contents().stretches):
            raise
    logger.info("Segment %s was deleted meanwhile: every sink has it.", name)
    return None
