"""``type: file``: a directory of JSON-lines files, one for each batch that had changes.

What a directory of event files says about itself: ``.progress.json``, replaced in one step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from penstock.changes.batch import ChangeBatch
from penstock.errors import SinkRefused
from penstock.lsn import LSN, ZERO
from penstock.sinks.contract import Batch, Capabilities, Imported, ImportPart, Sink
from penstock.sinks.events import EventSettings, event_format
from penstock.sinks.events.lines import Delivery, EventReceipt, delivery, merged_lines, receipts_of_part, stage_events
from penstock.sinks.mirror.imports import ImportRecord
from penstock.sinks.staging import replace_durably, storage_error, sync_directory
from penstock.storage import why_unwritable

PROGRESS = ".progress.json"


@dataclass(frozen=True)
class Progress:
    """What the directory durably holds: all changes up to ``lsn``, these tables' definitions, these parts of imports.

    ``parts`` counts the files that parts of imports have brought; a part file with a higher number is not committed.
    """

    lsn: LSN | None = None
    announced: dict[str, str] = field(default_factory=dict)
    source: str = ""
    imports: ImportRecord = field(default_factory=ImportRecord)
    parts: int = 0


def read_progress(directory: Path) -> Progress | None:
    path = directory / PROGRESS
    try:
        data = json.loads(path.read_bytes())
        lsn = None if data["lsn"] is None else LSN.parse(data["lsn"])
        imports = ImportRecord.from_json(data["imports"]) if "imports" in data else ImportRecord()
        return Progress(lsn, dict(data["announced"]), str(data.get("source", "")), imports, int(data.get("parts", 0)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkRefused(
            f"{path} is damaged, so there is no telling which changes the files beside it hold.",
            "Restore it from a backup, or give the sink an empty directory.",
        ) from error


def write_progress(directory: Path, progress: Progress) -> None:
    data = {
        "lsn": None if progress.lsn is None else str(progress.lsn),
        "parts": progress.parts,
        "announced": progress.announced,
        "source": progress.source,
        "imports": progress.imports.to_json(),
    }
    replace_durably(directory / PROGRESS, [json.dumps(data, indent=1).encode()])


_BATCH_FILE = re.compile(r"[0-9A-F]{16}-([0-9A-F]{16})\.jsonl")
_PART_FILE = re.compile(r"([0-9A-F]{16})-\1\.([0-9]{8,})\.jsonl")


class FileSettings(EventSettings):
    type: Literal["file"] = "file"
    path: Path

    @property
    def place(self) -> Path:
        return self.path

    def below(self, directory: Path) -> Self:
        return self.model_copy(update={"path": directory / self.path})


class FileSink(Sink[FileSettings, EventReceipt]):
    """Appends events to a directory: files named ``<start>-<end>.jsonl``, whose order by name is commit order.

    A part of an import is a file ``<position>-<position>.<number>.jsonl``: between the batches that it was committed
    between. A file appears whole and never changes after its batch was committed.

    Parallelism: executors encode; the driver merges their lines and writes.
    Guarantee: effectively-once. Each change is in exactly one file, as long as the directory lives. A reader that takes
    only the files up to the ``lsn`` and the ``parts`` in ``.progress.json`` never sees one that a crash makes Penstock
    write again.
    """

    Settings: ClassVar[type[FileSettings]] = FileSettings
    capabilities: ClassVar[Capabilities] = Capabilities(guarantee="effectively-once", keeps_position=True)

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(settings)
        self._directory = settings.path
        self._format = event_format(settings)
        self._progress: Progress | None = None

    def check(self) -> None:
        if reason := why_unwritable(self._directory):
            raise SinkRefused(
                f"Sink {self.settings.name} cannot write files in {self._directory}: {reason}.",
                "Give the user of Penstock the right to, or correct `path`.",
            )
        try:
            self._recorded()
        except OSError as error:
            raise storage_error(error, "read the files", str(self._directory)) from error

    def _recorded(self) -> Progress | None:
        """SinkRefused for files of another source, or without a record."""
        progress = read_progress(self._directory)
        self.refuse_other_origin(progress.source if progress else None)
        if progress is None and self._directory.exists():
            self._refuse_foreign_files()
        return progress

    def prepare(self) -> LSN | None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            progress = self._recorded()
            if progress is None:
                progress = Progress()
                write_progress(self._directory, progress)
            self._remove_uncommitted(progress)
        except OSError as error:
            raise storage_error(error, "prepare the files", str(self._directory)) from error
        self._progress = progress
        return progress.lsn

    def imported(self) -> Imported:
        return self._known().imports.imported()

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> EventReceipt:
        return stage_events(batch, changes, self._format)

    def commit(self, batch: Batch, receipts: Sequence[EventReceipt]) -> None:
        """Durable in two steps, and a crash at any point leaves nothing lost and nothing twice:

        1. The event file, under a name that only depends on the batch and the progress: whole and synced, or not there.
           After a crash before this, the batch comes again and nothing was there. After a crash behind this, the
           progress does not cover the file, so ``prepare`` removes it, and the batch comes again.
        2. The progress, with the definitions announced in that file. From here on a batch that comes again is skipped.
        """
        progress = self._known()
        if batch.part is not None:
            self._commit_part(batch, batch.part, receipts, progress)
            return
        if progress.lsn is not None and batch.end <= progress.lsn:
            return
        due = delivery(receipts, self._format, progress.announced, progress.lsn)
        self._make_durable(due, self._batch_file(batch, progress.lsn), replace(progress, lsn=batch.end))

    def _commit_part(
        self, batch: Batch, part: ImportPart, receipts: Sequence[EventReceipt], progress: Progress
    ) -> None:
        """The same two steps, but that the number of the part's file takes the place of the position."""
        imports = progress.imports.of(self.subscription)
        if imports.holds(part):
            return
        receipts = receipts_of_part(batch, part, receipts, self._format, progress.announced)
        due = delivery(receipts, self._format, progress.announced, after=None)
        number = progress.parts + (1 if due.has_events else 0)
        committed = replace(progress, imports=imports.with_part(part), parts=number)
        self._make_durable(due, self._part_file(number, progress.lsn), committed)

    def _make_durable(self, due: Delivery, file: Path, committed: Progress) -> None:
        committed = replace(committed, announced=due.announced, source=self.origin or committed.source)
        self._progress = None  # if this fails in the middle, whatever comes next has to look for what is left of it
        try:
            if due.has_events:
                replace_durably(file, merged_lines(due.runs))
            write_progress(self._directory, committed)
        except OSError as error:
            raise storage_error(error, "write events", str(self._directory)) from error
        self._progress = committed

    def _known(self) -> Progress:
        if self._progress is None:
            self.prepare()
        return self._progress or Progress()

    def _batch_file(self, batch: Batch, delivered: LSN | None) -> Path:
        """Named by what is in it: a batch that was delivered in part starts where that part ended."""
        start = batch.start if delivered is None else max(batch.start, delivered)
        return self._directory / f"{start:016X}-{batch.end:016X}.jsonl"

    def _part_file(self, number: int, delivered: LSN | None) -> Path:
        """By name after the batch that ends at the position, before the one that begins there, in the order of parts."""
        position = ZERO if delivered is None else delivered
        return self._directory / f"{position:016X}-{position:016X}.{number:08d}.jsonl"

    def _event_files(self, progress: Progress) -> Iterator[tuple[Path, bool]]:
        """The event files, each with whether it is committed."""
        for path in self._directory.iterdir():
            if (batch := _BATCH_FILE.fullmatch(path.name)) is not None:
                yield path, progress.lsn is not None and LSN(int(batch[1], 16)) <= progress.lsn
            elif (part := _PART_FILE.fullmatch(path.name)) is not None:
                yield path, int(part[2]) <= progress.parts

    def _refuse_foreign_files(self) -> None:
        found = next(self._event_files(Progress()), None)
        if found is not None:
            raise SinkRefused(
                f"{self._directory} holds event files ({found[0].name}) but no {PROGRESS} that says up to where.",
                "Restore that file from a backup, or give the sink an empty directory.",
            )

    def _remove_uncommitted(self, progress: Progress) -> None:
        """A crash between the two steps of a commit leaves a file whose changes come again, maybe cut differently."""
        uncommitted = [path for path, committed in self._event_files(progress) if not committed]
        for path in uncommitted:
            path.unlink()
        if uncommitted:
            sync_directory(self._directory)
