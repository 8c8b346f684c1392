"""Net changes, cast and handed to the driver as Arrow tables whose columns are called c0, c1, … after the relation's."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.changes.batch import Column, Relation
from penstock.changes.net import NetChanges, Position
from penstock.errors import UnrepresentableValue
from penstock.pgoutput.types import Unrepresentable
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.contract import Batch
from penstock.sinks.duckdb.types import as_text, duckdb_values
from penstock.sinks.settings import UnrepresentableSettings
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


_PLAIN = re.compile(r"[a-z_][\w.]*")


class _NotAList(Exception):
    """An array column has a value that is no list of its element's type."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def stage_changes(batch: Batch, changes: NetChanges, policies: UnrepresentableSettings) -> StagedChanges:
    """Of an array column with a value that is no list (several dimensions, another lower bound than 1, an element that DuckDB
    does not have), all values are staged as text, and the relation says so: its column is not an array any more."""
    relation = changes.relation
    while True:
        try:
            return _staged(batch, changes, relation, policies)
        except _NotAList as refused:
            columns = list(relation.columns)
            columns[refused.index] = as_text(columns[refused.index])
            relation = replace(relation, columns=tuple(columns))


def _staged(batch: Batch, changes: NetChanges, relation: Relation, policies: UnrepresentableSettings) -> StagedChanges:
    key = relation.key_indexes
    everything = range(len(relation.columns))

    def cast(arrays: Sequence[pa.Array], indexes: Sequence[int], prefix: str = "c") -> pa.Table:
        values = [_typed(array, relation, index, policies) for array, index in zip(arrays, indexes, strict=True)]
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


def _typed(values: pa.Array, relation: Relation, index: int, policies: UnrepresentableSettings) -> pa.Array:
    """A key never becomes NULL: the row would not be found again, neither by an update nor by a delete."""
    column, where = relation.columns[index], relation.qualified_name
    policy = policies.of(where, column.name)
    in_key = index in relation.key_indexes
    try:
        return duckdb_values(values, column, "error" if policy == "null" and in_key else policy, where)
    except UnrepresentableValue as error:
        if is_list(column):
            raise _NotAList(index) from error
        raise with_setting(error, relation, column, policy) from error


def with_setting(
    error: UnrepresentableValue, relation: Relation, column: Column, policy: Unrepresentable
) -> UnrepresentableValue:
    """With the setting of the sink that lets the column take such values."""
    in_key = column.name in relation.key
    message = error.message
    if policy == "null":
        message += " It is part of the key, which `unrepresentable: null` does not turn into NULL."
    text = f"unrepresentable: {{tables: {{{_key(relation.qualified_name)}: {{{_key(column.name)}: text}}}}}}"
    others = "" if in_key else " (or `null`, which writes NULL for such values)"
    return UnrepresentableValue(
        message,
        f"Set `{text}` on the sink{others}: that column alone becomes text, as Postgres writes it. Or change the value in the "
        "source.",
    )


def _key(name: str) -> str:
    """As a key of a config file."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
