"""The executors' half of a sink that sends events: encode, stage, and say what was staged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.changes import ChangeBatch, Relation
from penstock.sinks.contract import Batch
from penstock.sinks.events.format import EVENTS, EventFormat, Position
from penstock.sinks.staging import Staged, stage

PART_BYTES = 32 << 20  # of lines that an executor holds before it stages them


@dataclass(frozen=True)
class Run:
    """Events of one relation in commit order: one record batch of the staged data."""

    relation: int  # index into the receipt's relations
    first: Position


@dataclass(frozen=True)
class EventReceipt:
    """``runs`` are those of all parts, one after the other."""

    parts: tuple[Staged, ...]
    relations: tuple[Relation, ...]
    runs: tuple[Run, ...]

    def open(self) -> Iterator[tuple[Relation, Position, pa.RecordBatch]]:
        """The runs with their events."""
        batches = (batch for part in self.parts for batch in part.open().to_batches())
        for run, events in zip(self.runs, batches, strict=True):
            yield self.relations[run.relation], run.first, events


def stage_events(batch: Batch, changes: Iterator[ChangeBatch], event_format: EventFormat) -> EventReceipt:
    """Encodes the changes and stages their events, never holding more than a part of them."""
    parts: list[Staged] = []
    relations: dict[Relation, int] = {}
    runs: list[Run] = []
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    for some in changes:
        for first, events in event_format.runs(some):
            runs.append(Run(relations.setdefault(some.relation, len(relations)), first))
            pending.append(events)
            pending_bytes += events.nbytes
            if pending_bytes >= PART_BYTES:
                parts.append(_part(batch, pending))
                pending, pending_bytes = [], 0
    if pending:
        parts.append(_part(batch, pending))
    return EventReceipt(tuple(parts), tuple(relations), tuple(runs))


def _part(batch: Batch, runs: list[pa.RecordBatch]) -> Staged:
    return stage(batch, "events", pa.Table.from_batches(runs, EVENTS))
