"""``type: file``: a directory of JSON-lines files, one for each batch that had changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

from penstock.changes import ChangeBatch
from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.durable_file import replace_durably, sync_directory
from penstock.sinks.events import EventSettings, event_format
from penstock.sinks.events.announcements import delivery
from penstock.sinks.events.merge import merged_lines
from penstock.sinks.events.receipt import EventReceipt, stage_events
from penstock.sinks.staging import storage_error

PROGRESS = ".progress.json"
_EVENT_FILE = re.compile(r"([0-9A-F]{16})-([0-9A-F]{16})\.jsonl")


class FileSettings(EventSettings):
    type: Literal["file"] = "file"
    path: Path

    @property
    def place(self) -> Path:
        return self.path

    def below(self, directory: Path) -> Self:
        return self.model_copy(update={"path": directory / self.path})


@dataclass(frozen=True)
class Progress:
    """What the directory durably holds: all changes up to ``lsn``, and these tables' definitions."""

    lsn: LSN | None = None
    announced: dict[str, str] = field(default_factory=dict)
    source: str = ""


class FileSink(Sink[FileSettings]):
    """Appends events to a directory: files named ``<start>-<end>.jsonl``, whose order by name is commit order.

    A file appears whole and never changes after its batch was committed.

    Parallelism: executors encode; the driver merges their lines and writes.
    Guarantee: effectively-once. Each change is in exactly one file, as long as the directory lives. A reader that takes
    only the files up to the ``lsn`` in ``.progress.json`` never sees one that a crash makes Penstock write again.
    """

    Settings: ClassVar[type[FileSettings]] = FileSettings
    guarantee: ClassVar[str] = "effectively-once"
    keeps_position: ClassVar[bool] = True

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(settings)
        self._directory = settings.path
        self._format = event_format(settings)
        self._progress: Progress | None = None

    def check(self) -> None:
        existing = next(path for path in (self._directory, *self._directory.absolute().parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise SinkRefused(f"Sink {self.settings.name} cannot write files in {existing}.")

    def prepare(self) -> LSN | None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            progress = self._read_progress()
            self.refuse_other_origin(progress.source if progress else None)
            if progress is None:
                self._refuse_foreign_files()
                progress = Progress()
                self._write_progress(progress)
            self._remove_uncommitted(progress.lsn)
        except OSError as error:
            raise storage_error(error, "prepare the files", str(self._directory)) from error
        self._progress = progress
        return progress.lsn

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> EventReceipt:
        return stage_events(batch, changes, self._format)

    def commit(self, batch: Batch, receipts: Sequence[EventReceipt]) -> None:
        """Durable in two steps, and a crash at any point leaves nothing lost and nothing twice:

        1. The event file, under a name that only depends on the batch and the progress: whole and synced, or not there.
           After a crash before this, the batch comes again and nothing was there. After a crash behind this, the
           progress does not cover the file, so ``prepare`` removes it, and the batch comes again.
        2. The progress, with the definitions announced in that file. From here on a batch that comes again is skipped.
        """
        if self._progress is None:
            self.prepare()
        progress = self._progress or Progress()
        if progress.lsn is not None and batch.end <= progress.lsn:
            return
        due = delivery(receipts, self._format, progress.announced, progress.lsn)
        try:
            if any(len(run) for run in due.runs):
                replace_durably(self._event_file(batch, progress.lsn), merged_lines(due.runs))
            committed = Progress(batch.end, due.announced, self.origin or progress.source)
            self._write_progress(committed)
        except OSError as error:
            raise storage_error(error, "write events", str(self._directory)) from error
        self._progress = committed

    def _event_file(self, batch: Batch, delivered: LSN | None) -> Path:
        """Named by what is in it: a batch that was delivered in part starts where that part ended."""
        start = batch.start if delivered is None else max(batch.start, delivered)
        return self._directory / f"{start:016X}-{batch.end:016X}.jsonl"

    def _read_progress(self) -> Progress | None:
        path = self._directory / PROGRESS
        try:
            data = json.loads(path.read_bytes())
            lsn = None if data["lsn"] is None else LSN.parse(data["lsn"])
            return Progress(lsn, dict(data["announced"]), str(data.get("source", "")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SinkRefused(
                f"{path} is damaged, so there is no telling which changes the files beside it hold.",
                "Restore it from a backup, or give the sink an empty directory.",
            ) from error

    def _write_progress(self, progress: Progress) -> None:
        lsn = None if progress.lsn is None else str(progress.lsn)
        text = json.dumps({"lsn": lsn, "announced": progress.announced, "source": progress.source}, indent=1)
        replace_durably(self._directory / PROGRESS, [text.encode()])

    def _event_files(self) -> Iterator[tuple[Path, LSN]]:
        """The event files, each with the end of its batch."""
        for path in self._directory.iterdir():
            match = _EVENT_FILE.fullmatch(path.name)
            if match is not None:
                yield path, LSN(int(match[2], 16))

    def _refuse_foreign_files(self) -> None:
        found = next(self._event_files(), None)
        if found is not None:
            raise SinkRefused(
                f"{self._directory} holds event files ({found[0].name}) but no {PROGRESS} that says up to where.",
                "Restore that file from a backup, or give the sink an empty directory.",
            )

    def _remove_uncommitted(self, delivered: LSN | None) -> None:
        """A crash between the two steps of a commit leaves a file whose changes come again, maybe cut differently."""
        uncommitted = [path for path, end in self._event_files() if delivered is None or end > delivered]
        for path in uncommitted:
            path.unlink()
        if uncommitted:
            sync_directory(self._directory)
