"""Net changes, cast and handed to the driver as Arrow tables whose columns are called c0, c1, … after the relation's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.changes import Relation
from penstock.errors import UnrepresentableValue
from penstock.net import NetChanges, Position
from penstock.pgoutput.types import Unrepresentable, typed
from penstock.sinks.contract import Batch
from penstock.sinks.staging import Staged, stage


@dataclass(frozen=True)
class StagedChanges:
    """What ``net()`` says, ready for SQL. Members are None where there is nothing of the kind."""

    relation: Relation
    truncated_at: Position | None
    last_at: Position
    inserts: Staged | None = None  # c0 … of all columns
    deletes: Staged | None = None  # c<i> of the key columns
    partly_kept: Staged | None = None  # like inserts, with k<i>: the key to look under, and u<i>: keep column i
    removed: Staged | None = None  # c0 … of all columns; one row for each row to remove
    bare_rows: int = 0  # of a table without columns: rows that come; negative: that go

    @property
    def only_inserts(self) -> bool:
        return self.truncated_at is None and not (self.deletes or self.partly_kept or self.removed or self.bare_rows)


def stage_changes(batch: Batch, changes: NetChanges, unrepresentable: Unrepresentable) -> StagedChanges:
    relation, key = changes.relation, changes.relation.key_indexes
    everything = range(len(relation.columns))

    def cast(arrays: Sequence[pa.Array], indexes: Sequence[int], prefix: str = "c") -> pa.Table:
        values = [_typed(array, relation, index, unrepresentable) for array, index in zip(arrays, indexes, strict=True)]
        return pa.table(values, names=[f"{prefix}{index}" for index in indexes])

    def handed(kind: str, table: pa.Table) -> Staged | None:
        return stage(batch, f"{relation.qualified_name}-{kind}", table) if table.num_rows else None

    upserts = cast(changes.upserts, everything) if changes.upserts else pa.table({})
    partly = None
    if changes.unchanged:
        rows = np.logical_or.reduce(list(changes.unchanged.values()))
        marks = pa.table({f"u{i}": pa.array(mask) for i, mask in changes.unchanged.items()})
        keys = cast(changes.kept_from, key, "k")
        whole = pa.table(upserts.columns + marks.columns + keys.columns,
                         names=upserts.column_names + marks.column_names + keys.column_names)  # fmt: skip
        partly = handed("partly", whole.filter(pa.array(rows)))
        upserts = upserts.filter(pa.array(~rows))
    return StagedChanges(
        relation,
        changes.truncated_at,
        changes.last_at,
        handed("inserts", upserts),
        handed("deletes", cast(changes.deletes, key)) if key else None,
        partly,
        handed("removed", cast(changes.removed, everything)) if changes.removed else None,
        changes.bare_rows,
    )


def _typed(values: pa.Array, relation: Relation, index: int, unrepresentable: Unrepresentable) -> pa.Array:
    """A key never becomes NULL: the row would not be found again, neither by an update nor by a delete."""
    column, where = relation.columns[index], relation.qualified_name
    if unrepresentable != "null" or index not in relation.key_indexes:
        return typed(values, column, unrepresentable, where=where)
    try:
        return typed(values, column, "error", where=where)
    except UnrepresentableValue as error:
        raise UnrepresentableValue(
            f"{error.message} It is part of the key, which `unrepresentable: null` does not turn into NULL.",
            "Set `unrepresentable: text` on the sink and fill it afresh, or mend the value in the source.",
        ) from error
