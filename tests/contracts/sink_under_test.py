"""What the contract suite needs of a sink: how to make one, and how to look into what it wrote.

A new sink joins the suite with one file ``<sink>_adapter.py`` beside this one: a subclass of ``SinkUnderTest`` with a ``name``
is found there.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from penstock.changes.batch import ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, Sink

Row = dict[str, str | None]  # Postgres's text


class SinkUnderTest:
    """A sink over state in a directory of its own. ``make`` gives a fresh object over the same state: a restart."""

    name: ClassVar[str]
    keeps_progress: ClassVar[bool]  # prepare() gives the position of what is there
    keeps_messages: ClassVar[bool]  # of pg_logical_emit_message
    fixtures: ClassVar[tuple[str, ...]] = ()  # whose values ``__init__`` is given after the directory
    rows_go_straight_in: ClassVar[bool] = False  # what was read of a table is in its place before the part is committed
    subscription = "penstock_1"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings: dict[str, Any] = {}  # more of them, for the next ``make``, of a sink of tables
        self._batches = 0
        self.position = LSN(0)
        self._sinks: list[Sink[Any, Any]] = []

    def beside(self, directory: Path) -> SinkUnderTest:
        """Another one of the kind, over state of its own."""
        return type(self)(directory)

    def new_sink(self) -> Sink[Any, Any]:
        raise NotImplementedError

    def rows(self, relation: Relation) -> list[Row]:
        """The rows of the table as the sink has them now, in any order."""
        raise NotImplementedError

    def messages(self) -> list[tuple[str, bytes]]:
        raise NotImplementedError

    def execute(self, statements: str) -> None:
        """SQL in the target, as its owner."""
        raise NotImplementedError

    def make(self, pipeline: str = "", *, others_stay: bool = False) -> Sink[Any, Any]:
        """A sink as it is after the process started anew, ready for batches."""
        if not others_stay:
            self.close()
        sink = self.new_sink()
        sink.subscription, sink.pipeline = self.subscription, pipeline
        self._sinks.append(sink)
        sink.prepare()
        return sink

    def close(self) -> None:
        while self._sinks:
            self._sinks.pop().close()

    def dispose(self) -> None:
        """Nobody looks into what it wrote any more."""
        self.close()

    def next_batch(self, end: int) -> Batch:
        """The batch that follows the last one; its changes have commit LSNs from that one's end up to below ``end``."""
        batch = Batch(self._batches, self.position, LSN(end), str(self.directory / "staging" / str(self._batches)))
        self._batches, self.position = self._batches + 1, LSN(end)
        return batch


def write(sink: Sink[Any, Any], batch: Batch, *changes: ChangeBatch) -> Any:
    """One task: what an executor does with the changes, from a pickled sink to a pickled receipt."""
    executor = pickle.loads(pickle.dumps(sink))
    return pickle.loads(pickle.dumps(executor.write(batch, iter(changes))))


def deliver(sink: Sink[Any, Any], batch: Batch, *tasks: Sequence[ChangeBatch]) -> None:
    """A whole micro-batch, each sequence of changes being the input of one task."""
    sink.commit(batch, [write(sink, batch, *changes) for changes in tasks])


def unordered(rows: list[Row]) -> list[list[tuple[str, str | None]]]:
    """Rows in a form that compares equal whatever their order, duplicates included."""
    return sorted((sorted(row.items()) for row in rows), key=repr)
