"""What a sink is: three methods, and the promises between them and the delivery that calls them.

A sink knows nothing of Spark. It is built from its settings on the driver, pickled, and used on both sides:

1. ``prepare`` runs on the driver before the first batch, and again after every failure. It creates what is missing and
   returns the LSN up to which the sink durably holds every change, or None if the sink keeps no record of its own.
2. ``write`` runs in the executors, any number of times per batch, in parallel, and may run again for the same batch
   after a failure. It makes the changes ready (stages them) and returns a receipt: anything that pickles.
3. ``commit`` runs on the driver once all receipts of the batch are there, in the order of the batches. When it returns,
   everything in the batch is durable in the sink.

A batch that was written but not committed when the process died comes again, with the same ``start`` and, as long as
Spark's checkpoint lives, the same ``end``. A batch never splits a transaction. Within one receipt, changes of the same
table are in commit order; the receipts of ``commit`` are ordered so that applying them one after the other applies each
key's changes in commit order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from penstock.changes import ChangeBatch
from penstock.config.sink import SinkSettings
from penstock.errors import SinkRefused
from penstock.lsn import LSN


@dataclass(frozen=True)
class Batch:
    """One micro-batch: every transaction that ends after ``start`` and not after ``end``."""

    number: int
    start: LSN
    end: LSN
    staging: str  # a URI that executors and driver share; the sink may put files below it, delivery removes it


S = TypeVar("S", bound=SinkSettings)


class Sink(Generic[S]):
    """Base class of all sinks. ``guarantee`` is what its page promises: exactly-once, effectively-once, at-least-once."""

    Settings: ClassVar[type[SinkSettings]] = SinkSettings  # the config file's keys for this sink
    guarantee: ClassVar[str] = "at-least-once"
    keeps_position: ClassVar[bool] = False  # the sink itself records up to where it holds everything

    origin: str = ""  # the source's system identifier, known before ``prepare``: positions of another mean nothing

    def __init__(self, settings: S) -> None:
        self.settings = settings

    def refuse_other_origin(self, recorded: str | None) -> None:
        """For a sink that keeps a position: SinkRefused if what it has recorded is of another source."""
        if recorded and self.origin and recorded != self.origin:
            raise SinkRefused(
                f"Sink {self.settings.name} holds changes of database system {recorded}, but this source is {self.origin}.",
                "Give the sink a new place for its data, or point source.url at the database it was filled from.",
            )

    def check(self) -> None:
        """Raises SinkError if the sink would not work: reachable, writable, rights. Changes nothing."""

    def prepare(self) -> LSN | None:
        """Driver: creates what is missing; the sink's own position, or None if it keeps none."""
        return None

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> Any:
        """Executor: makes the changes ready and returns a picklable receipt."""
        raise NotImplementedError

    def commit(self, batch: Batch, receipts: Sequence[Any]) -> None:
        """Driver: makes everything in the batch durable, and the position with it where the sink keeps one."""
        raise NotImplementedError

    def close(self) -> None:
        """Driver: gives back connections and locks."""
