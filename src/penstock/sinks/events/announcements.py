"""Which table definitions a sink has sent, and the `schema` events that are due before the changes of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.changes import MESSAGES, Relation
from penstock.lsn import LSN
from penstock.sinks.events.format import EVENTS, EventFormat, Position
from penstock.sinks.events.receipt import EventReceipt


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
