"""``type: stdout``: events on standard output, one per line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from penstock.changes.batch import ChangeBatch
from penstock.errors import SinkRefused
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.events import EventSettings, event_format
from penstock.sinks.events.lines import EventReceipt, delivery, merged_lines, receipts_of_part, stage_events
from penstock.sinks.staging import storage_error


class StdoutSettings(EventSettings):
    type: Literal["stdout"] = "stdout"


class StdoutSink(Sink[StdoutSettings, EventReceipt]):
    """Prints events in commit order, flushed after every batch. A table's definition is printed once per run.

    Parallelism: executors encode; the driver merges their lines and prints.
    Guarantee: at-least-once. After a crash, a batch may be printed again; ``lsn`` and ``sequence`` tell it apart.
    """

    Settings: ClassVar[type[StdoutSettings]] = StdoutSettings

    def __init__(self, settings: StdoutSettings) -> None:
        super().__init__(settings)
        self._format = event_format(settings)
        self._announced: dict[str, str] = {}

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> EventReceipt:
        return stage_events(batch, changes, self._format)

    def commit(self, batch: Batch, receipts: Sequence[EventReceipt]) -> None:
        if batch.part is not None:
            receipts = receipts_of_part(batch, batch.part, receipts, self._format, self._announced)
        due = delivery(receipts, self._format, self._announced, after=None)
        try:
            for lines in merged_lines(due.runs):
                sys.stdout.buffer.write(lines)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise SinkRefused(
                "Nobody reads standard output any more.", "Start again with a reader that stays."
            ) from error
        except OSError as error:
            raise storage_error(error, "print events", "standard output") from error
        self._announced = due.announced
