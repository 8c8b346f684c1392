"""Delivery: one streaming query per sink, one Spark job per micro-batch.

The stream's rows are work units. ``mapInArrow`` turns them into receipts in the executors (decode ▶ ``sink.write``); the
driver commits them. What moves through the JVM is units and receipts, never rows of data.
"""

from __future__ import annotations

import errno
import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock import failpoints
from penstock.changelog.units import plan
from penstock.delivery.frame_parts import FramedReceipt
from penstock.delivery.table_record import TableRecord
from penstock.delivery.writer import RECEIPTS, Writer, fault
from penstock.errors import LogFull, LogGap, PenstockError, SinkRefused, SinkUnavailable, SourceSetBack, SparkLost
from penstock.lsn import LSN, ZERO
from penstock.rules.passage import NO_RULES, Passage
from penstock.schema.kinds import CreateTable, SetComment, TableChange
from penstock.schema.log.row import LoggedCommand
from penstock.schema.type_kinds import OF_VALUES
from penstock.schema.words import in_words
from penstock.sinks.contract import Batch, Imported, ImportPart, Sink
from penstock.spark.frames import Frames
from penstock.state.pipeline_state import CaptureState, PipelineState, SinkState, now, staged_batch_uri
from penstock.storage import Directory

_LONGEST_LINE = 500
_DISK_FULL = os.strerror(errno.ENOSPC)


class BatchFailed(Exception):
    """What Spark is told of a batch that failed; why it did is kept here."""


class SinkDelivery:
    """Delivers to one sink. ``position`` is up to where the sink durably holds everything."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink[Any, Any],
        state: PipelineState,
        copies: bool = False,
        rules: Passage = NO_RULES,
    ) -> None:
        self._spark, self._sink, self._state, self._copies, self.rules = spark, sink, state, copies, rules
        self._log = state.log
        self._name = sink.settings.name
        self.frames = Frames(spark, sink, rules)
        self.lock = threading.Lock()  # one commit at a time
        self.tables = TableRecord(state, self._name)
        self.join: Callable[[Sequence[int], LSN], None] = lambda jobs, at: (
            None
        )  # completes imports, before a batch with them
        self.error: PenstockError | None = None
        self.gave_up = ""  # in a line, why a batch was given up
        self.known = state.sink(self._name) or SinkState(None, now())

    @property
    def position(self) -> LSN | None:
        return self.known.lsn

    def start(self, available_now: bool) -> StreamingQuery:
        """Begins where the sink's own record says, or else where Spark's checkpoint does."""
        self.error, self.gave_up = None, ""
        self._state.remove_staged_batches(self._name)
        with self.lock:  # imports may be committed meanwhile
            position = self._where_to_begin(self._prepare_sink())
            self._note(replace(self.known, lsn=position, updated_at=now(), state="running", error=None))
            self.tables.load(self._imported())
        writer = Writer(self._sink, self._state.log_uri, self._state.staging_uri(self._name), self.rules)
        settings = self._sink.settings
        stream = (
            self._spark.readStream.format("penstock")
            .option("path", self._state.log_uri)
            .option("maxBytesPerBatch", settings.batch.max_bytes)
            .option("parallelism", self._spark.sparkContext.defaultParallelism)
            .option("startingLsn", str(position or ZERO))
            .option("resumeLsn", str(position or ZERO))  # what is delivered may have left the log
            .options(**({"tablesOf": self._name} if self._copies else {}))
            .load()
            .mapInArrow(writer, RECEIPTS)
            .observe("penstock", F.sum("changes").alias("changes"), F.sum("bytes").alias("bytes"))
        )
        query = stream.writeStream.queryName(self._name).option(
            "checkpointLocation", self._state.checkpoint_uri(self._name)
        )
        query = query.foreachBatch(self._commit)
        if available_now:
            query = query.trigger(availableNow=True)
        elif settings.trigger:
            query = query.trigger(processingTime=f"{int(settings.trigger * 1000)} milliseconds")
        return query.start()

    def _prepare_sink(self) -> LSN | None:
        source = self._state.source()
        self._sink.origin = source.system_identifier if source else ""
        self._sink.subscription = source.subscription if source else ""
        self._sink.source_is_copied = self._copies
        try:
            return self._sink.prepare()
        except PenstockError:
            raise
        except Exception as error:
            raise fault(self._sink, error) from error

    def _where_to_begin(self, own: LSN | None) -> LSN | None:
        """The sink's own record where it keeps one; None: where the log begins.

        Then Spark's checkpoint is set aside: a batch that it has planned may end where a log that was lost had a segment's
        end and the one captured again has none. A sink that stands behind what we noted of it was restored from a backup
        or made anew, and the log must reach back far enough.
        """
        noted = self.known.lsn
        if not self._sink.capabilities.keeps_position:
            return noted
        self._set_checkpoint_aside()
        if noted is None and own is not None and self._copies and self._is_of_another_subscription():
            own = self._begin_anew(own)
        if noted is not None and (own is None or own < noted):
            captured = self._state.capture()
            own = own if own is not None else captured.begin if captured else noted
            self._require_log_from(own, captured)
        return own

    def _imported(self) -> Imported | None:
        """What the sink has recorded under this subscription; nothing of what it has under another one counts."""
        own = self._sink.imported()
        subscription = self._sink.subscription
        return Imported(subscription) if own is not None and own.subscription != subscription else own

    def _is_of_another_subscription(self) -> bool:
        own = self._sink.imported()
        return own is not None and own.subscription != self._sink.subscription

    def _begin_anew(self, own: LSN) -> LSN:
        """The sink was filled under a subscription that is gone. All tables are imported again, so the changes between are
        not missed: the stream begins where this subscription does."""
        captured = self._state.capture()
        if captured is None:
            raise SinkUnavailable("Capture has not begun to read yet.", "Delivery begins with it.")
        if captured.begin < own:  # the sink would skip what is committed between
            raise SourceSetBack(
                f'Sink "{self._name}" holds changes up to {own}, and the subscription begins at {captured.begin}: the source '
                "was set back since that sink was filled.",
                "Run `SELECT pg_switch_wal();` on the source until `SELECT pg_current_wal_lsn();` is past that position, "
                "then `penstock destroy` and `penstock run`; or move the sink's target away.",
            )
        if captured.begin == own:
            return own
        self._commit_to_sink(Batch(-1, own, captured.begin, self._state.staging_uri(self._name)), [])
        return captured.begin

    def _set_checkpoint_aside(self) -> None:
        Directory(self._state.checkpoint_uri(self._name)).delete_all()

    def _refuse_hole(self, start: LSN) -> None:
        """A batch begins where the sink stands, or before. Past that, Spark's checkpoint is not this sink's."""
        position = self.known.lsn
        if position is not None and start > position:
            self._set_checkpoint_aside()
            raise SinkUnavailable(
                f"Spark's checkpoint begins at {start}, but the sink holds changes up to {position} only.",
                "The checkpoint is set aside, and delivery goes on from the sink's own position.",
            )

    def _require_log_from(self, own: LSN, captured: CaptureState | None) -> None:
        """LogGap if it does not reach back so far; a log that is gone altogether does not either."""
        if self._log.contents().end is None and captured is not None and captured.log_end > own:
            raise LogGap(f"The change log is empty, but changes after {own} are needed.")
        self._log.after(own)

    def _commit(self, receipts: DataFrame, number: int) -> None:
        """Called by Spark for every micro-batch. Killed anywhere in here, the same batch comes again:

        1. All receipts are there: the executors have staged everything. Nothing is visible in the sink.
        2. ``sink.commit`` makes it durable. Killed right after, a sink with a record of its own skips the batch when it
           comes again; one without delivers it twice.
        3. The position is noted, which lets capture confirm it to Postgres and delete segments.
        4. Spark writes its checkpoint when this returns.

        Spark learns of an error in a line only: in a longer text that names an error of Java it looks for an interruption
        with an expression that overflows the stack, and its thread dies without a word.
        """
        try:
            self._commit_batch(receipts, number)
        except PenstockError as error:
            self.error, self.gave_up = error, _in_a_line(error)
            raise BatchFailed(self.gave_up) from None
        except Exception as error:  # noqa: BLE001  Spark says so when the query has ended
            self.gave_up = _in_a_line(error)
            raise BatchFailed(self.gave_up) from None

    def _commit_batch(self, receipts: DataFrame, number: int) -> None:
        rows = receipts.collect()
        if not rows:
            return
        begun = time.monotonic()
        outcomes = [pickle.loads(row.receipt) for row in rows]
        for outcome in outcomes:
            if isinstance(outcome, PenstockError):
                raise outcome
        failpoints.reach(failpoints.BATCH_STAGED)
        start, end = LSN.parse(rows[0].batch_start), LSN.parse(rows[0].batch_end)
        self._refuse_hole(start)
        admission = min(row.admission for row in rows)
        staging = staged_batch_uri(self._state.staging_uri(self._name), end)
        framed = self._framed(rows, Batch(-1, start, end, staging))
        if framed is not None:
            outcomes.append(framed.outcome)
        with self.lock:
            self.join(self.tables.due(admission), start)
            self._refuse_outdated(admission, end)
            commands = self._to_follow([command for row in rows for command in pickle.loads(row.schema_log)])
            self._stop_at_schema_change(commands)
            self._commit_to_sink(
                Batch(number, start, end, staging, None, framed.failed if framed else (), commands), outcomes
            )
            failpoints.reach(failpoints.BATCH_COMMITTED)
            changes, commit_time = sum(row.changes for row in rows), max(row.commit_time for row in rows)
            if framed is not None:
                changes, commit_time = changes + framed.changes, max(commit_time, framed.commit_time)
            self._delivered(end, changes, commit_time, begun)
        Directory(staging).delete_all()

    def _framed(self, rows: Sequence[Any], batch: Batch) -> FramedReceipt | None:
        """What the executors left to us: changes of tables with code that runs in Spark."""
        units = [found for row in rows if row.framed is not None for found in pickle.loads(row.framed)]
        return self.frames.write_logged(units, self._state.log_uri, batch) if units else None

    def _to_follow(self, logged: Sequence[LoggedCommand]) -> tuple[LoggedCommand, ...]:
        """In their order. An import may have come further than the stream: its table is as it was then, also in its shape."""

        def imported_upto(oid: int) -> LSN | None:
            ready = self.tables.ready(oid) if self._copies else None
            return ready.lsn if ready is not None else None

        return tuple(command.later_than(imported_upto) for command in sorted(logged, key=lambda command: command.at))

    def _stop_at_schema_change(self, commands: Sequence[LoggedCommand]) -> None:
        if self._sink.settings.schema_changes != "stop":
            return
        for command in commands:
            for change in command.changes:
                if isinstance(change, (TableChange, *OF_VALUES)) and not isinstance(change, CreateTable | SetComment):
                    about = change.table if isinstance(change, TableChange) else change.type
                    raise SinkRefused(
                        f"Sink {self._name}: {about} was altered in the source at {LSN(command.at[0])} "
                        f"({in_words(change)}), and the sink is to stop at schema changes.",
                        "Make the target as you want it; start with schema_changes: ignore (or apply) to pass this one.",
                    )

    def _refuse_outdated(self, admission: int, end: LSN) -> None:
        """A batch from before a table joined, with changes of it that neither of the two has. It does not come to this: a
        table joins with a batch that has it, or when there is nothing that a batch could have."""
        if self.tables.lacks_table(admission, end):
            raise SinkUnavailable("A table joined while a batch was made without it.", "The batch is made again.")

    def commit_beside(self, part: ImportPart, staging: str, receipts: Sequence[Any]) -> None:
        """Makes a part of an import durable in the sink; where the sink can, while the stream goes on.

        The sink's record has the part before ours does. A restart of the stream between the two reads it from there.
        """
        if not self._sink.capabilities.imports_beside:
            with self.lock:
                self.commit_part(part, staging, receipts)
            return
        position = self.known.lsn or ZERO
        self._commit_to_sink(Batch(-1, position, position, staging, part), receipts)
        with self.lock:
            self.tables.note(part)

    def commit_part(self, part: ImportPart, staging: str, receipts: Sequence[Any]) -> None:
        """Makes a part of an import durable in the sink; the caller holds the lock."""
        position = self.known.lsn or ZERO
        self._commit_to_sink(Batch(-1, position, position, staging, part), receipts)
        self.tables.note(part)

    def _commit_to_sink(self, batch: Batch, receipts: Sequence[Any]) -> None:
        try:
            self._sink.commit(self.rules.batch(batch), receipts)
        except PenstockError:
            raise
        except Exception as error:
            raise fault(self._sink, error) from error

    def _delivered(self, end: LSN, changes: int, commit_time: int, begun: float) -> None:
        elapsed = max(now() - self.known.updated_at, time.monotonic() - begun, 1e-3)
        self._note(
            SinkState(
                max(end, self.known.lsn or ZERO), now(), "running", None, commit_time or self.known.commit_time,
                self.known.changes_total + changes, changes / elapsed,
            )
        )  # fmt: skip

    def advance(self, to: LSN) -> None:
        """Moves the position of a sink that holds all of the log over WAL in which there was nothing for us."""
        with self.lock:
            position = self.known.lsn
            if position is not None and position >= to:
                return
            self._commit_to_sink(Batch(-1, position or ZERO, to, self._state.staging_uri(self._name)), [])
            self._note(replace(self.known, lsn=to, updated_at=now(), changes_per_second=0.0))

    def diagnose(self, failure: Exception) -> PenstockError:
        """Why a query failed: the error of the sink, of the log, or else of Spark itself."""
        if self.error is not None:
            return self.error
        try:
            position = self.known.lsn or ZERO
            end = self._log.end_of_next_batch(position, 1)
            if end > position:
                plan(self._log, position, end, 1)
        except PenstockError as error:
            return error
        if not self.gave_up and _DISK_FULL in str(failure):  # Java has no error number for it, only the system's words
            return LogFull(
                f"No space left on the disk of {self._state.checkpoint_uri(self._name)}, Spark's checkpoint."
            )
        return SparkLost(f"Spark gave up a batch: {self.gave_up or _in_a_line(failure)}")

    def settle(self) -> None:
        """Waits for a commit that is under way."""
        with self.lock:
            pass

    def note_error(self, state: str, error: PenstockError) -> None:
        self._note(replace(self.known, updated_at=now(), state=state, error=error.with_advice))

    def note_stopped(self) -> None:
        self._note(replace(self.known, updated_at=now(), state="stopped", changes_per_second=0.0))

    def _note(self, known: SinkState) -> None:
        self.known = known
        self._state.save(known, self._name)


def _in_a_line(error: Exception) -> str:
    """Its first line; of an error of Java the second, which says what it was and not which call."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[1].lstrip(": ") if isinstance(error, Py4JJavaError) and len(lines) > 1 else lines[0]
    return line[:_LONGEST_LINE]
