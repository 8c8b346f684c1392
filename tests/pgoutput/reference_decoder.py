"""pgoutput's row changes decoded one by one, in the plainest way: what the vectorised decoder is held against."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import DecodeError
from penstock.testing.change_batches import UNCHANGED, _Unchanged

Decoded = str | None | _Unchanged


@dataclass(frozen=True)
class Change:
    op: str
    new: list[Decoded] | None
    old: list[Decoded] | None
    old_kind: str


def decode_one(table: Relation, payload: bytes) -> Change:
    try:
        return _decode(table, payload)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise DecodeError(str(error)) from error


def _decode(table: Relation, payload: bytes) -> Change:
    op, at, old, old_kind, new = chr(payload[0]), 5, None, "", None
    if op == "T":
        (count,) = struct.unpack_from("!I", payload, 1)
        _expect(len(payload) == 6 + 4 * count)
        return Change(op, None, None, "")
    _expect(op in "IUD")
    if op in "UD" and chr(payload[at]) in "KO":
        old_kind = chr(payload[at])
        old, at = _tuple(table, payload, at + 1)
    _expect(op != "D" or bool(old_kind))
    if op in "IU":
        _expect(chr(payload[at]) == "N")
        new, at = _tuple(table, payload, at + 1)
    _expect(at == len(payload))
    return Change(op, _with_key(table, new, old), old, old_kind)


def _with_key(table: Relation, new: list[Decoded] | None, old: list[Decoded] | None) -> list[Decoded] | None:
    for index in table.key_indexes if new else ():
        assert new is not None
        if new[index] is UNCHANGED:
            _expect(old is not None)
            new[index] = old[index] if old else None
    return new


def _tuple(table: Relation, payload: bytes, at: int) -> tuple[list[Decoded], int]:
    (count,) = struct.unpack_from("!H", payload, at)
    _expect(count == len(table.columns))
    at, values = at + 2, list[Decoded]()
    for _ in range(count):
        kind = chr(payload[at])
        at += 1
        if kind == "t":
            (length,) = struct.unpack_from("!I", payload, at)
            _expect(at + 4 + length <= len(payload))
            values.append(payload[at + 4 : at + 4 + length].decode())
            at += 4 + length
        else:
            _expect(kind in "nu")
            values.append(None if kind == "n" else UNCHANGED)
    return values, at


def _expect(condition: bool) -> None:
    if not condition:
        raise DecodeError("not as documented")


def changes_of(batch: ChangeBatch) -> list[Change]:
    """A decoded batch in the reference's form."""
    new, old = ([array.to_pylist() for array in arrays] for arrays in (batch.new, batch.old))
    return [
        Change(
            chr(op),
            [_value(batch, new, column, row) for column in range(len(new))] if chr(op) in "IU" else None,
            [values[row] for values in old] if batch.old_kind[row] else None,
            chr(batch.old_kind[row]) if batch.old_kind[row] else "",
        )
        for row, op in enumerate(batch.op)
    ]


def _value(batch: ChangeBatch, new: list[list[str | None]], column: int, row: int) -> Decoded:
    if column in batch.unchanged and batch.unchanged[column][row]:
        assert new[column][row] is None
        return UNCHANGED
    return new[column][row]


def old_values(change: Change) -> Change:
    """An old row never has unchanged values in reality; if one is sent, it reads as NULL."""
    old = None if change.old is None else [None if value is UNCHANGED else value for value in change.old]
    return Change(change.op, change.new, old, change.old_kind)
