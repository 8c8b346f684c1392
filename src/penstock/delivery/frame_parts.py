"""Code of rules that runs in Spark: what the executors do before it and after it. Imports nothing of Spark.

What goes in is told by something that can be asked for it twice and gives the same: the change log, or a file. First its rows
are given to the code; what comes out is kept in a file, sorted by change; then the changes are read again, and each takes its
row from there.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.changelog.log import ChangeLog
from penstock.changelog.units import WorkUnit, change_batches
from penstock.changes.batch import DELETE, OLD_KEY, OLD_NONE, TRUNCATE, UPDATE, Bools, ChangeBatch, Relation
from penstock.delivery.writer import outcome
from penstock.errors import PenstockError
from penstock.lsn import LSN
from penstock.postgres.reading.read_chunk import seen_by
from penstock.rules.code.code import Code, Results
from penstock.rules.passage import NO_RULES, Passage
from penstock.sinks.contract import Batch, FailedChange, Sink
from penstock.storage import Directory

_RESULT, _INPUT = "result.arrow", "input.pickle"
Key = tuple[str | None, ...]

_STORED = pa.schema([pa.field("rows", pa.int64())])


@dataclass(frozen=True)
class Given:
    """A batch of changes of one table, as far as its code goes. ``batch``: None if nothing is left of it."""

    source: Relation  # before all rules
    changes: int
    commit_time: int
    batch: ChangeBatch | None


class Inputs(Protocol):
    """Gives the same each time."""

    def __call__(self) -> Iterator[Given]: ...


@dataclass(frozen=True)
class LoggedChanges:
    """What the log has of a table: of transactions that end after ``start`` and not after ``end``."""

    log_uri: str
    units: tuple[WorkUnit, ...]
    start: LSN
    end: LSN
    rules: Passage
    snapshot: str | None = None  # the transactions that it saw are left out

    def __call__(self) -> Iterator[Given]:
        changes = change_batches(ChangeLog(self.log_uri), self.units, self.start, self.end)
        for batch in unseen_by(self.snapshot, changes):
            yield Given(batch.relation, len(batch), int(batch.commit_time[-1]), self.rules.before_frame(batch))


def unseen_by(snapshot: str | None, changes: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """The changes of transactions that the snapshot did not see; all of them without a snapshot."""
    for batch in changes:
        unseen = np.ones(len(batch), np.bool_) if snapshot is None else ~seen_by(snapshot, batch.xid)
        if unseen.all():
            yield batch
        elif unseen.any():
            yield batch.take(np.flatnonzero(unseen))


@dataclass(frozen=True)
class StagedRows:
    """Rows that were read once, and kept: as the rules before the code left them."""

    uri: str

    def store(self, rules: Passage, batches: Iterator[ChangeBatch]) -> None:
        def content(stream: Any) -> None:
            for batch in batches:
                given = Given(batch.relation, len(batch), int(batch.commit_time[-1]), rules.before_frame(batch))
                pickle.dump(given, stream)

        directory = Directory(self.uri)
        directory.create()
        directory.write(_INPUT, content)

    def __call__(self) -> Iterator[Given]:
        with Directory(self.uri).open(_INPUT) as stream:
            while stream.tell() < stream.size():
                yield pickle.load(stream)


@dataclass(frozen=True)
class RowsForCode:
    """What the code is given; for ``mapInArrow`` over one row that means nothing."""

    code: Code
    inputs: Inputs
    window: tuple[int, int] | None = None  # only these of them, by number
    besides: frozenset[int] = frozenset()  # and without these

    def __call__(self, nothing: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in nothing:
            pass
        for batch in self._batches():
            yield from self.code.rows(batch).to_batches()

    def _batches(self) -> Iterator[ChangeBatch]:
        first = 0
        for given in self.inputs():
            if given.batch is None:
                continue
            batch, brings = self.code.prepared(given.batch)
            rows = np.flatnonzero(brings)
            numbers = first + np.arange(len(rows))
            first += len(rows)
            wanted = np.ones(len(rows), np.bool_)
            if self.window is not None:
                wanted = (numbers >= self.window[0]) & (numbers < self.window[1])
            if self.besides:
                wanted &= ~np.isin(numbers, sorted(self.besides))
            if wanted.any():
                yield batch.take(rows[wanted])

    def count(self, _: Any) -> int:
        return sum(len(batch) for batch in self._batches())

    def places(self, _: Any) -> list[tuple[int, int]]:
        """Commit and sequence of each."""
        return [
            (int(lsn), int(sequence))
            for batch in self._batches()
            for lsn, sequence in zip(batch.commit_lsn.tolist(), batch.sequence.tolist(), strict=True)
        ]

    def trouble(self, _: Any) -> PenstockError | None:
        """Why it cannot be given, in words of ours."""
        try:
            for _batch in self(iter(())):
                pass
        except PenstockError as error:
            return error
        return None


@dataclass(frozen=True)
class KeptResult:
    """Keeps what came out, in the order in which it comes; for ``mapInArrow``."""

    uri: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        rows = 0

        def content(stream: Any) -> None:
            nonlocal rows
            with pa.ipc.new_stream(stream, first.schema) as writer:
                batch: pa.RecordBatch | None = first
                while batch is not None:
                    writer.write_batch(batch)
                    rows += batch.num_rows
                    batch = next(batches, None)

        directory = Directory(self.uri)
        directory.create()
        directory.write(_RESULT, content)
        yield pa.RecordBatch.from_arrays([pa.array([rows])], schema=_STORED)

    def tables(self) -> Iterator[pa.Table]:
        directory = Directory(self.uri)
        if any(entry.name == _RESULT for entry in directory.entries()):
            with directory.open(_RESULT) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class FramedTable:
    """A table's changes of one definition, and what its code made of them."""

    code: Code
    inputs: Inputs
    kept: KeptResult
    failed: frozenset[tuple[int, int]] = frozenset()  # changes that the code fails on, by commit and sequence
    reason: str = ""


@dataclass(frozen=True)
class FramedReceipt:
    outcome: Any  # of ``sink.write``
    changes: int
    commit_time: int
    failed: tuple[FailedChange, ...] = ()


@dataclass(frozen=True)
class FramedWriter:
    """Changes ▶ each with the row that came out for it ▶ the rest of the rules ▶ ``sink.write`` ▶ a receipt."""

    sink: Sink[Any, Any]
    batch: Batch
    rules: Passage
    tables: tuple[FramedTable, ...]

    def __call__(self, _: Any) -> bytes:
        counted = _Counted()
        changes = (batch for table in self.tables for batch in self._changes(table, counted))
        batch = self.rules.batch(self.batch)
        done = outcome(self.sink, batch, changes, NO_RULES)
        failed = tuple(counted.failed.values())
        return pickle.dumps(FramedReceipt(done, counted.changes, counted.commit_time, failed))

    def _changes(self, table: FramedTable, counted: _Counted) -> Iterator[ChangeBatch]:
        results = Results(table.code, table.kept.tables())
        for given in table.inputs():
            counted.changes += given.changes
            counted.commit_time = max(counted.commit_time, given.commit_time)
            if given.batch is not None:
                if table.failed:
                    self._note_failed(table, given, counted)
                made = self.rules.from_frame(given.source, given.batch, results)
                if made is not None:
                    yield made
        results.refuse_leftovers()

    def _note_failed(self, table: FramedTable, given: Given, counted: _Counted) -> None:
        """Those of the batch, and not those that a later change has left behind. Seldom, so row by row."""
        assert given.batch is not None
        batch, brings = table.code.prepared(given.batch)
        had = (batch.old_kind != OLD_NONE) & np.isin(batch.op, (UPDATE, DELETE))
        before = self._keys(table, given, _as_deletes(batch, had, batch.old))
        now = self._keys(table, given, _as_deletes(batch, brings, batch.new))
        for row, at in enumerate(zip(batch.commit_lsn.tolist(), batch.sequence.tolist(), strict=True)):
            if batch.op[row] == TRUNCATE:
                counted.failed.clear()
            for known in (before.get(at), now.get(at)):
                if known is not None:
                    counted.failed.pop(known[1:], None)
            if at in table.failed and at in now:
                relation, oid, key = now[at]
                op = "update" if batch.op[row] == UPDATE else "insert"
                named = dict(zip(relation.key, key, strict=True))
                counted.failed[oid, key] = FailedChange(relation, op, named, LSN(at[0]), at[1], table.reason)

    def _keys(
        self, table: FramedTable, given: Given, deletes: ChangeBatch
    ) -> dict[tuple[int, int], tuple[Relation, int, Key]]:
        """By change: the target's table and the key there."""
        made = self.rules.from_frame(given.source, deletes, Results(table.code, iter(()))) if len(deletes) else None
        if made is None:
            return {}
        keys = zip(*(made.old[index].to_pylist() for index in made.relation.key_indexes), strict=True)
        places = zip(made.commit_lsn.tolist(), made.sequence.tolist(), strict=True)
        return {at: (made.relation, made.relation.oid, key) for at, key in zip(places, keys, strict=True)}


def _as_deletes(batch: ChangeBatch, which: Bools, keys: Sequence[pa.Array]) -> ChangeBatch:
    """Of rows with these keys."""
    indexes = set(batch.relation.key_indexes)
    nothing = pa.nulls(len(batch), pa.string())
    return replace(
        batch, op=np.full(len(batch), DELETE, np.uint8), old_kind=np.full(len(batch), OLD_KEY, np.uint8), unchanged={},
        new=[nothing] * len(keys), old=[values if index in indexes else nothing for index, values in enumerate(keys)],
    ).take(np.flatnonzero(which))  # fmt: skip


@dataclass
class _Counted:
    changes: int = 0
    commit_time: int = 0
    failed: dict[tuple[int, Key], FailedChange] = field(default_factory=dict)  # by table and key


def in_order(units: Sequence[tuple[Relation, WorkUnit]]) -> list[list[tuple[Relation, tuple[WorkUnit, ...]]]]:
    """By table, the units of each of its definitions: whole, and in the order of the log, whatever tasks they came from."""
    whole = {
        (unit.segment, unit.oid): (relation, WorkUnit(unit.segment, unit.table, unit.oid, 0, 1, 0, 0, unit.after))
        for relation, unit in units
    }
    tables: dict[int, list[tuple[Relation, tuple[WorkUnit, ...]]]] = {}
    for _, (relation, unit) in sorted(whole.items(), key=lambda item: item[0]):
        definitions = tables.setdefault(relation.oid, [])
        if definitions and definitions[-1][0] == relation:
            definitions[-1] = relation, (*definitions[-1][1], unit)
        else:
            definitions.append((relation, (unit,)))
    return list(tables.values())
