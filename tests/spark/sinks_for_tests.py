"""Sinks that fail, count, or say what they got. They travel to executors by value: those know nothing of the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from penstock.changes.batch import ChangeBatch
from penstock.errors import SinkRefused
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.settings import SinkSettings

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class CountingSink(Sink[SinkSettings, dict[str, int]]):
    """Remembers each batch: how many changes of which table."""

    def __init__(self, name: str) -> None:
        super().__init__(SinkSettings(name=name, type="test"))
        self.batches: list[tuple[Batch, dict[str, int]]] = []

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> dict[str, int]:
        counted: dict[str, int] = {}
        for change in changes:
            counted[change.relation.table] = counted.get(change.relation.table, 0) + len(change)
        return counted

    def commit(self, batch: Batch, receipts: Sequence[Any]) -> None:
        self.batches.append((batch, {table: count for receipt in receipts for table, count in receipt.items()}))


class RefusingSink(CountingSink):
    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> dict[str, int]:
        raise SinkRefused("The table is full of eels.", "Remove the eels.")


class BuggySink(CountingSink):
    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> dict[str, int]:
        raise ZeroDivisionError("a slip in write")


class BuggyCommit(CountingSink):
    def commit(self, batch: Batch, receipts: Sequence[Any]) -> None:
        raise ZeroDivisionError("a slip in commit")


class BuggyPrepare(CountingSink):
    def prepare(self) -> None:
        raise ZeroDivisionError("a slip in prepare")


class ReceiptThatDoesNotPickle(CountingSink):
    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> Any:
        return lambda: None


class DyingOnce(CountingSink):
    """The process that writes dies, the first time."""

    def __init__(self, name: str, died: Path) -> None:
        super().__init__(name)
        self._died = died

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> dict[str, int]:
        if not self._died.exists():
            self._died.touch()
            os._exit(1)
        return super().write(batch, changes)
