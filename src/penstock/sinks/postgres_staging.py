"""Net changes as text for COPY, made by the executors and handed to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from penstock.changes import Bools, ChangeBatch, Relation, concat
from penstock.net import NetChanges, Position, Positions
from penstock.sinks.contract import Batch
from penstock.sinks.copy_text import copy_lines
from penstock.sinks.staging import Staged, stage

# The columns of a staged table. Where its rows come from is looked at when the target refuses one, and never else.
LINES, LSNS, SEQUENCES = "lines", "commit_lsn", "sequence"
_NET_BYTES = 256 << 20  # of one table's changes, reduced to one row per key at once


@dataclass(frozen=True)
class Lines:
    """Rows for COPY."""

    count: int
    staged: Staged

    def open(self) -> list[pa.Array]:
        return list(self.staged.open().column(LINES).chunks)

    def table(self) -> pa.Table:
        """With the positions; those of an import have none."""
        return self.staged.open()


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
    restarts_identity: bool = False  # TRUNCATE … RESTART IDENTITY


def stage_changes(batch: Batch, changes: NetChanges) -> StagedChanges:
    relation = changes.relation
    count = changes.upsert_count
    partly, kept = _none(count), tuple(changes.unchanged)
    replaces = changes.replaces if changes.replaces is not None else _none(count)

    def handed(kind: str, columns: Sequence[pa.Array], at: Positions | None, rows: Bools | None = None) -> Lines | None:
        if rows is not None:
            if not rows.any():
                return None
            columns = columns if rows.all() else [column.filter(pa.array(rows)) for column in columns]
        if not columns or len(columns[0]) == 0:
            return None
        lines = pa.table({LINES: copy_lines(columns), **(_positions(at, rows) if at and batch.part is None else {})})
        return Lines(lines.num_rows, stage(batch, f"{relation.qualified_name}-{kind}", lines))

    partly_kept, at = None, changes.upserts_at
    if kept:
        partly = np.logical_or.reduce(list(changes.unchanged.values()))
        marks = [pa.array(np.where(changes.unchanged[index], "t", "f")) for index in kept]
        partly_kept = handed("partly", [*changes.upserts, *changes.kept_from, *marks], at, partly)
    return StagedChanges(
        relation,
        changes.truncated_at,
        changes.last_at,
        handed("inserts", changes.upserts, at, ~replaces & ~partly),
        handed("updates", changes.upserts, at, replaces & ~partly),
        handed("deletes", changes.deletes, changes.deletes_at, changes.gone),
        partly_kept,
        kept,
        handed("removed", changes.removed, changes.removed_at),
        restarts_identity=changes.restarts_identity,
    )


def _positions(at: Positions, rows: Bools | None) -> dict[str, pa.Array]:
    everything = rows is None or rows.all()
    return {
        LSNS: pa.array(at.commit_lsn if everything else at.commit_lsn[rows]),
        SEQUENCES: pa.array(at.sequence if everything else at.sequence[rows]),
    }


def _none(count: int) -> Bools:
    return np.zeros(count, np.bool_)


def joined(changes: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """Changes of one definition that come one after the other, together: so that each key is written once."""
    for _, some in groupby(changes, key=lambda change: change.relation):
        held: list[ChangeBatch] = []
        size = 0
        for change in some:
            if held and size + change.nbytes > _NET_BYTES:
                yield concat(held)
                held, size = [], 0
            held.append(change)
            size += change.nbytes
        yield concat(held)
