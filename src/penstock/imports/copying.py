"""The copier's half of an import: from the queue in the source to receipts for the delivery.

``TableCopy.advance`` is called again and again and never waits. The steps, and why in this order: docs/decisions/0008.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.changelog.admission import read_admission
from penstock.changelog.units import truncated_since
from penstock.config.model import Config
from penstock.errors import ImportFailed, LogFull, PenstockError
from penstock.imports import jobs
from penstock.imports.handover import Handover, Manifest
from penstock.imports.jobs import Job, NewJob
from penstock.imports.moved_rows import Keys, distinct, may_lack_values, row_chunks
from penstock.imports.progress import captured_upto
from penstock.lsn import LSN, ZERO
from penstock.postgres import catalog
from penstock.postgres.connection import Connection
from penstock.postgres.reading.chunks import Chunk, plan_chunks
from penstock.postgres.reading.layout import Leaf, TableLayout, table_layout
from penstock.postgres.transactions import running_transactions, still_running
from penstock.settings.units import size_in_words
from penstock.state.lifecycle import ChunkState, TableState, Trouble
from penstock.state.pipeline_state import PipelineState

logger = logging.getLogger(__name__)

MovedKeys = Callable[[int, LSN, LSN, Keys | None], Sequence[Keys]]
_LEAST_CHUNK_BYTES = 8 << 20  # below, a chunk costs more than it gains
_LAYOUT_SECONDS = 2.0  # between two looks at a table that is being copied
_SECONDS_OF_ROWS = 2  # a chunk holds no more rows than may be read in this time


@dataclass(frozen=True)
class CopierTask:
    """What to copy: the tables with these oids, or all. ``once``: until they are all imported or refused."""

    tables: tuple[int, ...] | None = None
    once: bool = False


@dataclass(frozen=True)
class Copying:
    """What all imports of a copier share. ``moved_keys``: (oid, start, end, asked) -> keys, from the log."""

    config: Config
    state: PipelineState
    publications: tuple[str, ...]
    moved_keys: MovedKeys

    def chunk_bytes(self, layout: TableLayout) -> int:
        """As configured, or less where otherwise some of the workers would have nothing to do."""
        most = self.config.source.copying.chunk_bytes
        return min(most, max(_LEAST_CHUNK_BYTES, layout.bytes // self.config.copying_workers + 1))

    @property
    def most_rows(self) -> int | None:
        rate = self.config.source.copying.rows_per_second
        return None if rate is None else max(1, rate * _SECONDS_OF_ROWS // self.config.copying_workers)


class TableCopy:
    """One job. ``phase``: what it does right now, and how far it is; ``waiting_for``: what keeps it from continuing; both in
    words. ``starts_long_step``: the next call of ``advance`` may take long. ``ended``: there is nothing more to do for it."""

    def __init__(self, job: Job, copying: Copying) -> None:
        self.job, self._copying = job, copying
        self.ended = False
        self.phase = self.waiting_for = ""
        self.starts_long_step = False
        self._handover = Handover(copying.state.root, job.sink)
        self._step: Callable[[Connection], None] = self._resume
        self._to = self._looked_upto = ZERO
        self._asked: Keys | None = None  # the keys of rows that were read again last
        self._because = ""
        self._next_look = 0.0

    @property
    def name(self) -> str:
        return f'{self.job.qualified_name} into "{self.job.sink}"'

    @property
    def being_copied(self) -> bool:
        return self._step == self._copy

    def advance(self, connection: Connection) -> None:
        self._step(connection)

    def _resume(self, connection: Connection) -> None:
        """Goes on where another copier was. Without the files that it left, nothing of it is worth anything.

        The delivery removes them when the table has joined the stream; so whether it has is asked after looking for them.
        """
        job, manifest = self.job, self._handover.manifest(self.job.id)
        if manifest is None and self._has_joined():
            self._complete(connection)
        elif job.layout is None:  # nothing was read yet
            self._handover.remove(job.id)
            self._step = self._wait_for_publishing
        elif manifest is None or job.chunks == 0 or not self._take_stock(connection, manifest):
            self.begin_anew(connection, "What was left of an earlier attempt is gone.")
        elif manifest.state is TableState.CATCHING_UP:
            jobs.copied(connection, job.id, manifest.to_lsn or ZERO)
            self._step = self._watch
        else:
            if manifest.state is TableState.PENDING:
                self._handover.write_manifest(replace(manifest, state=TableState.COPYING, relation=job.layout.relation))
            self._step = self._copy

    def _take_stock(self, connection: Connection, manifest: Manifest) -> bool:
        """Chunks that were read before their copier could say so are staged; those that are not there any more are read again.

        False: it is too late for that, the sink has been told that this is all.
        """
        unfinished = jobs.unfinished_chunks(connection, self.job.id)
        receipts = self._handover.receipts(self.job.id)  # before what is committed: from there they come
        staged = {*receipts, *self._handover.committed(self.job.id).chunks}
        there = [number for number, state in unfinished if state is not ChunkState.STAGED and number in staged]
        if there:
            figures = {number: self._handover.figures(self.job.id, number) for number in there}
            jobs.chunks_staged(connection, self.job.id, figures)
        lost = [number for number, state in unfinished if number not in staged]
        if lost and manifest.state is TableState.CATCHING_UP:
            return False
        if again := [number for number, state in unfinished if state is ChunkState.STAGED and number not in staged]:
            jobs.chunks_again(connection, self.job.id, again)
        return True

    def _wait_for_publishing(self, connection: Connection) -> None:
        """Steps 2 and 3 of the decision, up to the LSN."""
        if self._waits(connection, self.job.published_xids):
            return
        layout = self._layout(connection)
        if layout is None:
            return
        captured = self._copying.state.capture()
        needed_from = captured.position if captured else ZERO
        manifest = Manifest(self.job.id, layout.relation, needed_from, again=self.job.again)
        self._handover.write_manifest(manifest)  # the log is kept from here on, and the LSN is taken after that
        from_lsn, from_xids = catalog.insert_lsn(connection), running_transactions(connection)
        jobs.begin(connection, self.job.id, from_lsn, from_xids)
        self._handover.write_manifest(replace(manifest, needed_from=from_lsn, from_lsn=from_lsn))
        self.job = replace(self.job, from_lsn=from_lsn, from_xids=from_xids, layout=layout)
        self._step = self._wait_for_running

    def _wait_for_running(self, connection: Connection) -> None:
        if self._waits(connection, self.job.from_xids):
            return
        layout, manifest = self._layout(connection), self._handover.manifest(self.job.id)
        if layout is None:
            return
        # Altered since: the log may have changes by its former definition, or of rows that came in with a partition later.
        if manifest is None or self.job.layout is None or layout.fingerprint != self.job.layout.fingerprint:
            self._step = self._wait_for_publishing
            return
        chunks = plan_chunks(connection, layout, self._copying.chunk_bytes(layout), self._copying.most_rows)
        jobs.start_copying(connection, self.job.id, layout, chunks)
        self.job = replace(self.job, layout=layout, chunks=len(chunks))
        self._handover.write_manifest(replace(manifest, state=TableState.COPYING, by_snapshot=layout.by_snapshot))
        self._step = self._copy

    def _copy(self, connection: Connection) -> None:
        """The chunks are claimed and read elsewhere; here, it is seen when they are all there."""
        if self._in_trouble(connection):
            return
        unread, planned = self._tell_committed(connection), self.job.layout
        assert planned is not None
        if unread and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LAYOUT_SECONDS
        now = self._layout(connection)
        if now is None or (unread and _holds(planned, now)):
            return
        if added := _added_leaves(planned, now):
            grown = replace(planned, leaves=planned.leaves + added)
            self._add(connection, grown, self._chunks_of(connection, grown, len(planned.leaves)))
        elif now.fingerprint != planned.fingerprint:
            self.layout_changed("It was altered or rewritten while it was copied.")
        else:
            self._to = catalog.wal_marker(connection)
            self._step = self._read_moved_rows

    def layout_changed(self, because: str) -> None:
        """Rows may have moved without a change: the import begins anew. Unless the table was truncated: then there is nothing
        left that a copy could bring, since all that is in there now comes with the changes.

        Of a chunk, this may be said late: then it is known already, and what came of it may be handed over.
        """
        if self._step in (self._copy, self._read_moved_rows):
            self._because, self._to = because, ZERO
            self._step = self._look_for_truncate

    def _look_for_truncate(self, connection: Connection) -> None:
        now, planned = self._layout(connection), self.job.layout
        if now is None or planned is None:
            return
        known = {leaf.oid for leaf in planned.leaves}
        if (now.relation, now.types) != (planned.relation, planned.types) or any(
            leaf.oid not in known for leaf in now.leaves
        ):
            self.begin_anew(connection, self._because)  # a partition that was attached may have brought rows
            return
        unfinished = jobs.unfinished_chunks(connection, self.job.id)
        jobs.chunks_done(connection, self.job.id, [number for number, state in unfinished if state is ChunkState.TODO])
        if any(state is ChunkState.COPYING for _, state in unfinished):
            return
        if self._to == ZERO:
            self._to = catalog.wal_marker(connection)
        elif captured_upto(self._copying.state) >= self._to:
            assert self.job.from_lsn is not None
            if truncated_since(self._copying.state.log, self.job.table_oid, self.job.from_lsn):
                committed = self._handover.committed(self.job.id).chunks
                self._hand_over(connection, len({*committed, *self._handover.receipts(self.job.id)}))
            else:
                self.begin_anew(connection, self._because)

    def _chunks_of(self, connection: Connection, layout: TableLayout, first_leaf: int) -> list[Chunk]:
        """Of leaves that were attached while the others were copied."""
        planned = plan_chunks(connection, layout, self._copying.chunk_bytes(layout), self._copying.most_rows)
        wanted = [chunk for chunk in planned if chunk.leaf is not None and chunk.leaf >= first_leaf]
        after = catalog.wal_marker(
            connection
        )  # what was done to these rows before they came in must not be done to them again
        self._asked = None  # and of the changes since, all may concern these rows
        return [replace(chunk, number=self.job.chunks + at, after=after) for at, chunk in enumerate(wanted, 1)]

    def _read_moved_rows(self, connection: Connection) -> None:
        """Step 5: rows that moved between two chunks, and whose change did not bring them whole.

        1. All changes so far are looked through for such rows, and these are read by their keys.
        2. Of those, some may have changed their key before they were read: they are looked for again, by the changes since.
        """
        layout, from_lsn = self.job.layout, self.job.from_lsn
        assert layout is not None
        assert from_lsn is not None
        if layout.by_snapshot or not may_lack_values(layout.relation):
            self._hand_over(connection, self.job.chunks)
            return
        captured = captured_upto(self._copying.state)
        if captured < self._to:
            self.waiting_for = f"capture to reach {self._to}; it is at {captured}"
            return
        self.waiting_for = ""
        if not self.starts_long_step:
            since = self._looked_upto or from_lsn
            self.phase = (
                f"looking for rows that moved while they were copied, in {size_in_words(self._to - since)} of WAL"
            )
            self.starts_long_step = True
            return
        self.starts_long_step = False
        keys = self._copying.moved_keys(self.job.table_oid, self._looked_upto or from_lsn, self._to, self._asked)
        self._looked_upto = self._to
        chunks = row_chunks(keys, self.job.chunks + 1, after=self._to)
        if chunks:
            self._asked = distinct(keys)
            self._add(connection, layout, chunks)
            self.phase = f"reading {len(self._asked[0]):,} rows again that moved while they were copied"
            self._step = self._copy
        else:
            self._hand_over(connection, self.job.chunks)

    def _hand_over(self, connection: Connection, chunks: int) -> None:
        """The manifest first: killed in between, the next copier takes it from there. The other way round it would look for
        rows that moved once more, and the queue would give the chunks of a copied table to nobody."""
        manifest = self._handover.manifest(self.job.id)
        if manifest is not None:
            self._handover.write_manifest(
                replace(manifest, state=TableState.CATCHING_UP, to_lsn=self._to, chunks=chunks)
            )
        if manifest is None or not jobs.copied(connection, self.job.id, self._to):
            self.abandon()  # called off meanwhile
            return
        self._step = self._watch

    def _watch(self, connection: Connection) -> None:
        """The delivery catches up. Here, it is seen when the table has joined the stream."""
        if self._has_joined():
            self._complete(connection)
        elif not self._in_trouble(connection):
            self._tell_committed(connection)
            self._tell_phase()

    def _tell_phase(self) -> None:
        manifest, committed = self._handover.manifest(self.job.id), self._handover.committed(self.job.id)
        if manifest is None or manifest.chunks is None or manifest.from_lsn is None or manifest.to_lsn is None:
            return
        captured = captured_upto(self._copying.state)
        waiting = max(0, manifest.chunks - len(committed.chunks))
        self.phase = self.waiting_for = ""
        if waiting:
            self.waiting_for = f"the sink to commit {waiting:,} of {manifest.chunks:,} chunks"
        elif captured < manifest.to_lsn:
            self.waiting_for = f"capture to reach {manifest.to_lsn}; it is at {captured}"
        else:
            replayed = committed.replayed or manifest.from_lsn
            left = size_in_words(max(0, captured - replayed))
            self.phase = f"applying the changes since the copy began: up to {replayed}, {left} of WAL left"

    def _has_joined(self) -> bool:
        ready = read_admission(self._copying.state.parts, self.job.sink).ready.get(self.job.table_oid)
        return ready is not None and ready.job >= self.job.id

    def _complete(self, connection: Connection) -> None:
        jobs.completed(connection, self.job.id)
        logger.info("Imported %s.", self.name)
        self.ended = True

    def _waits(self, connection: Connection, xids: Sequence[int]) -> bool:
        running = still_running(connection, xids)
        before, self.waiting_for = self.waiting_for, ", ".join(running[:3])
        if running and self.waiting_for != before:
            logger.info("The import of %s waits for running transactions: %s.", self.name, self.waiting_for)
        return bool(running)

    def _layout(self, connection: Connection) -> TableLayout | None:
        """None: the table is gone, and with it the import."""
        self.waiting_for = ""
        layout = table_layout(connection, self.job.table_oid, self._copying.publications)
        if layout is None:
            logger.info("%s is not published any more: its import ends.", self.name)
            jobs.remove_jobs(connection, self.job.pipeline, [self.job.table_oid])
            self._handover.remove(self.job.id)
            self.ended = True
        return layout

    def _add(self, connection: Connection, layout: TableLayout, chunks: Sequence[Chunk]) -> None:
        jobs.add_chunks(connection, self.job.id, chunks, layout)
        self.job = replace(self.job, layout=layout, chunks=self.job.chunks + len(chunks))

    def _tell_committed(self, connection: Connection) -> bool:
        """What the sink holds is done. Returns whether there are chunks that nobody has read yet."""
        committed = set(self._handover.committed(self.job.id).chunks)
        unfinished = jobs.unfinished_chunks(connection, self.job.id)
        # Not those that are being read as far as the queue knows: whoever read them has yet to say how many rows there were.
        done = [number for number, state in unfinished if state is ChunkState.STAGED and number in committed]
        if done:
            jobs.chunks_done(connection, self.job.id, done)
        return any(state is not ChunkState.STAGED for _, state in unfinished)

    def _in_trouble(self, connection: Connection) -> bool:
        """What the delivery says of it. An error that may pass is shown; it tries again by itself."""
        done = self._handover.committed(self.job.id)
        if done.trouble is Trouble.LOST:
            self.begin_anew(connection, done.error or "")
            return True
        if done.trouble is Trouble.STOP:
            raise ImportFailed(done.error or "")
        return False

    def refuse_full_log(self) -> None:
        """Capture stops at ``log.max_bytes`` and goes on when the log shrinks, which this import does not let it."""
        if self._handover.manifest(self.job.id) is not None:
            raise LogFull(
                "The change log reached log.max_bytes while the table was copied.",
                "Raise log.max_bytes, or import the table when less is written. It is tried again.",
            )

    def begin_anew(self, connection: Connection, because: str) -> Job:
        """As another job, so that nothing of this one is taken for a part of it."""
        logger.warning("The import of %s begins anew: %s", self.name, because)
        job = self.job
        self._handover.remove(job.id)
        wanted = NewJob(job.sink, job.table_oid, job.schema_name, job.table_name, True, job.membership)
        (made,) = jobs.create_jobs(connection, job.pipeline, [wanted])
        self.ended = True
        return made

    def abandon(self) -> None:
        self._handover.remove(self.job.id)
        self.ended = True

    def give_up(self, connection: Connection, error: PenstockError, retry_in: float) -> None:
        """For now: what is there stays and is gone on with. But a full log is let go."""
        job = self.begin_anew(connection, str(error)).id if isinstance(error, LogFull) else self.job.id
        jobs.failed(connection, job, in_words(error), retry_in)
        self.ended = True


def in_words(error: PenstockError) -> str:
    """With what to do about it, such as a GRANT, where the error knows."""
    return f"{error} {error.advice}" if error.advice else str(error)


def _holds(planned: TableLayout, now: TableLayout) -> bool:
    """Whether every chunk that was planned is still good; more partitions do no harm to it."""
    known = {(leaf.oid, leaf.filenode) for leaf in planned.leaves}
    return planned.relation == now.relation and known <= {(leaf.oid, leaf.filenode) for leaf in now.leaves}


def _added_leaves(planned: TableLayout, now: TableLayout) -> tuple[Leaf, ...]:
    """Partitions that were attached meanwhile, if that is all that changed and they can be read by themselves."""
    known = {(leaf.oid, leaf.filenode) for leaf in planned.leaves}
    separate = planned.by_pages and now.by_pages and not planned.by_snapshot and planned.leaves
    if not separate or not _holds(planned, now):
        return ()
    return tuple(leaf for leaf in now.leaves if (leaf.oid, leaf.filenode) not in known)
