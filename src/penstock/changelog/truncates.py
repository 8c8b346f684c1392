"""Whether a table was truncated, by what the change log holds of it."""

from __future__ import annotations

from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import RelationRows, SegmentName, between, has_truncate
from penstock.lsn import LSN


def truncated_since(log: ChangeLog, oid: int, start: LSN) -> bool:
    """Whether the log has a TRUNCATE of the table in a transaction that ended after ``start``."""
    contents = log.contents()
    stretches = log.after(start) if contents.end is not None and contents.end > start else []
    return any(
        _truncates_after(log, name, entry, start)
        for stretch in stretches
        for name in stretch.segments
        for entry in log.relations(name)
        if entry.truncates and entry.relation.oid == oid
    )


def _truncates_after(log: ChangeLog, name: SegmentName, entry: RelationRows, start: LSN) -> bool:
    if name.start >= start:
        return True
    segment = log.open(name)
    return any(has_truncate(between(rows, start)) for rows in segment.rows(segment.entry(entry.relation.oid)))
