"""The typed stream of one table: its columns as Spark types, and beside them what happened to the row.

``_op`` (insert, update, delete, truncate), ``_lsn``, ``_sequence``, ``_xid``, ``_commit_time``, ``_unchanged`` (names of
columns whose TOAST value Postgres did not send). A delete carries the values that Postgres sent of the old row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import ValidationError

from penstock.changelog.log import ChangeLog
from penstock.changelog.units import WorkUnit, change_batches
from penstock.changes.batch import DELETE, OP_NAMES, ChangeBatch, Column, Relation
from penstock.errors import ConfigError, UnrepresentableValue
from penstock.lsn import LSN
from penstock.pgoutput.types import Unrepresentable, arrow_type, typed
from penstock.sinks.settings import UnrepresentableSettings

_CHANGE_FIELDS = [
    pa.field("_op", pa.string()),
    pa.field("_lsn", pa.int64()),
    pa.field("_sequence", pa.int32()),
    pa.field("_xid", pa.int64()),
    pa.field("_commit_time", pa.timestamp("us", "UTC")),
    pa.field("_unchanged", pa.list_(pa.string())),
]


@dataclass(frozen=True)
class TypedTable:
    """A table as its newest definition in the log says. Rows of older definitions are given this shape."""

    relation: Relation
    policies: UnrepresentableSettings

    @classmethod
    def find(cls, log: ChangeLog, table: str, unrepresentable: str) -> TypedTable:
        name = table if "." in table else f"public.{table}"
        policies = _policies(name, unrepresentable)
        for stretch in reversed(log.contents().stretches):
            for segment in reversed(stretch.segments):
                for entry in log.relations(segment):
                    if entry.relation.qualified_name == name:
                        return cls(entry.relation, policies)
        raise ConfigError(f"The log {log.directory.uri} holds no change of table {name}, so its columns are not known.")

    @property
    def name(self) -> str:
        return self.relation.qualified_name

    def arrow_schema(self) -> pa.Schema:
        columns = [pa.field(c.name, arrow_type(c, self._policy(c))) for c in self.relation.columns]
        return pa.schema(columns + _CHANGE_FIELDS)

    def read(self, log: ChangeLog, units: Sequence[WorkUnit], after: LSN, upto: LSN) -> Iterator[pa.RecordBatch]:
        for batch in change_batches(log, units, after, upto):
            yield self._record_batch(batch)

    def _record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        deleted = pa.array(batch.op == DELETE)
        columns = [self._column(batch, column, deleted) for column in self.relation.columns]
        names = pa.array([OP_NAMES[op] for op in OP_NAMES])
        places = np.searchsorted(sorted(OP_NAMES), batch.op)
        sorted_names = names.take(pa.array(np.argsort(list(OP_NAMES))))
        about = [
            sorted_names.take(pa.array(places)),
            pa.array(batch.commit_lsn.astype(np.int64)),
            pa.array(batch.sequence.astype(np.int32)),
            pa.array(batch.xid.astype(np.int64)),
            pa.array(batch.commit_time).cast(pa.timestamp("us", "UTC")),
            _unchanged_names(batch),
        ]
        return pa.RecordBatch.from_arrays(columns + about, schema=self.arrow_schema())

    def _column(self, batch: ChangeBatch, column: Column, deleted: pa.Array) -> pa.Array:
        """By name, from the new row or, for a delete, the old one; NULL where the definition lacked the column."""
        for index, there in enumerate(batch.relation.columns):
            if there.name == column.name:
                text = pc.if_else(deleted, batch.old[index], batch.new[index])
                return self._typed(text, column)
        return pa.nulls(len(batch), arrow_type(column, self._policy(column)))

    def _typed(self, text: pa.StringArray, column: Column) -> pa.Array:
        try:
            return typed(text, column, self._policy(column), where=self.name)
        except UnrepresentableValue as error:
            remedy = json.dumps({column.name: "text"}, ensure_ascii=False)
            raise UnrepresentableValue(
                f"{error.message} To read that column as text: option unrepresentable = {remedy}"
            ) from error

    def _policy(self, column: Column) -> Unrepresentable:
        return self.policies.of(self.name, column.name)


def _policies(table: str, option: str) -> UnrepresentableSettings:
    """Of one table: a word for all its columns, or a mapping from some of them to words."""
    try:
        return UnrepresentableSettings.model_validate({"tables": {table: yaml.safe_load(option)}})
    except (ValidationError, yaml.YAMLError):
        raise ConfigError(
            f'option "unrepresentable" is {option!r}; use error, null or text, or name columns: {{"tags": "text"}}.'
        ) from None


def _unchanged_names(batch: ChangeBatch) -> pa.Array:
    masks = sorted(batch.unchanged.items())
    counts = np.zeros(len(batch), np.int32)
    for _, mask in masks:
        counts += mask
    if not masks:
        return pa.nulls(len(batch), pa.list_(pa.string()))
    stacked = np.stack([mask for _, mask in masks], axis=1)
    names = np.array([batch.relation.columns[index].name for index, _ in masks], dtype=object)
    flat = pa.array(np.tile(names, len(batch))[stacked.ravel()], pa.string())
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return pc.if_else(pa.array(counts > 0), lists, pa.scalar(None, lists.type))
