"""What the parts of an import are as events: its rows are `read`, and a table that was sent before is emptied first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.changes import OLD_NONE, TRUNCATE, ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.events.announcements import table_name
from penstock.sinks.events.format import EventFormat
from penstock.sinks.events.receipt import EventReceipt, stage_events


def receipts_of_part(
    batch: Batch,
    part: ImportPart,
    receipts: Sequence[EventReceipt],
    event_format: EventFormat,
    announced: Mapping[str, str],
) -> Sequence[EventReceipt]:
    """What is due with the part.

    An import begins with a `truncate` where readers may have rows of the table: from an earlier import, from one that was
    given up, or from the stream. So whoever applies all events in their order has the table in the end.
    """
    if part.merged is not None:  # whose rows alone go, no event can say
        return receipts
    if part.phase != "begin" or not (part.again or table_name(part.relation) in announced):
        return receipts
    return [*receipts, stage_events(batch, iter([_truncate(part.relation, batch.end)]), event_format)]


def _truncate(relation: Relation, lsn: LSN) -> ChangeBatch:
    """No transaction did it, so it has the sink's position and the present time."""
    nothing = [pa.nulls(1, pa.string())] * len(relation.columns)
    return ChangeBatch(
        relation, np.array([TRUNCATE], np.uint8), np.array([lsn], np.uint64), np.zeros(1, np.uint32),
        np.zeros(1, np.uint32), np.array([time.time_ns() // 1000], np.int64), nothing, nothing,
        np.array([OLD_NONE], np.uint8),
    )  # fmt: skip
