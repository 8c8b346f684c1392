"""Net changes, cast to the types of a target and handed to the driver as Arrow tables.

For every mirror that stores typed values. Columns are called c0, c1, … in the order of the relation's columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.changes.batch import Column, Relation
from penstock.changes.net import NetChanges, Position
from penstock.errors import UnrepresentableValue
from penstock.pgoutput.types import Unrepresentable
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.contract import Batch
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


Cast = Callable[[pa.Array, Column, Unrepresentable, str], pa.Array]
"""A column's text as values of the target's type. The last argument names the table, for the error UnrepresentableValue."""

_PLAIN_KEY = re.compile(r"[a-z_][\w.]*")


class _NotAList(Exception):
    """An array column has a value that the target cannot hold as a list."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def stage_changes(batch: Batch, changes: NetChanges, policies: UnrepresentableSettings, cast: Cast) -> StagedChanges:
    """Casts and stages net changes.

    An array may not be a list: it has several dimensions, a lower bound other than 1, or an element that the target cannot
    hold. Then all values of that column are staged as text, and the column of the staged relation is not an array.
    """
    relation = changes.relation
    while True:
        try:
            return _Staging(batch, relation, policies, cast).staged(changes)
        except _NotAList as error:
            columns = list(relation.columns)
            columns[error.index] = as_text(columns[error.index])
            relation = replace(relation, columns=tuple(columns))


def as_text(column: Column) -> Column:
    """The same column, whose values stay Postgres's text."""
    return replace(column, base="other", element=None)


@dataclass(frozen=True)
class _Staging:
    batch: Batch
    relation: Relation
    policies: UnrepresentableSettings
    cast: Cast

    def staged(self, changes: NetChanges) -> StagedChanges:
        key, all_columns = self.relation.key_indexes, range(len(self.relation.columns))
        upserts = self._typed(changes.upserts, all_columns) if changes.upserts else pa.table({})
        partly_kept = None
        if changes.unchanged:
            is_partly_kept = np.logical_or.reduce(list(changes.unchanged.values()))
            marks = pa.table({f"u{index}": pa.array(mask) for index, mask in changes.unchanged.items()})
            kept_from = self._typed(changes.kept_from, key, "k")
            rows = pa.table(
                upserts.columns + marks.columns + kept_from.columns,
                names=upserts.column_names + marks.column_names + kept_from.column_names,
            )
            partly_kept = self._hand_over("partly", rows.filter(pa.array(is_partly_kept)))
            upserts = upserts.filter(pa.array(~is_partly_kept))
        return StagedChanges(
            self.relation,
            changes.truncated_at,
            changes.last_at,
            self._hand_over("inserts", upserts),
            self._hand_over("deletes", self._typed(changes.deletes, key)) if key else None,
            partly_kept,
            self._hand_over("removed", self._typed(changes.removed, all_columns)) if changes.removed else None,
            changes.bare_rows,
        )

    def _hand_over(self, kind: str, rows: pa.Table) -> Staged | None:
        return stage(self.batch, f"{self.relation.qualified_name}-{kind}", rows) if rows.num_rows else None

    def _typed(self, texts: Sequence[pa.Array], indexes: Sequence[int], prefix: str = "c") -> pa.Table:
        values = [self._typed_column(text, index) for text, index in zip(texts, indexes, strict=True)]
        return pa.table(values, names=[f"{prefix}{index}" for index in indexes])

    def _typed_column(self, text: pa.Array, index: int) -> pa.Array:
        """A key never becomes NULL: neither an update nor a delete would find the row again."""
        column, table = self.relation.columns[index], self.relation.qualified_name
        policy = self.policies.of(table, column.name)
        in_key = index in self.relation.key_indexes
        try:
            return self.cast(text, column, "error" if policy == "null" and in_key else policy, table)
        except UnrepresentableValue as error:
            if is_list(column):
                raise _NotAList(index) from error
            raise with_setting(error, self.relation, column, policy) from error


def with_setting(
    error: UnrepresentableValue, relation: Relation, column: Column, policy: Unrepresentable
) -> UnrepresentableValue:
    """The error with the setting that lets the column take such values as its advice."""
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
    return name if _PLAIN_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)
