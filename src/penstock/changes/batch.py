"""The values that everything passes around: a relation (a table as Postgres described it) and a batch of its changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Operations, by the byte that pgoutput uses for them.
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = (ord(c) for c in "IUDTM")
READ = ord("R")  # a row of an import
OP_NAMES = {
    INSERT: "insert", UPDATE: "update", DELETE: "delete", TRUNCATE: "truncate", MESSAGE: "message", READ: "read",
}  # fmt: skip

# What Postgres sent of the old row, per change.
OLD_NONE, OLD_KEY, OLD_FULL = 0, ord("K"), ord("O")

OWN_SCHEMA = "penstock"  # of Penstock's tables on the source

UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


def is_schema_log(schema: str, table: str) -> bool:
    return (schema, table) == (OWN_SCHEMA, "schema_log")


@dataclass(frozen=True)
class Column:
    """A column with its type, resolved through domains so that any executor can cast it without a catalog.

    ``base`` is the pg_catalog name of the type below all domains (``int4``, ``numeric``, ``timestamptz``, …), or
    ``array`` (then ``element`` is the element's base), ``enum``, or ``other`` for what stays text whatever happens.
    ``modifier`` is the typmod that applies to ``base`` (or to ``element``); -1 when there is none.
    """

    name: str
    type_oid: int
    type_name: str  # as declared, for people: numeric(10,2), public.mood, integer[]
    base: str
    modifier: int = -1
    element: str | None = None
    in_identity: bool = False  # Postgres sends its old value with updates of the key and with deletes


@dataclass(frozen=True)
class Relation:
    """A table as it was when its changes were written. ``key``: names of the columns that identify a row, () if none."""

    oid: int
    schema: str
    table: str
    identity: str  # d(efault) n(othing) f(ull) i(ndex): pg_class.relreplident
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def is_own(self) -> bool:
        """One of Penstock's tables on the source."""
        return self.schema == OWN_SCHEMA

    @property
    def is_schema_log(self) -> bool:
        """The table whose rows are schema changes: ``penstock.schema_changes``."""
        return is_schema_log(self.schema, self.table)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal definitions, wherever computed."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        positions = {column.name: index for index, column in enumerate(self.columns)}
        return tuple(positions[name] for name in self.key)

    @cached_property
    def columns_by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Relation:
        columns = tuple(Column(**column) for column in data["columns"])
        return cls(**{**data, "columns": columns, "key": tuple(data["key"])})


# `pg_logical_emit_message` as a relation, so that messages travel like changes. Their op is MESSAGE.
MESSAGES = Relation(
    oid=0, schema="", table="", identity="n",
    columns=(Column("prefix", 25, "text", "text"), Column("content", 17, "bytea", "bytea")),
)  # fmt: skip


@dataclass(frozen=True)
class ChangeBatch:
    """Changes of one relation in commit order; row i of every member belongs to change i.

    Values are Postgres's own text form: lossless for every type. ``pgoutput.types.typed`` casts on demand.
    """

    relation: Relation
    op: UInt8s
    commit_lsn: UInt64s
    sequence: UInt32s  # index in the transaction, from 1
    xid: UInt32s
    commit_time: Int64s  # microseconds since 1970-01-01 UTC
    new: Sequence[pa.Array]  # one string array per column; NULL where the change has no new row (delete, truncate)
    old: Sequence[pa.Array]  # likewise; NULL where Postgres sent no old value
    old_kind: UInt8s  # OLD_NONE, OLD_KEY or OLD_FULL
    unchanged: dict[int, Bools] = field(default_factory=dict)  # column index -> rows whose TOAST value was not sent
    restarts_identity: Bools | None = None  # of TRUNCATE: with RESTART IDENTITY; None: of no row
    section: int = 0  # a command of the schema log lies between two: values of one type may differ in their text

    def __len__(self) -> int:
        return len(self.op)

    @property
    def nbytes(self) -> int:
        return int(sum(array.nbytes for array in (*self.new, *self.old))) + 25 * len(self)

    def take(self, rows: npt.NDArray[Any]) -> ChangeBatch:
        """The changes at these row numbers, in this order."""
        indexes = pa.array(rows)
        return ChangeBatch(
            self.relation, self.op[rows], self.commit_lsn[rows], self.sequence[rows], self.xid[rows],
            self.commit_time[rows], [a.take(indexes) for a in self.new], [a.take(indexes) for a in self.old],
            self.old_kind[rows], {column: mask[rows] for column, mask in self.unchanged.items() if mask[rows].any()},
            self.restarts_identity[rows] if self.restarts_identity is not None else None, self.section,
        )  # fmt: skip


def concat(batches: Sequence[ChangeBatch]) -> ChangeBatch:
    """One batch of all these changes of one relation, in this order."""
    if len(batches) == 1:
        return batches[0]
    unchanged = {
        column: np.concatenate([batch.unchanged.get(column, np.zeros(len(batch), np.bool_)) for batch in batches])
        for column in sorted({column for batch in batches for column in batch.unchanged})
    }
    return ChangeBatch(
        batches[0].relation,
        np.concatenate([batch.op for batch in batches]),
        np.concatenate([batch.commit_lsn for batch in batches]),
        np.concatenate([batch.sequence for batch in batches]),
        np.concatenate([batch.xid for batch in batches]),
        np.concatenate([batch.commit_time for batch in batches]),
        [pa.concat_arrays(columns) for columns in zip(*(batch.new for batch in batches), strict=True)],
        [pa.concat_arrays(columns) for columns in zip(*(batch.old for batch in batches), strict=True)],
        np.concatenate([batch.old_kind for batch in batches]),
        unchanged,
        _concat_restarts(batches),
        batches[0].section,
    )


def _concat_restarts(batches: Sequence[ChangeBatch]) -> Bools | None:
    if all(batch.restarts_identity is None for batch in batches):
        return None
    none_of = (np.zeros(len(batch), np.bool_) for batch in batches)
    masks = (batch.restarts_identity for batch in batches)
    return np.concatenate([none if mask is None else mask for mask, none in zip(masks, none_of, strict=True)])
