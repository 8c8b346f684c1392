r"""Net changes as text for COPY, made by the executors and handed to the driver.

Columns of text as the lines that COPY … FROM STDIN reads. One vector operation per column, no loop over rows.

A line is its values, separated by tabs, and a line feed; NULL is ``\N``; backslash, tab, line feed and carriage return in
a value are written with a backslash.
https://www.postgresql.org/docs/current/sql-copy.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Bools, ChangeBatch, Relation, concat
from penstock.changes.net import NetChanges, Position, Positions
from penstock.sinks.contract import Batch
from penstock.sinks.staging import Staged, stage

NULL = "\\N"

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))  # the backslash first
_PIECE_BYTES = 1 << 20


def copy_lines(columns: Sequence[pa.Array]) -> pa.Array:
    """One line per row, its line feed included. The array's bytes, one after the other, are what COPY wants."""
    *others, last = (_escaped(column) for column in columns)
    ended = pc.binary_join_element_wise(pc.fill_null(last, NULL), "", "\n")
    if not others:
        return ended
    return pc.binary_join_element_wise(*others, ended, "\t", null_handling="replace", null_replacement=NULL)


def pieces(lines: pa.Array) -> Iterator[memoryview]:
    """The array's bytes, without copying them."""
    text = text_bytes(lines)
    for at in range(0, len(text), _PIECE_BYTES):
        yield memoryview(text)[at : at + _PIECE_BYTES]


def text_bytes(values: pa.Array) -> pa.Buffer:
    """What the values are made of, in order; a NULL is nothing."""
    _, offsets, data = values.buffers()
    if data is None or len(values) == 0:
        return pa.py_buffer(b"")
    width = np.int64 if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type) else np.int32
    bounds = np.frombuffer(offsets, width)[[values.offset, values.offset + len(values)]]
    return data.slice(int(bounds[0]), int(bounds[1] - bounds[0]))


def _escaped(column: pa.Array) -> pa.Array:
    """Most columns hold nothing to escape, and looking is cheap."""
    found = np.frombuffer(text_bytes(column), np.uint8)
    for character, escape in _ESCAPES:
        if (found == ord(character)).any():
            column = pc.replace_substring(column, character, escape)
    return column


# The columns of a staged table. Where its rows come from is looked at when the target refuses one, and never else.
LINES, KEPT, LSNS, SEQUENCES = "lines", "kept", "commit_lsn", "sequence"  # KEPT and a number, from 0
_KEPT_COLUMNS = 200  # of one group
_NET_BYTES = 256 << 20  # of one table's changes, reduced to one row per key at once


@dataclass(frozen=True)
class Lines:
    """Rows for COPY."""

    count: int
    staged: Staged

    def open(self) -> list[pa.Array]:
        return list(self.table().column(LINES).chunks)

    def open_kept(self, group: int = 0) -> list[pa.Array]:
        """Of ``partly_kept``: what belongs to one of ``kept_groups``."""
        return list(self.table().column(f"{KEPT}{group}").chunks)

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
    partly_kept: Lines | None = None  # columns ``never_kept``; beside them, for each of ``kept_groups``, see there
    kept: tuple[int, ...] = ()
    removed: Lines | None = None  # all columns; one row for each row to remove
    turn: int = 0  # how many of the same table and task come before it
    restarts_identity: bool = False  # TRUNCATE … RESTART IDENTITY
    bare_rows: int = 0  # of a table without columns: rows that come; negative: that go

    @property
    def never_kept(self) -> list[int]:
        """The columns that every row has a value for, the key among them."""
        return [index for index in range(len(self.relation.columns)) if index not in set(self.kept)]

    @property
    def kept_groups(self) -> list[tuple[int, ...]]:
        """The other columns. Of each group, a row has for COPY: its key, the key to look under, a bit for each column (1: keep
        what the target has), and the columns.

        Apart from the rest, so that the tables they are copied to have room for any row that the source's table has:
        Postgres takes 1,600 columns, and 8 kB of values of which TOAST shrinks none below some 20 bytes.
        """
        return kept_groups(self.kept)


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
        if kind == "partly":
            for number, group in enumerate(kept_groups(kept)):
                lines = lines.append_column(f"{KEPT}{number}", _kept_lines(changes, group).filter(pa.array(rows)))
        return Lines(lines.num_rows, stage(batch, f"{relation.qualified_name}-{kind}", lines))

    partly_kept, at = None, changes.upserts_at
    if kept:
        partly = np.logical_or.reduce(list(changes.unchanged.values()))
        others = [values for index, values in enumerate(changes.upserts) if index not in changes.unchanged]
        partly_kept = handed("partly", others, at, partly)
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
        bare_rows=changes.bare_rows,
    )


def kept_groups(kept: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(kept[first : first + _KEPT_COLUMNS]) for first in range(0, len(kept), _KEPT_COLUMNS)]


def _kept_lines(changes: NetChanges, group: Sequence[int]) -> pa.Array:
    marks = [pa.array(np.where(changes.unchanged[index], "1", "0")) for index in group]
    keys = [changes.upserts[index] for index in changes.relation.key_indexes]
    values = [changes.upserts[index] for index in group]
    return copy_lines([*keys, *changes.kept_from, pc.binary_join_element_wise(*marks, ""), *values])


def _positions(at: Positions, rows: Bools | None) -> dict[str, pa.Array]:
    everything = rows is None or rows.all()
    return {
        LSNS: pa.array(at.commit_lsn if everything else at.commit_lsn[rows]),
        SEQUENCES: pa.array(at.sequence if everything else at.sequence[rows]),
    }


def _none(count: int) -> Bools:
    return np.zeros(count, np.bool_)


def joined(changes: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """Changes of one definition and section that come one after the other, together: so that each key is written once."""
    for _, some in groupby(changes, key=lambda change: (change.relation, change.section)):
        held: list[ChangeBatch] = []
        size = 0
        for change in some:
            if held and size + change.nbytes > _NET_BYTES:
                yield concat(held)
                held, size = [], 0
            held.append(change)
            size += change.nbytes
        yield concat(held)
