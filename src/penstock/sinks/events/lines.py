"""The executors' half of a sink that sends events: encode, stage, and say what was staged.

Many runs of events, each in commit order, as one stream of lines in commit order.

Which table definitions a sink has sent, and the `schema` events that are due before the changes of a batch.

What the parts of an import are as events: its rows are `read`, and a table that was sent before is emptied first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.changes.batch import MESSAGES, OLD_NONE, TRUNCATE, ChangeBatch, Int64s, Relation
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.events.format import EVENTS, EventFormat, Position
from penstock.sinks.events.json_text import constant, joined, offsets_of
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


SLICE_BYTES = 16 << 20


def merged_lines(runs: Sequence[pa.RecordBatch]) -> Iterator[pa.Buffer]:
    """The lines of all runs, each ended by a newline, in the order of ``commit_lsn``, ``sequence``.

    Between equals the earlier run comes first. Only positions are held for all rows; lines are read slice by slice.
    """
    runs = [run for run in runs if len(run)]
    if not runs:
        return
    starts = np.concatenate([[0], np.cumsum([len(run) for run in runs])])
    order = _order(runs)
    lengths = np.concatenate([np.diff(offsets_of(run["line"])) for run in runs])
    for picked in _slices(order, lengths):
        yield _text(_gathered(runs, starts, picked))


def _order(runs: Sequence[pa.RecordBatch]) -> Int64s:
    lsn = np.concatenate([run["commit_lsn"].to_numpy() for run in runs])
    sequence = np.concatenate([run["sequence"].to_numpy() for run in runs])
    return np.lexsort((sequence, lsn))


def _slices(order: Int64s, lengths: Int64s) -> Iterator[Int64s]:
    """``order`` cut where another SLICE_BYTES of lines are full; a single line may be longer than that."""
    ends = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + SLICE_BYTES, side="right")))
        yield order[start:stop]
        start = stop


def _gathered(runs: Sequence[pa.RecordBatch], starts: Int64s, picked: Int64s) -> pa.Array:
    """The lines at these rows. Each run is in order, so what is picked of one run is one piece of it."""
    run_of_row = np.searchsorted(starts, picked, side="right") - 1
    used, first, counts = np.unique(run_of_row, return_index=True, return_counts=True)
    low = picked[first] - starts[used]
    pieces = [runs[run]["line"].slice(at, count) for run, at, count in zip(used, low, counts, strict=True)]
    place_of_run = np.zeros(len(runs), np.int64)
    place_of_run[used] = np.cumsum(counts) - counts - low - starts[used]
    return pa.concat_arrays(pieces).take(pa.array(picked + place_of_run[run_of_row]))


def _text(lines: pa.Array) -> pa.Buffer:
    text = joined(lines, constant("\n"))
    offsets = offsets_of(text)
    return text.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


@dataclass(frozen=True)
class Delivery:
    """The events of a batch, as runs in commit order, and the definitions that are announced once they are out."""

    runs: list[pa.RecordBatch]
    announced: dict[str, str]

    @property
    def has_events(self) -> bool:
        return any(len(run) for run in self.runs)


def delivery(
    receipts: Sequence[EventReceipt], event_format: EventFormat, announced: Mapping[str, str], after: LSN | None
) -> Delivery:
    """Everything that the receipts hold, without what was delivered up to ``after``.

    The first run is that of the `schema` events: in a merge that keeps the order of equals, each stands directly before
    its table's first change.
    """
    runs = [
        (relation, *_from(after, first, events))
        for receipt in receipts
        for relation, first, events in receipt.open()
        if after is None or _last_lsn(events) >= after
    ]
    known = dict(announced)
    schema_lines: list[tuple[Position, str]] = []
    for relation, first, _ in sorted(runs, key=lambda run: (run[1].commit_lsn, run[1].sequence)):
        if relation != MESSAGES and known.get(table_name(relation)) != relation.fingerprint:
            known[table_name(relation)] = relation.fingerprint
            schema_lines.append((first, event_format.schema_line(relation, first)))
    return Delivery([_schema_run(schema_lines), *(events for _, _, events in runs)], known)


def _from(after: LSN | None, first: Position, events: pa.RecordBatch) -> tuple[Position, pa.RecordBatch]:
    """What is not delivered yet. ``after`` is the end of a transaction, which its commit's LSN lies before."""
    if after is None or first.commit_lsn >= after:
        return first, events
    start = int(np.searchsorted(events["commit_lsn"].to_numpy(), np.uint64(after)))
    rest = events.slice(start)
    lsn, sequence = rest["commit_lsn"][0].as_py(), rest["sequence"][0].as_py()
    return replace(first, commit_lsn=LSN(lsn), sequence=sequence), rest


def _last_lsn(events: pa.RecordBatch) -> int:
    last: int = events["commit_lsn"][len(events) - 1].as_py()
    return last


def _schema_run(lines: list[tuple[Position, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([position.commit_lsn for position, _ in lines], EVENTS.field("commit_lsn").type),
            pa.array([position.sequence for position, _ in lines], EVENTS.field("sequence").type),
            pa.array([line for _, line in lines], EVENTS.field("line").type),
        ],
        schema=EVENTS,
    )


def table_name(relation: Relation) -> str:
    """By which tables are announced. Quoted, since `a.b`.`c` and `a`.`b.c` are two tables."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in (relation.schema, relation.table))


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
