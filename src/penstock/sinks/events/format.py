"""What an event format is: changes in, lines of JSON out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.changes.batch import ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.sinks.events.json_text import LARGE
from penstock.sinks.events.values import Shape, lines_by_shape, slices

EVENTS = pa.schema([("commit_lsn", pa.uint64()), ("sequence", pa.uint32()), ("line", LARGE)])


@dataclass(frozen=True)
class Position:
    """Where a change stands, for the events that a format puts before it."""

    commit_lsn: LSN
    sequence: int
    xid: int
    commit_time: int  # microseconds since 1970-01-01 UTC


class EventFormat:
    """Base class of all formats. One JSON object per change, without line breaks, encoded a column at a time."""

    def encode(self, changes: ChangeBatch) -> pa.Table:
        """The events of these changes as a table of ``commit_lsn``, ``sequence``, ``line``."""
        return pa.Table.from_batches([events for _, events in self.runs(changes)], EVENTS)

    def runs(self, changes: ChangeBatch) -> Iterator[tuple[Position, pa.RecordBatch]]:
        """The same in pieces of bounded size, each in the order of ``commit_lsn``, ``sequence`` and with its first."""
        if not self.carries(changes.relation):
            return
        for some in slices(_in_order(changes)):
            lines = lines_by_shape(some, self.lines)
            columns = [pa.array(some.commit_lsn), pa.array(some.sequence), lines]
            yield _first(some), pa.RecordBatch.from_arrays(columns, schema=EVENTS)

    def carries(self, relation: Relation) -> bool:
        """Whether the format has a word for this relation's changes."""
        return True

    def lines(self, shape: Shape) -> pa.Array:
        """One line for each change of the shape."""
        raise NotImplementedError

    def schema_line(self, relation: Relation, first: Position) -> str:
        """The event that describes a table, to be sent before its ``first`` change."""
        raise NotImplementedError


def _first(changes: ChangeBatch) -> Position:
    lsn, sequence = LSN(changes.commit_lsn[0]), int(changes.sequence[0])
    return Position(lsn, sequence, int(changes.xid[0]), int(changes.commit_time[0]))


def _in_order(changes: ChangeBatch) -> ChangeBatch:
    """Changes are in commit order as a rule, which costs next to nothing to see; the rows of an import may not be."""
    lsn, sequence = changes.commit_lsn, changes.sequence
    behind = (lsn[1:] < lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (sequence[1:] < sequence[:-1]))
    return changes.take(np.lexsort((sequence, lsn))) if behind.any() else changes
