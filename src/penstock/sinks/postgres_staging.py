"""Net changes as text for COPY, made by the executors and handed to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.changes import Bools, Relation
from penstock.net import NetChanges, Position
from penstock.sinks.contract import Batch
from penstock.sinks.copy_text import copy_lines
from penstock.sinks.staging import Staged, stage

LINES = "lines"  # the one column of a staged table


@dataclass(frozen=True)
class Lines:
    """Rows for COPY."""

    count: int
    staged: Staged

    def open(self) -> list[pa.Array]:
        return list(self.staged.open().column(LINES).chunks)


@dataclass(frozen=True)
class StagedChanges:
    """What ``net()`` says, ready for COPY. Members are None where there is nothing of the kind."""

    relation: Relation
    truncated_at: Position | None
    last_at: Position
    inserts: Lines | None = None  # all columns: rows with keys that the target has not
    updates: Lines | None = None  # all columns: rows with keys that the target has
    deletes: Lines | None = None  # key columns
    partly_kept: Lines | None = None  # all columns, the key to look under, and for each of ``kept``: keep it
    kept: tuple[int, ...] = ()
    removed: Lines | None = None  # all columns; one row for each row to remove
    turn: int = 0  # how many of the same table and task come before it


def stage_changes(batch: Batch, changes: NetChanges) -> StagedChanges:
    relation = changes.relation
    count = changes.upsert_count
    partly, kept = _none(count), tuple(changes.unchanged)
    replaces = changes.replaces if changes.replaces is not None else _none(count)

    def handed(kind: str, columns: Sequence[pa.Array], rows: Bools | None = None) -> Lines | None:
        if rows is not None:
            if not rows.any():
                return None
            columns = columns if rows.all() else [column.filter(pa.array(rows)) for column in columns]
        if not columns or len(columns[0]) == 0:
            return None
        lines = pa.table({LINES: copy_lines(columns)})
        return Lines(lines.num_rows, stage(batch, f"{relation.qualified_name}-{kind}", lines))

    partly_kept = None
    if kept:
        partly = np.logical_or.reduce(list(changes.unchanged.values()))
        marks = [pa.array(np.where(changes.unchanged[index], "t", "f")) for index in kept]
        partly_kept = handed("partly", [*changes.upserts, *changes.kept_from, *marks], partly)
    return StagedChanges(
        relation,
        changes.truncated_at,
        changes.last_at,
        handed("inserts", changes.upserts, ~replaces & ~partly),
        handed("updates", changes.upserts, replaces & ~partly),
        handed("deletes", changes.deletes, changes.gone),
        partly_kept,
        kept,
        handed("removed", changes.removed),
    )


def _none(count: int) -> Bools:
    return np.zeros(count, np.bool_)
