"""Change batches by hand, for tests.

::

    users = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
    batch = changes(users, [
        ("insert", {"id": 1, "name": "Ada", "bio": "long"}),
        ("update", {"id": 1, "name": "Countess", "bio": UNCHANGED}),
        ("update", {"id": 2, "name": "Countess", "bio": UNCHANGED}, {"id": 1}),     # the key changed: with the old one
        ("delete", None, {"id": 2}),
        ("truncate",),                                                             # or "truncate restart identity"
    ], lsn=0x100)

Values are text as Postgres prints it; integers and booleans may be given as such. A column left out is NULL.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.changes.batch import (
    MESSAGE,
    MESSAGES,
    OLD_FULL,
    OLD_KEY,
    OLD_NONE,
    OP_NAMES,
    ChangeBatch,
    Column,
    Relation,
)


class _Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
"""In a new row: the TOAST value did not change, so Postgres did not send it."""

Value = str | int | None | _Unchanged
Row = Mapping[str, Value]

FIRST_COMMIT_TIME = 1_763_190_160_290_389  # 2025-11-15 07:02:40.290389 UTC

_OPS = {name: op for op, name in OP_NAMES.items()}
_RESTART = " restart identity"
_TYPE_OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "oid": 26, "json": 114, "float4": 700,
    "float8": 701, "varchar": 1043, "date": 1082, "timestamp": 1114, "timestamptz": 1184, "numeric": 1700,
    "uuid": 2950, "jsonb": 3802,
}  # fmt: skip
_TYPE = re.compile(r"(?P<name>\w+)(\((?P<precision>\d+)(,(?P<scale>\d+))?\))?(?P<array>\[\])?")


def relation(
    schema: str,
    table: str,
    columns: Mapping[str, str] | None = None,
    /,
    *,
    key: Sequence[str] = (),
    identity: str = "d",
    oid: int | None = None,
    **more_columns: str,
) -> Relation:
    """A table. Types are written like ``int8``, ``numeric(10,2)``, ``varchar(20)``, ``int4[]``, ``enum``, ``other``.

    Columns that cannot be keywords (odd names, or ``key``, ``identity``, ``oid``) go into ``columns``. ``identity`` is
    pg_class.relreplident: with ``d`` Postgres sends the key of old rows, with ``f`` whole old rows, with ``n`` nothing.
    """
    types = {**(columns or {}), **more_columns}
    identities = {"d": set(key), "i": set(key), "f": set(types), "n": set()}[identity]
    return Relation(
        oid=zlib.crc32(f"{schema}.{table}".encode()) if oid is None else oid,
        schema=schema, table=table, identity=identity, key=tuple(key),
        columns=tuple(column(name, declared, in_identity=name in identities) for name, declared in types.items()),
    )  # fmt: skip


def column(name: str, declared: str, *, in_identity: bool = False) -> Column:
    """A column from its declared type."""
    match = _TYPE.fullmatch(declared)
    if match is None:
        raise ValueError(f"{declared!r} is not a type that this builder knows how to read")
    base, is_array = match["name"], match["array"] is not None
    return Column(
        name=name, type_oid=_TYPE_OIDS.get(base, 0), type_name=declared, modifier=_modifier(match),
        base="array" if is_array else base, element=base if is_array else None, in_identity=in_identity,
    )  # fmt: skip


def _modifier(match: re.Match[str]) -> int:
    """The typmod as Postgres computes it."""
    if match["precision"] is None:
        return -1
    if match["name"] == "numeric":
        return (int(match["precision"]) << 16 | int(match["scale"] or 0)) + 4
    return int(match["precision"]) + 4


def changes(
    relation: Relation,
    rows: Sequence[tuple[Any, ...]],
    *,
    lsn: int | Sequence[int] = 0x100,
    sequence: int | Sequence[int] = 1,
    xid: int = 731,
    commit_time: int = FIRST_COMMIT_TIME,
) -> ChangeBatch:
    """Changes as ``(op, new row, old row)``; what is not there may be None or left out.

    ``lsn`` is the commit's, or one for each change. ``sequence`` is that of the first change, or one for each.
    An old row is a whole one where the relation's identity is ``f``, and a key otherwise.
    """
    full = [(*row, None, None)[:3] for row in rows]
    count = len(full)
    new, old = [row[1] or {} for row in full], [row[2] or {} for row in full]
    sent = OLD_FULL if relation.identity == "f" else OLD_KEY
    sequences = range(sequence, sequence + count) if isinstance(sequence, int) else sequence
    _check_names(relation, [*new, *old])
    return ChangeBatch(
        relation=relation,
        op=np.array([_OPS[row[0].removesuffix(_RESTART)] for row in full], np.uint8),
        commit_lsn=np.array([lsn] * count if isinstance(lsn, int) else lsn, np.uint64),
        sequence=np.array(sequences, np.uint32),
        xid=np.full(count, xid, np.uint32),
        commit_time=np.full(count, commit_time, np.int64),
        new=[_column_of(new, column.name) for column in relation.columns],
        old=[_column_of(old, column.name) for column in relation.columns],
        old_kind=np.array([OLD_NONE if row[2] is None else sent for row in full], np.uint8),
        unchanged=_unchanged(relation, new),
        restarts_identity=_restarts_identity([row[0] for row in full]),
    )


def _restarts_identity(ops: Sequence[str]) -> Any:
    restarts = np.array([op.endswith(_RESTART) for op in ops], bool)
    return restarts if restarts.any() else None


def messages(
    contents: Sequence[tuple[str, bytes]], *, lsn: int = 0x100, sequence: int = 1, xid: int = 731
) -> ChangeBatch:
    """What ``pg_logical_emit_message(true, prefix, content)`` gives."""
    rows = [(OP_NAMES[MESSAGE], {"prefix": prefix, "content": "\\x" + data.hex()}) for prefix, data in contents]
    return changes(MESSAGES, rows, lsn=lsn, sequence=sequence, xid=xid)


def _column_of(rows: Sequence[Row], name: str) -> pa.Array:
    return pa.array([_text(row.get(name)) for row in rows], pa.string())


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, _Unchanged):
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)


def _unchanged(relation: Relation, rows: Sequence[Row]) -> dict[int, Any]:
    masks = {
        index: np.array([row.get(column.name) is UNCHANGED for row in rows], bool)
        for index, column in enumerate(relation.columns)
    }
    return {index: mask for index, mask in masks.items() if mask.any()}


def _check_names(relation: Relation, rows: Sequence[Row]) -> None:
    """A slip in a column's name would otherwise be a silent NULL."""
    known = {column.name for column in relation.columns}
    for row in rows:
        if not known.issuperset(row):
            raise ValueError(f"{relation.qualified_name} has no column {sorted(set(row) - known)}")
