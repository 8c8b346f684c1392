"""The copier: takes imports from the queue in the source, and has their chunks read by executors.

Any number of copiers may work on one pipeline, here or on other machines. The queue gives each chunk to one of them, and
takes it back from one that died. One thread, the coordinator, moves imports from step to step; the others, the workers,
claim chunks and wait until they are read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from penstock.config.model import Config
from penstock.error_policy import Verdict, policy_for
from penstock.errors import ImportFailed, PenstockError, SourceError, SourceUnavailable, SparkLost
from penstock.imports import jobs
from penstock.imports.copying import CopierTask, Copying, MovedKeys, TableCopy, in_words
from penstock.imports.handover import ChunkToCopy, CopiedChunk, Handover
from penstock.imports.jobs import Job
from penstock.imports.progress import Phase, write_progress
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.read_chunk import LayoutChanged
from penstock.retry import Backoff, interval
from penstock.state.lifecycle import TableState
from penstock.state.pipeline_state import PipelineState
from penstock.state.publications_read import in_step
from penstock.subscription import subscription

logger = logging.getLogger(__name__)

_LOOK_SECONDS, _IDLE_LOOK_SECONDS = 0.1, 0.5  # with no import under way, the source is asked less often
_REPORT_SECONDS, _IDLE_REPORT_SECONDS = 0.5, interval(10.0)
_PATIENCE_SECONDS = 20.0
_FIRST_RETRY_SECONDS, _MOST_RETRY_SECONDS = interval(2.0), interval(300.0)


Unfinished = Callable[[Collection[str]], bool]  # for sinks other than those that were given up
# (sink, chunks of it, publications) -> what became of each chunk, once their receipts are durable
ReadChunks = Callable[[str, Sequence[ChunkToCopy], tuple[str, ...]], Sequence[CopiedChunk]]


class Copier:
    """``sinks``: their names. ``read_chunks`` and ``moved_keys`` run where Spark is: ``spark/imports.py``."""

    def __init__(
        self, config: Config, sinks: Sequence[str], state: PipelineState, task: CopierTask, read_chunks: ReadChunks,
        moved_keys: MovedKeys,
    ) -> None:  # fmt: skip
        self._config, self._sinks, self._state, self._task = config, tuple(sinks), state, task
        self._read_chunks, self._moved_keys = read_chunks, moved_keys
        self._url = config.source.url.get_secret_value()
        self._copies: dict[int, TableCopy] = {}
        self._queue_lock = threading.Lock()  # of the coordinator's connection to the queue
        self._connection: Connection | None = None
        self._workers_lock = threading.Lock()  # of the connection that the workers share
        self._workers_connection: Connection | None = None
        self._chunk_errors: deque[tuple[int, PenstockError]] = deque()  # of chunks; from the workers to the coordinator
        self._copier = 0
        self._copying: Copying | None = None
        self._end = threading.Event()
        self._backoffs: dict[tuple[str, int], Backoff] = {}
        self._refused: dict[tuple[str, int], str] = {}
        self._recorded: list[Job] = []  # the imports that concern us, a moment ago
        self._open_sinks: set[str] | None = None  # sinks with imports to come; None: not known yet
        workers = config.copying_workers
        self._threads = [threading.Thread(target=self._coordinate, name="imports", daemon=True)] + [
            threading.Thread(target=self._work, name=f"copy {number}", daemon=True) for number in range(workers)
        ]

    @contextmanager
    def copying(self) -> Iterator[Unfinished]:
        """Copies meanwhile; yields whether there is something left to do. Raises in the end if an import was refused."""
        self.start()
        try:
            yield self.unfinished
        finally:
            self.stop()
        self.raise_refusals()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """A chunk that is being read is abandoned; the next copier reads it again."""
        self._end.set()
        deadline = time.monotonic() + _PATIENCE_SECONDS  # for all of them together
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with suppress(PenstockError):
            self._report()
        for connection in (self._workers_connection, self._connection):
            if connection is not None:
                connection.close()  # and with the latter, our claims

    def unfinished(self, given_up: Collection[str] = ()) -> bool:
        """Whether there is something left to do for sinks that are not given up."""
        if not self._task.once:
            return False
        if self._copying is None or self._open_sinks is None or not self._open_sinks <= set(given_up):
            return True
        # Publications that come in bring tables.
        return self._task.tables is None and not in_step(self._state.parts, self._copying.publications)

    def raise_refusals(self) -> None:
        if self._task.once and self._refused:
            raise ImportFailed(" ".join(self._refused.values()))

    @contextmanager
    def _coordinator_connection(self) -> Iterator[Connection]:
        """To the queue; opened again when it broke. A new connection is a new copier: the claims of the old one are free."""
        with self._queue_lock:
            if self._connection is None or self._connection.closed or self._connection.broken:
                self._copies.clear()
                connection = connect(self._url, application_name="penstock imports")
                self._copying = self._shared(connection)
                self._copier = jobs.register_copier(connection)
                self._connection = connection
            yield self._connection

    @contextmanager
    def _worker_connection(self) -> Iterator[Connection]:
        """Beside the coordinator's, which is busy for longer."""
        with self._workers_lock:
            if self._workers_connection is None or self._workers_connection.closed:
                self._workers_connection = connect(self._url, application_name="penstock imports")
            yield self._workers_connection

    def _shared(self, connection: Connection) -> Copying:
        config = self._config
        subscribed = subscription.find(connection, config.name, config.source.publications)
        if subscribed is None:
            raise SourceUnavailable(
                f'The subscription "{config.name}" does not exist on the source.', "Run `penstock init`."
            )
        return Copying(config, self._state, subscribed.publications, self._moved_keys)

    # The coordinator.

    def _coordinate(self) -> None:
        backoff, next_report, busy = Backoff(), 0.0, True
        while not self._end.wait(_LOOK_SECONDS if busy else _IDLE_LOOK_SECONDS):
            try:
                self._advance_all()
                was_busy, busy = busy, bool(self._copies) or self.unfinished()
                starts_long_step = any(copy.starts_long_step for copy in self._copies.values())
                if time.monotonic() >= next_report or (was_busy and not busy) or starts_long_step:
                    self._report()
                    next_report = time.monotonic() + (_REPORT_SECONDS if busy else _IDLE_REPORT_SECONDS)
                backoff.reset()
            except PenstockError as error:
                delay = next(backoff)
                logger.warning("Imports: %s %s Next try in %.1f s.", error, policy_for(error).advice, delay)
                self._end.wait(delay)
            except Exception:
                logger.exception("A fault in the copier.")
                self._release_claims()
                self._end.wait(next(backoff))

    def _release_claims(self) -> None:
        """The claims end with the connection."""
        with self._queue_lock:
            self._copies.clear()
            if self._connection is not None:
                self._connection.close()

    def _advance_all(self) -> None:
        with self._coordinator_connection() as connection:
            assert self._copying is not None
            name, tables = self._config.name, self._task.tables
            at_once = (
                self._task.once and self._open_sinks is None
            )  # the user may have fixed the cause, and asks for it now
            for job in jobs.claim_jobs(connection, name, self._copier, self._sinks, tables, at_once):
                self._copies[job.id] = TableCopy(job, self._copying)
        full = self._state.log.contents().bytes >= self._config.log.max_bytes
        with self._coordinator_connection() as connection:
            self._handle_errors(connection)
            for number, copy in list(self._copies.items()):
                if not copy.ended:
                    self._advance(connection, copy, full)
                if copy.ended:
                    self._copies.pop(number, None)

    def _handle_errors(self, connection: Connection) -> None:
        while self._chunk_errors:
            job, error = self._chunk_errors.popleft()
            copy = self._copies.get(job)
            if copy is None:  # another copier's job, of which we read a chunk; a changed layout it sees by itself
                if not isinstance(error, LayoutChanged):
                    jobs.failed(connection, job, in_words(error), _FIRST_RETRY_SECONDS)
            elif copy.ended:
                continue
            elif isinstance(error, LayoutChanged):
                copy.layout_changed(str(error))
            else:
                self._refuse(connection, copy, error)

    def _advance(self, connection: Connection, copy: TableCopy, log_is_full: bool) -> None:
        try:
            if log_is_full:
                copy.refuse_full_log()
            copy.advance(connection)
        except PenstockError as error:
            if policy_for(error).verdict is Verdict.RETRY and isinstance(error, SourceError | SparkLost):
                raise
            self._refuse(connection, copy, error)

    def _refuse(self, connection: Connection, copy: TableCopy, error: PenstockError) -> None:
        """It is tried again later; the other imports continue."""
        key = _key(copy.job)
        delay = next(self._backoffs.setdefault(key, Backoff(first=_FIRST_RETRY_SECONDS, most=_MOST_RETRY_SECONDS)))
        self._refused[key] = _refusal(copy.job, in_words(error))
        logger.error(
            "The import of %s failed: %s %s Next try in %.0f s.", copy.name, error, policy_for(error).advice, delay
        )
        copy.give_up(connection, error, delay)

    def _report(self) -> None:
        with self._coordinator_connection() as connection:
            current = jobs.active_jobs(connection, self._config.name)
            phases = {number: Phase(copy.phase, copy.waiting_for) for number, copy in self._copies.items()}
            write_progress(self._state.parts, current, phases)
            by_id = {job.id: job for job in current if job.state is not TableState.REMOVED}
            for number, copy in list(self._copies.items()):
                if number not in by_id:  # removed, or to be copied again
                    copy.abandon()
                if number not in by_id or by_id[number].copier != self._copier:  # or another's by now
                    self._copies.pop(number)
        self._recorded = [job for job in current if job.sink in self._sinks and self._concerns(job)]
        for job in self._recorded:
            if not job.state.being_imported:
                self._refused.pop(_key(job), None)
            elif job.state is TableState.FAILED:  # also if it was another copier that failed
                self._refused.setdefault(_key(job), _refusal(job, job.error or ""))
        self._open_sinks = {
            job.sink for job in self._recorded if job.state.being_imported and _key(job) not in self._refused
        }

    def _concerns(self, job: Job) -> bool:
        return self._task.tables is None or job.table_oid in self._task.tables

    # The workers.

    def _work(self) -> None:
        backoff, pause = Backoff(), _LOOK_SECONDS
        while not self._end.is_set():
            try:
                done = self._copy_some()
                backoff.reset()
                pause = _LOOK_SECONDS if done else min(2 * pause, _IDLE_LOOK_SECONDS)
                if not done:
                    self._end.wait(pause)
            except PenstockError as error:
                delay = next(backoff)
                if not (isinstance(error, SparkLost) and self._end.is_set()):  # Spark may have been stopped before us
                    logger.warning("Copying: %s %s Next try in %.1f s.", error, policy_for(error).advice, delay)
                self._end.wait(delay)
            except Exception:
                logger.exception("A fault while copying.")
                self._end.wait(next(backoff))

    def _copy_some(self) -> bool:
        """One Spark task: a chunk of a large table, or several small ones of one sink. Of whatever copier's import."""
        copied_here = any(copy.being_copied for copy in list(self._copies.values()))
        if not copied_here and not any(job.state is TableState.COPYING for job in self._recorded):
            return False
        sinks = [name for name in self._sinks if not self._too_many_receipts(name)]
        if not sinks:
            return False
        copy = self._config.source.copying
        with self._worker_connection() as connection:
            claimed = jobs.claim_chunks(
                connection, self._config.name, self._copier, copy.chunk_bytes, copy.max_connections,
                sinks=sinks, tables=self._task.tables,
            )  # fmt: skip
        if not claimed:
            return False
        begun = time.monotonic()
        try:
            results = self._read(claimed)
        except BaseException:
            self._give_back(claimed)
            raise
        self._record(results)
        self._keep_rate(sum(result.rows for result in results), begun)
        return True

    def _read(self, claimed: Sequence[tuple[Job, Chunk]]) -> Sequence[CopiedChunk]:
        assert self._copying is not None
        chunks = [
            ChunkToCopy(job.id, job.layout, chunk, job.from_lsn)
            for job, chunk in claimed
            if job.layout is not None and job.from_lsn is not None
        ]
        return self._read_chunks(claimed[0][0].sink, chunks, self._copying.publications)

    def _record(self, results: Sequence[CopiedChunk]) -> None:
        passing: PenstockError | None = None
        with self._worker_connection() as connection:
            for result in results:
                if result.error is None:
                    jobs.chunks_staged(connection, result.job, {result.number: (result.rows, result.bytes)})
                else:
                    jobs.chunks_again(connection, result.job, [result.number])
                if result.error is not None and not _is_transient(result.error):
                    self._chunk_errors.append((result.job, result.error))
                passing = result.error if result.error is not None and _is_transient(result.error) else passing
        if passing is not None:
            raise passing

    def _give_back(self, claimed: Sequence[tuple[Job, Chunk]]) -> None:
        try:
            with self._worker_connection() as connection:
                for job, chunk in claimed:
                    jobs.chunks_again(connection, job.id, [chunk.number])
        except PenstockError as error:
            logger.debug("Chunks are given back with the connection: %s", error)

    def _too_many_receipts(self, sink: str) -> bool:
        """The sink does not keep up: what is staged takes room on disk."""
        own = [copy.job for copy in list(self._copies.values()) if copy.being_copied]
        others = [job for job in self._recorded if job.state is TableState.COPYING]
        large = {job.id for job in own + others if job.sink == sink and job.chunks > 1}
        handover = Handover(self._state.root, sink)
        return sum(len(handover.receipts(job)) for job in large) > 2 * self._config.copying_workers

    def _keep_rate(self, rows: int, begun: float) -> None:
        rate, workers = self._config.source.copying.rows_per_second, self._config.copying_workers
        if rate is not None:
            self._end.wait(max(0.0, begun + rows * workers / rate - time.monotonic()))


def _key(job: Job) -> tuple[str, int]:
    return job.sink, job.table_oid


def _refusal(job: Job, because: str) -> str:
    return f'{job.qualified_name} into "{job.sink}" was not imported: {because}'


def _is_transient(error: PenstockError) -> bool:
    """Such as a lost connection: the chunk is read again, and the import continues."""
    return policy_for(error).verdict is Verdict.RETRY
