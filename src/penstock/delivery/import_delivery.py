"""The delivery's half of imports: commits what copiers have made ready, catches the table up, lets it join the stream.

Everything here can be done again: a part that the sink holds already is told by its record, and what the sink does not
record is at-least-once, like all else of such a sink.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock import failpoints
from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import SegmentName
from penstock.changelog.units import PlanRunner, WorkUnit, change_batches, plan
from penstock.changes.batch import Relation
from penstock.delivery.frame_parts import unseen_by
from penstock.delivery.table_record import TableRecord
from penstock.delivery.writer import outcome
from penstock.error_policy import Verdict, policy_for
from penstock.errors import LogError, PenstockError, SinkUnavailable, TableAltered
from penstock.imports.handover import ChunkReceipt, Handover, Manifest
from penstock.imports.progress import captured_upto
from penstock.lsn import LSN, ZERO
from penstock.retry import Backoff
from penstock.rules.checks.earlier_rules import HiddenColumns
from penstock.rules.passage import NO_RULES, Passage
from penstock.schema import kinds
from penstock.schema.kinds import SchemaChange, TableChange
from penstock.schema.log.row import LoggedCommand, logged_commands
from penstock.schema.type_kinds import OF_VALUES
from penstock.sinks.contract import Batch, ImportPart, Sink, UnderWay
from penstock.state.lifecycle import TableState, Trouble
from penstock.state.pipeline_state import PipelineState
from penstock.storage import Directory

logger = logging.getLogger(__name__)

_ROUND_BYTES = 64 << 20  # of the table's changes, applied at once
# Made from the source's definition when the import ends, or of no matter to the rows.
_HARMLESS = (
    kinds.CreateTable, kinds.DropTable, kinds.SetComment, kinds.ChangeSettings, kinds.SetPersistence, kinds.CreateIndex,
    kinds.AddUnique, kinds.AddCheck, kinds.AddForeignKey, kinds.AttachPartition, kinds.RewordPart, kinds.RewordPartition,
)  # fmt: skip
_LAST_ROUND_BYTES = 1 << 20  # for which the stream may wait


# (table, its work units, batch, snapshot) -> the receipt, of a table with code that runs in Spark
WriteFramed = Callable[[Relation, Sequence[WorkUnit], Batch, str | None], Any]


class StreamDelivery(Protocol):
    """What the imports of a sink need of the delivery of its stream: ``spark/delivery.py``."""

    lock: threading.Lock
    tables: TableRecord
    rules: Passage
    join: Callable[[Sequence[int], LSN], None]

    @property
    def position(self) -> LSN | None: ...

    def commit_beside(self, part: ImportPart, staging: str, receipts: Sequence[Any]) -> None: ...

    def commit_part(self, part: ImportPart, staging: str, receipts: Sequence[Any]) -> None: ...


class ImportDelivery:
    """All imports of one sink. ``step`` is called again and again, between and beside the stream's batches."""

    def __init__(
        self, runner: PlanRunner, sink: Sink[Any, Any], state: PipelineState, delivery: StreamDelivery,
        write_framed: WriteFramed,
    ) -> None:  # fmt: skip
        self._runner, self._sink, self._state, self._delivery = runner, sink, state, delivery
        self._write_framed = write_framed
        self._log = state.log
        self._staging = state.staging_uri(sink.settings.name)
        self.handover = Handover(state.root, sink.settings.name)
        self._hidden = HiddenColumns(state.parts)
        delivery.join = self.join
        self._sizes: dict[SegmentName, dict[int, int]] = {}  # of segments: oid -> bytes
        self._round_bytes: dict[int, int] = {}  # of the last round of each job
        self._backoffs: dict[int, Backoff] = {}
        self._next_try: dict[int, float] = {}

    def step(self) -> bool:
        """Does one thing for every import that has something to do. False: there was nothing."""
        did_something = False
        newest = {m.relation.oid: m for m in sorted(self.handover.manifests(), key=lambda manifest: manifest.job)}
        if not newest:
            self._sizes.clear()
        for manifest in newest.values():
            if time.monotonic() >= self._next_try.get(manifest.job, 0.0):
                did_something |= self._guarded(manifest)
        return did_something

    def _guarded(self, manifest: Manifest) -> bool:
        """What goes wrong with one table is told to its copier and tried again later; the others go on."""
        job = manifest.job
        try:
            return self._step(manifest)
        except PenstockError as error:
            policy = policy_for(error)
            delay = min(next(self._backoffs.setdefault(job, Backoff())), policy.longest_wait)
            self._next_try[job] = time.monotonic() + delay
            self._delivery.tables.note_error(job, error.with_advice, _trouble(error))
            logger.warning(
                'Import of %s into "%s": %s %s Next try in %.1f s.',
                manifest.relation.qualified_name, self._sink.settings.name, error, policy.advice, delay,
            )  # fmt: skip
            return False

    def _step(self, manifest: Manifest) -> bool:
        tables, job = self._delivery.tables, manifest.job
        if tables.joining(job):  # and may be done at any moment, by the thread that commits a batch
            return self._catch_up(manifest)
        state = tables.state(manifest.relation.oid, job)
        if state is TableState.STREAMING:
            self.handover.remove(job)
            tables.forget(job)
            self._round_bytes.pop(job, None)
            return True
        if manifest.state is TableState.PENDING or state is TableState.FAILED:
            return False
        if state is TableState.PENDING:
            self._hidden.admit(self._delivery.rules.settings, manifest.relation)
            self._commit(self._part(manifest, "begin"), [])
        return self._commit_chunks(manifest) or self._catch_up(manifest)

    def _part(self, manifest: Manifest, phase: Any, **members: Any) -> ImportPart:
        again = manifest.again or self._delivery.tables.ready(manifest.relation.oid) is not None
        return ImportPart(manifest.job, manifest.relation, phase, again=again, **members)

    def _changes(self, manifest: Manifest, start: LSN, end: LSN) -> ImportPart:
        settled = manifest.to_lsn is not None and start >= manifest.to_lsn
        return self._part(manifest, "changes", upto=end, settled=settled)

    def _commit(self, part: ImportPart, receipts: Sequence[Any], staging: str = "") -> None:
        self._delivery.commit_beside(part, staging or self._staging, receipts)

    def _commit_chunks(self, manifest: Manifest) -> bool:
        """0. Rows that were read again come between the changes: a row that had the same key before would take them along when
           its end is replayed.
        1. The receipt is durable; what it speaks of is staged. Killed from here on, it is committed by the next one.
        2. ``sink.commit``, with the chunk's number in the sink's record. Killed right after, the chunk is skipped when it
           comes again.
        3. The receipt goes, then what was staged.
        """
        job = manifest.job
        known = self._delivery.tables.under_way(job)
        for number in self.handover.receipts(job):
            receipt = self.handover.receipt(job, number)
            if _is_late(receipt, known):
                logger.debug("Chunk %d of import %d came late; it is not needed any more.", number, job)
            elif known is None or number not in known.rows:
                if receipt.after is not None and not self._replayed_upto(manifest, receipt.after):
                    return True
                part = self._part(manifest, "rows", number=number, replaces=receipt.replaces)
                self._delivery.tables.note_snapshot(job, receipt.snapshot)  # durable before the rows that it belongs to
                self._commit(part, [receipt.outcome])
                failpoints.reach(failpoints.CHUNK_COMMITTED)
            self.handover.remove_receipt(job, number)
            Directory(receipt.staging).delete_all()
            return True
        return False

    def _replayed_upto(self, manifest: Manifest, end: LSN) -> bool:
        """Whether the sink has the table's changes up to ``end``; if not, brings it a round closer to that."""
        assert manifest.from_lsn is not None
        start = self._delivery.tables.replayed(manifest.job) or manifest.from_lsn
        if start > end:
            raise LogError("Rows were read again too late: changes after them are applied already.")
        if start == end:
            return True
        self._apply(manifest, start, min(self._end_of_round(manifest.relation.oid, start)[0], end))
        return False

    def _catch_up(self, manifest: Manifest) -> bool:
        """Applies the table's changes; when there are few left, the table joins the stream.

        1. The changes are applied in rounds of bounded size, each recorded: killed in between, it goes on there.
        2. The table is announced: batches planned from now on have its changes from where we are. Until one of them is there,
           those that come were planned before and lack it, all of it.
        3. Right before the first batch that has it is committed, ``join`` applies what lies between, up to where that batch
           begins. If there is nothing in the log for a batch, there is nothing between either, and it joins at once.
        """
        tables, job, oid = self._delivery.tables, manifest.job, manifest.relation.oid
        # In this order: a table that is joining may join at any moment, and then its import is not under way any more.
        joining, known = tables.joining(job), tables.under_way(job)
        if manifest.state is not TableState.CATCHING_UP or manifest.to_lsn is None or manifest.from_lsn is None:
            return False
        if known is None or len(known.rows) < (manifest.chunks or 0) or captured_upto(self._state) < manifest.to_lsn:
            return False
        if not joining:
            start = known.replayed or manifest.from_lsn
            end, size = self._end_of_round(oid, start)
            if start < manifest.to_lsn < end and self._delivery.rules.filters(manifest.relation):
                end = manifest.to_lsn  # from there on a row that is absent is one that the filter held back
            if known.replayed is None or known.replayed < manifest.to_lsn or self._worth_a_round(job, size):
                self._apply(manifest, start, end)
                return True
            if tables.many_joining:
                return False
            with self._delivery.lock:
                tables.announce(oid, job, known.replayed)
        with self._delivery.lock:
            position = self._delivery.position or ZERO
            if not tables.joining(job):
                return True  # a batch was faster
            if (self._log.contents().end or ZERO) > position:
                return False  # so there will be a batch
            self.join([job], position)
        return True

    def _worth_a_round(self, job: int, size: int) -> bool:
        """As long as there is much less to do each time. A table that is written to as fast as we apply it has to join with
        what there is: the stream waits for it once, or it would wait for the stream for ever."""
        before = self._round_bytes.get(job)
        self._round_bytes[job] = size
        return size > _LAST_ROUND_BYTES and (before is None or size < before // 2)

    def join(self, jobs: Sequence[int], position: LSN) -> None:
        """Completes these imports as of ``position``, or of where they have come already. With the lock held."""
        for job in jobs:
            manifest = self.handover.manifest(job)
            replayed = self._delivery.tables.replayed(job)
            if manifest is None or replayed is None:
                self._delivery.tables.withdraw(job)
                raise SinkUnavailable("An import was given up while a batch was made.", "The batch is made again.")
            if position > replayed:
                receipts, staging = self._last_changes(manifest, replayed, position)
                if receipts:
                    self._delivery.commit_part(self._changes(manifest, replayed, position), staging, receipts)
                    failpoints.reach(failpoints.IMPORT_CAUGHT_UP)
                Directory(staging).delete_all()
            self._delivery.commit_part(self._part(manifest, "end", upto=max(position, replayed)), self._staging, [])
            failpoints.reach(failpoints.IMPORT_ENDED)
            self.handover.remove(job)

    def _last_changes(self, manifest: Manifest, start: LSN, end: LSN) -> tuple[list[Any], str]:
        try:
            return self._written(manifest, start, end)
        except TableAltered as altered:
            self._delivery.tables.withdraw(manifest.job)  # so that the batch can be made again, without the table
            self._delivery.tables.note_error(manifest.job, str(altered), _trouble(altered))
            raise

    def _end_of_round(self, oid: int, start: LSN) -> tuple[LSN, int]:
        """Past ``_ROUND_BYTES`` of the table's changes, before a schema change, or where everything captured ends; and how
        many bytes that is."""
        captured = self._state.capture()  # before the listing: everything below its position is in there or not for us
        contents = self._log.contents()
        end, size = start, 0
        for stretch in self._log.after(start) if contents.end is not None and contents.end > start else []:
            if end > start and (stretch.schema_change or size >= _ROUND_BYTES):
                return end, size
            size += sum(self._bytes_by_table(name).get(oid, 0) for name in stretch.segments)
            end = stretch.end
        return max(end, captured.position if captured else ZERO), size

    def _bytes_by_table(self, name: SegmentName) -> dict[int, int]:
        """Of a segment, which never changes: looked up once."""
        if name not in self._sizes:
            sizes: dict[int, int] = {}
            for entry in self._log.relations(name):
                sizes[entry.relation.oid] = sizes.get(entry.relation.oid, 0) + entry.bytes
            self._sizes[name] = sizes
        return self._sizes[name]

    def _apply(self, manifest: Manifest, start: LSN, end: LSN) -> None:
        receipts, staging = self._written(manifest, start, end)
        self._commit(self._changes(manifest, start, end), receipts, staging)
        failpoints.reach(failpoints.IMPORT_CAUGHT_UP)
        Directory(staging).delete_all()

    def _snapshot(self, manifest: Manifest) -> str | None:
        if not manifest.by_snapshot or manifest.chunks == 0:
            return None
        snapshot = self._delivery.tables.snapshot(manifest.job)
        if snapshot is None:
            raise LogError(
                f"The snapshot with which {manifest.relation.qualified_name} was read is not known any more."
            )
        return snapshot

    def _written(self, manifest: Manifest, start: LSN, end: LSN) -> tuple[list[Any], str]:
        """The receipts of the table's changes in between, and where they are staged. One Spark job, or none."""
        staging = f"{self.handover.staging(manifest.job)}/changes-{str(end).replace('/', '-')}"
        last = self._log.contents().end or ZERO

        def admit(relation: Relation) -> LSN | None:
            return start if relation.oid == manifest.relation.oid else None

        if last <= start:
            return [], staging
        self._refuse_altered(manifest, start, min(end, last))
        tasks = plan(self._log, start, min(end, last), self._runner.parallelism, admit)
        if not tasks:
            return [], staging
        batch = Batch(-1, start, end, staging, self._changes(manifest, start, end))
        if self._delivery.rules.runs_in_frame(manifest.relation):
            units = [unit for task in tasks for unit in task]
            return [self._write_framed(manifest.relation, units, batch, self._snapshot(manifest))], staging
        writer = _ChangesWriter(
            self._sink, self._log.directory.uri, batch, self._snapshot(manifest), self._delivery.rules
        )
        outcomes = [pickle.loads(receipt) for receipt in self._runner.run(writer, tasks)]
        for found in outcomes:
            if isinstance(found, PenstockError):
                raise found
        return outcomes, staging

    def _refuse_altered(self, manifest: Manifest, start: LSN, end: LSN) -> None:
        """TableAltered if the schema log has a command that makes another table of it than was read.

        The rows were read as the table was before, and what the command did to them (a new name, the value of a default) does
        not come with the changes. So it is read again: the next import begins after the command.
        """
        if not any(stretch.has_schema_change for stretch in self._log.after(start, end)):
            return
        units = [unit for task in plan(self._log, start, end, 1, _schema_log_from(start)) for unit in task]
        for command in logged_commands(change_batches(self._log, units, start, end)):
            for change in command.changes:
                if _alters(command, change, manifest.relation.oid):
                    raise TableAltered(
                        f"{manifest.relation.qualified_name} was altered in the source at {LSN(command.at[0])} "
                        f"({type(change).__name__}) while it was imported."
                    )


def _alters(command: LoggedCommand, change: SchemaChange, oid: int) -> bool:
    if isinstance(change, TableChange):
        return change.table.oid == oid and not isinstance(change, _HARMLESS)
    tables = {type_.oid: type_.tables for type_ in command.parsed.types}
    return isinstance(change, OF_VALUES) and oid in tables.get(change.type.oid, ())


def _schema_log_from(start: LSN) -> Callable[[Relation], LSN | None]:
    return lambda relation: start if relation.is_schema_log else None


def _is_late(receipt: ChunkReceipt, known: UnderWay | None) -> bool:
    """All chunks are in before the first change is applied. One that comes then is of a copier that was given up for dead."""
    return (
        known is not None and known.replayed is not None and receipt.after is None and receipt.number not in known.rows
    )


def _trouble(error: PenstockError) -> Trouble:
    """What was staged, or the log since the import began, may be gone: then it has to begin anew."""
    if isinstance(error, LogError) or isinstance(error.__cause__, FileNotFoundError):
        return Trouble.LOST
    return Trouble.STOP if policy_for(error).verdict is Verdict.STOP else Trouble.RETRY


@dataclass(frozen=True)
class _ChangesWriter:
    """Runs in the executors: one table's changes ▶ ``sink.write`` ▶ a receipt."""

    sink: Sink[Any, Any]
    log_uri: str
    batch: Batch
    snapshot: str | None
    rules: Passage = NO_RULES

    def __call__(self, units: Sequence[WorkUnit]) -> bytes:
        changes = change_batches(ChangeLog(self.log_uri), units, self.batch.start, self.batch.end)
        return pickle.dumps(outcome(self.sink, self.batch, unseen_by(self.snapshot, changes), self.rules))
