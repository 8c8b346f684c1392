"""Staged changes of a table, row by row: for when the target refuses some of them. Not on the way of those it takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Int64s, Relation
from penstock.lsn import LSN
from penstock.sinks.postgres.staging import KEPT, LINES, LSNS, NULL, SEQUENCES, Lines, StagedChanges, copy_lines
from penstock.sinks.staging import Staged

_OPS = {"removed": "delete", "deletes": "delete", "partly_kept": "update", "updates": "update", "inserts": "insert"}
KINDS = tuple(_OPS)  # in the order in which they are applied
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}

_NO_LINES = pa.nulls(0, pa.string())  # not pa.array, which brings pandas

Values = Mapping[str, str | None]  # by the column's name, as Postgres writes them


@dataclass(frozen=True)
class HeldLines(Lines):
    """Rows for COPY that are in memory."""

    held: pa.Table | None = None

    def table(self) -> pa.Table:
        assert self.held is not None
        return self.held

    @classmethod
    def of(cls, table: pa.Table) -> HeldLines:
        return cls(len(table), Staged(None), table)


@dataclass(frozen=True)
class RowChange:
    """One row of them. ``row``: None of a delete by key. ``unchanged``: columns whose value nobody knows."""

    relation: Relation
    op: str
    key: Values
    row: Values | None
    lsn: LSN
    sequence: int
    unchanged: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = self.key or self.row or {}
        where = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in named.items())
        return f"{self.op} of {self.relation.qualified_name} where {where}"


class Rows:
    """The rows of staged changes, numbered in the order in which they are applied.

    They may be applied some now and some later, so none may keep a value of a row with another key: see ``postgres_kept``.
    """

    def __init__(self, change: StagedChanges) -> None:
        self.change = change
        found = [lines.table() if (lines := getattr(change, kind)) else None for kind in KINDS]
        self._lines = [_column(table, LINES) for table in found]
        partly = found[KINDS.index("partly_kept")]
        self._kept = [_column(partly, f"{KEPT}{number}") for number in range(len(change.kept_groups))]
        self._at = [table.select([LSNS, SEQUENCES]) if table is not None else None for table in found]
        self._bounds = np.cumsum([0, *map(len, self._lines)])

    def __len__(self) -> int:
        return int(self._bounds[-1])

    @property
    def relation(self) -> Relation:
        return self.change.relation

    def some(self, numbers: Int64s) -> StagedChanges:
        """These rows alone; ``numbers`` are sorted."""
        cuts = np.searchsorted(numbers, self._bounds)
        parts: dict[str, Any] = dict.fromkeys(KINDS)
        for place, kind in enumerate(KINDS):
            chosen = numbers[cuts[place] : cuts[place + 1]] - self._bounds[place]
            if len(chosen):
                parts[kind] = self._taken(place, pa.array(chosen))
        return replace(self.change, truncated_at=None, bare_rows=0, **parts)

    def none(self) -> StagedChanges:
        """No rows, but of the same kinds: what is made ready for them is ready afterwards."""
        kept = {f"{KEPT}{number}": _NO_LINES for number in range(len(self._kept))}
        nothing = HeldLines.of(pa.table({LINES: _NO_LINES, **kept}))
        parts: dict[str, Any] = {kind: nothing if getattr(self.change, kind) else None for kind in KINDS}
        return replace(self.change, truncated_at=None, bare_rows=0, **parts)

    def _taken(self, place: int, rows: pa.Array) -> HeldLines:
        groups = self._kept if KINDS[place] == "partly_kept" else []
        kept = {f"{KEPT}{number}": group.take(rows) for number, group in enumerate(groups)}
        return HeldLines.of(pa.table({LINES: self._lines[place].take(rows), **kept}))

    def at(self, number: int) -> RowChange:
        place = int(np.searchsorted(self._bounds, number, "right")) - 1
        kind, index, at, relation = KINDS[place], number - int(self._bounds[place]), self._at[place], self.relation
        assert at is not None
        values = fields(self._lines[place][index].as_py())
        lsn, sequence = (at.column(name)[index].as_py() for name in (LSNS, SEQUENCES))
        if kind == "deletes":
            key: Values = dict(zip(relation.key, values, strict=True))
            return RowChange(relation, _OPS[kind], key, None, LSN(lsn), sequence)
        unchanged: list[str] = []
        if kind == "partly_kept":
            values, unchanged = self._put_together(values, index)
        row = dict(zip((column.name for column in relation.columns), values, strict=True))
        key = {name: row[name] for name in relation.key}
        return RowChange(relation, _OPS[kind], key, row, LSN(lsn), sequence, tuple(unchanged))

    def _put_together(self, never_kept: list[str | None], index: int) -> tuple[list[str | None], list[str]]:
        """The values of a partly kept row in the order of the table's columns, and the names of those that are kept."""
        by_column = dict(zip(self.change.never_kept, never_kept, strict=True))
        unchanged = []
        for group, lines in zip(self.change.kept_groups, self._kept, strict=True):
            marks, *values = fields(lines[index].as_py())[2 * len(self.relation.key) :]
            by_column |= dict(zip(group, values, strict=True))
            names = (self.relation.columns[column].name for column in group)
            unchanged += [name for name, mark in zip(names, marks or "", strict=True) if mark == "1"]
        return [by_column[column] for column in range(len(by_column))], unchanged


def _column(table: pa.Table | None, name: str) -> pa.Array:
    return table.column(name).combine_chunks() if table is not None else _NO_LINES


def keys_of(change: StagedChanges) -> Iterator[pa.Array]:
    """The keys that the changes speak of, each as the line that COPY would read, without its end."""
    for kind in ("deletes", "partly_kept", "updates", "inserts"):
        if lines := getattr(change, kind):
            yield from keys_in(lines.open(), _places_of_key(change, kind))


def _places_of_key(change: StagedChanges, kind: str) -> Sequence[int]:
    """Where the key's columns are among those of a line."""
    key = change.relation.key_indexes
    if kind == "deletes":
        return range(len(key))
    return [change.never_kept.index(index) for index in key] if kind == "partly_kept" else key


def own_keys_of_kept(change: StagedChanges) -> Iterator[pa.Array]:
    """The keys of the rows that keep values."""
    if change.partly_kept:
        yield from keys_in(change.partly_kept.open_kept(), range(len(change.relation.key)))


def mentioned(change: StagedChanges, keys: Collection[str]) -> set[str]:
    """Which of these keys the changes speak of."""
    wanted = pa.array(list(keys), pa.string())
    found = (keys.filter(pc.is_in(keys, wanted)).to_pylist() for keys in keys_of(change)) if keys else ()
    return set().union(*found)


def kept_keys_of(change: StagedChanges) -> Iterator[pa.Array]:
    """Likewise, the keys of the rows that values are kept of."""
    if change.partly_kept:
        width = len(change.relation.key)
        yield from keys_in(change.partly_kept.open_kept(), range(width, 2 * width))


def keys_in(lines: Sequence[pa.Array], places: Sequence[int]) -> Iterator[pa.Array]:
    for array in lines:
        parts = pc.split_pattern(pc.utf8_rtrim(array, "\n"), "\t")
        columns = [pc.list_element(parts, place) for place in places] if len(array) else []
        if columns:
            yield pc.binary_join_element_wise(*columns, "\t")


def key_line(key: Values, relation: Relation) -> str | None:
    """The key as ``keys_of`` has it. None: it is not by the columns that identify a row now."""
    if not relation.key or set(key) != set(relation.key):
        return None
    return line([key[name] for name in relation.key]).rstrip("\n")


def held_row(change: RowChange) -> HeldLines:
    """The whole row, for COPY."""
    assert change.row is not None
    values = [change.row[column.name] for column in change.relation.columns]
    at = {LSNS: pa.array([int(change.lsn)], pa.uint64()), SEQUENCES: pa.array([change.sequence], pa.uint32())}
    return HeldLines.of(pa.table({LINES: [line(values)], **at}))


def line(values: Sequence[str | None]) -> str:
    text: str = copy_lines([pa.array([value], pa.string()) for value in values])[0].as_py()
    return text


def fields(line: str) -> list[str | None]:
    """The values of a line that COPY reads, or writes."""
    return [None if value == NULL else _unescaped(value) for value in line.rstrip("\n").split("\t")]


def _unescaped(value: str) -> str:
    first, *rest = value.split("\\")
    parts, pending = [first], iter(rest)
    for part in pending:
        if part:
            parts.append(_ESCAPED.get(part[0], part[0]) + part[1:])
        else:  # two of them are one
            parts.append("\\" + next(pending, ""))
    return "".join(parts)
