"""An import for the contract suite: its parts, made as copier and delivery make them."""

from __future__ import annotations

from typing import Any

from penstock.changes.batch import ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart, Merged, Sink
from penstock.testing.change_batches import changes
from tests.contracts.sink_under_test import SinkUnderTest, write

Changes = list[tuple[Any, ...]]


class TableImport:
    """One job. Every method commits one part through ``sink``, which may be replaced by a fresh one in between."""

    def __init__(
        self,
        target: SinkUnderTest,
        sink: Sink[Any, Any],
        table: Relation,
        job: int = 1,
        *,
        again: bool = False,
        merged: Merged | None = None,
    ) -> None:
        self.target, self.sink, self.table, self.job, self.again, self.merged = target, sink, table, job, again, merged

    def begin(self) -> None:
        self._commit("begin")

    def rows(self, number: int, *rows: dict[str, Any], replaces: bool = False) -> None:
        self._commit("rows", self._read(*rows), number=number, replaces=replaces)

    def write_rows(self, number: int, *rows: dict[str, Any]) -> Any:
        """What the copier does, without what the delivery does."""
        return write(self.sink, self._batch(ImportPart(self.job, self.table, "rows", number)), *self._read(*rows))

    def _read(self, *rows: dict[str, Any]) -> list[ChangeBatch]:
        return [changes(self.table, [("read", row) for row in rows], lsn=1)] if rows else []

    def changes(self, upto: int, *some: ChangeBatch, settled: bool = False) -> None:
        self._commit("changes", list(some), upto=LSN(upto), settled=settled)

    def replay(self, upto: int, rows: Changes, table: Relation | None = None, *, settled: bool = False) -> None:
        """The same from rows: one transaction, just below ``upto``."""
        self.changes(upto, changes(table or self.table, rows, lsn=upto - 1), settled=settled)

    def end(self, upto: int) -> None:
        self._commit("end", upto=LSN(upto))

    def whole(self, *rows: dict[str, Any], upto: int) -> None:
        self.begin()
        self.rows(1, *rows)
        self.changes(upto)
        self.end(upto)

    def _commit(self, phase: Any, some: list[ChangeBatch] | None = None, **members: Any) -> None:
        part = ImportPart(self.job, self.table, phase, again=self.again, merged=self.merged, **members)
        batch = self._batch(part)
        # A part without receipts, and one whose receipt says nothing, are both possible.
        receipts = [write(self.sink, batch, *some)] if some is not None else []
        self.sink.commit(batch, receipts)

    def _batch(self, part: ImportPart) -> Batch:
        position = self.target.position
        staging = self.target.directory / "staging" / f"import-{part.job}-{part.phase}-{part.number}"
        return Batch(-1, position, position, str(staging), part)
