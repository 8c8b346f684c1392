"""Capture: replication stream ▶ change log ▶ acknowledge. The one reader of the slot.

It does as little as possible with each message, since the slot is one sequential stream: values are decoded later, in
Spark's executors.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.capture.heartbeat import Heartbeat
from penstock.capture.history import History, newest_transaction
from penstock.capture.resume import Positions, resume_point
from penstock.changelog.clustering import Chunk, Clusterer, chunk
from penstock.changelog.log import ChangeLog
from penstock.changelog.upkeep import Merger, Retention
from penstock.changelog.writer import LogWriter
from penstock.config.model import Config
from penstock.error_policy import Verdict, policy_for
from penstock.errors import LogError, LogFull, PenstockError, PublicationMissing, SlotBusy, SlotLost
from penstock.imports.handover import Handover
from penstock.lsn import LSN, ZERO
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.postgres.describe import RelationDescriber
from penstock.postgres.replication_stream import ReplicationStream
from penstock.postgres.slot import slot_state, timeline_end
from penstock.process import return_large_buffers
from penstock.retry import Backoff, interval
from penstock.state.pipeline_state import CaptureState, PipelineState, SourceState, now
from penstock.state.publications_read import PublicationSwitch
from penstock.subscription import subscription

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 1 << 20  # between two looks at the clock
_HAND_OVER_BYTES = 2 << 20  # to the writer, if it is idle
_MOST_WAITING_BYTES = 8 << 20  # while the writer is busy; then we stop reading for a moment
_MUCH_BYTES = 1 << 20  # that lie ready when the server has no more: there is nothing to linger for
_PAUSE_SECONDS = 0.005  # in which the server sends more, if it has more; or a twentieth of log.linger
_HOUSEKEEPING_SECONDS = interval(1.0)
_BEHIND_LINGER = 5  # while the server has more for us than we can take, larger segments serve everyone better


class Capture:
    """Runs until ``stop`` is set or an error says that trying again is of no use."""

    def __init__(self, config: Config, stop: threading.Event) -> None:
        self._config = config
        self._stop = stop
        self._state = PipelineState(config.state_dir)
        self._log = self._state.log
        url, imports = config.source.url.get_secret_value(), config.source.copies
        self._publications = PublicationSwitch(self._state.parts, url, imports)

    def run(self) -> None:
        return_large_buffers()
        self._state.create()
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                with self._state.exclusive_capture():
                    connected = backoff.reset
                    _Session(self._config, self._state, self._log, self._stop, connected, self._publications).run()
            except PenstockError as error:
                if isinstance(error, PublicationMissing) and self._publications.leave_out(error):
                    continue
                policy = policy_for(error)
                self._note(error)
                if policy.verdict is Verdict.STOP:
                    raise
                delay = next(backoff)
                logger.warning("%s %s Next try in %.1f s.", error, policy.advice, delay)
                self._stop.wait(delay)

    def _note(self, error: PenstockError) -> None:
        captured = self._state.capture()
        if captured is not None:
            state = "retrying" if policy_for(error).verdict is Verdict.RETRY else "failed"
            known = CaptureState(captured.begin, captured.log_end, captured.position, now(), state, str(error))
            with suppress(LogError):  # it is for people who look; the error itself matters more
                self._state.save(known)


class _Session:
    """One replication connection, from the comparison of positions to its end."""

    def __init__(
        self, config: Config, state: PipelineState, log: ChangeLog, stop: threading.Event, connected: Callable[[], None],
        publications: PublicationSwitch,
    ) -> None:  # fmt: skip
        self._config, self._state, self._log, self._stop, self._connected = config, state, log, stop, connected
        self._publications = publications
        self._url = config.source.url.get_secret_value()
        self._retention = Retention(log, config.log.retention)
        self._confirmed, start, self._slot = self._compare_positions()
        self._stream = ReplicationStream(self._url, self._slot, publications.names, self._history.read_from)
        try:
            self._begin(start)
        except BaseException:
            self._stream.close()
            raise

    def _compare_positions(self) -> tuple[LSN, LSN, str]:
        config, source = self._config, self._config.source
        with connect(self._url) as connection:
            found = subscription.find(connection, config.name, source.publications)
            if found is None:
                raise SlotLost(
                    f'The subscription "{config.name}" does not exist on the source.', "Run `penstock init` first."
                )
            slot = slot_state(connection, found.slot)
            identity = catalog.server_identity(connection)
            timeline = None if identity.in_recovery else identity.timeline
            recorded_history = self._state.history()
            left_at = timeline_end(connection, recorded_history.timeline if recorded_history else None, timeline)
        contents = self._log.contents()
        self._log_bytes, self._log_end = contents.bytes, contents.end
        newest = newest_transaction(self._log, contents, recorded_history)
        known = Positions(
            found.slot, slot.confirmed_flush_lsn if slot else None, slot.lost_because if slot else None,
            str(identity.system_identifier), slot.current_lsn if slot else ZERO, self._state.source(), contents.end,
            self._state.capture(),
            {sink.name: self._sink_position(sink.name) for sink in config.sinks},
            newest.final_lsn if newest else None, left_at,
        )  # fmt: skip
        start = resume_point(known)
        assert slot is not None
        with connect(self._url) as connection:
            self._publications.begin(connection, found.publications, max(start, known.empty_to))
        self._history = History(self._state, self._publications.names, timeline, newest)
        self._history.expect(slot.confirmed_flush_lsn, start, known.empty_to, self._publications.read_from)
        recorded = self._state.source()
        id = recorded.id if recorded is not None else ""
        self._source_state = SourceState(config.name, str(identity.system_identifier), found.slot, id)
        return slot.confirmed_flush_lsn, start, found.slot

    def _begin(self, start: LSN) -> None:
        """The slot is ours now, so whatever a dead writer left in the log is ours to clear away."""
        self._state.save(self._source_state)
        self._history.begin()
        contents = self._log.contents()
        if contents.end != self._log_end:
            raise SlotBusy("Another capture wrote to the log while this one started.")
        self._log.directory.remove_leftovers()
        self._log.delete(contents.unfinished)
        captured = self._state.capture()
        self._start = start
        self._log_end_before = self._log_end or (captured.log_end if captured else start)
        self._first = captured.begin if captured else start
        self._position = max(start, captured.position) if captured and self._log_end else start
        self._position = max(self._position, self._publications.read_from)
        self._ends = False  # to go on with other publications
        self._describer = RelationDescriber(self._url)
        clusterer = Clusterer(start, self._describer, self._config.log.segment_bytes)
        self._writer = LogWriter(self._log, clusterer, self._log_bytes)
        self._editing = threading.Lock()  # the log's old segments: retention and merging take turns
        self._merger = Merger(self._state.log_uri, self._config.log.segment_bytes, self._editing)
        self._heartbeat = Heartbeat(self._url, self._config.source.heartbeat)
        self._imports = {sink.name: Handover(self._state.root, sink.name) for sink in self._config.sinks}
        self._saved_at = self._next_warning = 0.0
        self._warnings = Backoff(first=2.0, most=300.0)  # of a full disk: housekeeping meets it every second
        self._waiting_for_room = False
        logger.info('Reading slot "%s" from %s.', self._slot, start)

    def run(self) -> None:
        try:
            self._merger.start()
            self._read()
            self._writer.wait_idle(10)
            self._keep_house(pending=True)  # what was received and not handed over is forgotten here, and comes again
        finally:
            self._merger.stop()
            self._writer.close()
            self._describer.close()
            self._heartbeat.close()
            self._stream.close()

    def _read(self) -> None:
        chunks: list[Chunk] = []
        messages: list[bytes] = []
        size, unflushed, last_flush, next_house = 0, 0, 0.0, 0.0
        linger, segment = self._config.log.linger, self._config.log.segment_bytes
        most_received, hand_over = min(_RECEIVE_BYTES, segment), min(_HAND_OVER_BYTES, segment)
        most_waiting = min(_MOST_WAITING_BYTES, 4 * segment)
        while not self._stop.is_set() and not self._ends:
            full = size >= most_waiting
            try:
                received = 0 if full or not self._has_room() else self._stream.receive(messages, most_received)
            except PublicationMissing as missing:
                messages = self._history.messages_before(missing, messages)
                self._write_out([*chunks, chunk(messages)] if messages else chunks)
                raise
            clock = time.monotonic()
            if self._history.watching:
                messages = self._history.new_messages(messages, self._stream.server_end)
            if messages:
                chunks.append(chunk(messages))
                messages.clear()
                size += received
                unflushed += received
            waiting = bool(chunks) or self._writer.unflushed
            patience = linger * _BEHIND_LINGER if received >= most_received else linger
            if self._stream.idle and unflushed >= _MUCH_BYTES:
                patience = 0.0
            flush = waiting and clock - last_flush >= patience
            if (flush or size >= hand_over) and self._writer.idle:
                self._writer.hand_over(chunks, flush)
                chunks, size = [], 0
                if flush:
                    unflushed, last_flush = 0, clock
                self._connected()
            elif full:
                self._writer.wait_idle(0.1)
            if clock >= next_house or self._stream.reply_requested:
                self._keep_house(pending=bool(chunks))
                next_house = clock + _HOUSEKEEPING_SECONDS
            if received == 0 and not full:
                until_flush = max(linger - (clock - last_flush), 0.001) if waiting else 1.0
                self._wait(min(until_flush, next_house - clock, 0.2))

    def _write_out(self, chunks: list[Chunk]) -> None:
        """What was received before a publication was missing: it does not come again with what is left of them."""
        while not self._writer.wait_idle(1):
            pass
        self._writer.hand_over(chunks, True)
        while not self._writer.wait_idle(1):
            pass

    def _wait(self, seconds: float) -> None:
        if self._waiting_for_room:
            self._stop.wait(0.1)  # the socket has something for us all the time, which we do not want yet
        else:
            self._stream.wait(seconds, min(self._config.log.linger / 20, _PAUSE_SECONDS))

    def _has_room(self) -> bool:
        waiting = self._writer.bytes >= self._config.log.max_bytes and self._room_can_be_made()
        if waiting and not self._waiting_for_room:
            logger.warning(
                "The change log holds %d bytes, its bound (log.max_bytes). Capture waits until the sinks have caught up.",
                self._writer.bytes,
            )
        self._waiting_for_room = waiting
        return not waiting

    def _room_can_be_made(self) -> bool:
        """The log's last whole stretch stays in any case, and nobody reads a transaction whose end is not there: to wait
        with no more than that would be for ever."""
        return len(self._log.contents().stretches) > 1

    def _keep_house(self, pending: bool = False) -> None:
        """Positions, confirmation, retention. About once a second."""
        # Idle first: while the writer works, what it says of the rest may change at any moment.
        idle = not pending and self._writer.idle and not (self._writer.unflushed or self._writer.in_transaction)
        durable = self._writer.durable
        log_end = durable if durable > self._start else self._log_end_before
        reached = max(self._writer.seen, self._stream.server_end) if idle else durable
        if self._history.proven:
            self._heartbeat.beat_if_due(self._writer.seen)
            self._history.remember(self._writer.last_transaction)
        self._save(log_end, max(reached, self._position))
        sinks = [self._needed_from(sink.name) for sink in self._config.sinks]
        slowest = min((lsn for lsn in sinks if lsn is not None), default=None) if None not in sinks else None
        allowed = self._position if self._config.log.acknowledge == "log" else slowest
        if allowed is not None:
            # Not past what the server has shown on this connection: if it was set back, its slot would let go of the proof.
            shown = max(self._stream.server_end, self._writer.seen if self._writer.seen > self._start else ZERO)
            self._confirmed = max(self._confirmed, min(allowed, self._position, shown))
        self._stream.confirm(max(self._position, self._stream.server_end if idle else self._position), self._confirmed)
        self._enforce_retention(slowest)
        self._ends = self._publications.is_due(self._position)

    def _save(self, log_end: LSN, position: LSN) -> None:
        """Durable before anything up to ``position`` is confirmed: see resume.py. On a full disk it stays where it was."""
        full = self._writer.waits_because
        doing, error = ("waiting", f"{full} {policy_for(full).advice}") if full is not None else ("running", None)
        state = CaptureState(self._first, log_end, position, now(), doing, error)
        before = self._state.capture()
        if (
            before is None
            or before.position != state.position
            or before.state != state.state
            or now() - self._saved_at > 5
        ):
            try:
                self._state.save(state)
            except LogFull as error:
                if now() >= self._next_warning:
                    self._next_warning = now() + next(self._warnings)
                    logger.warning("%s Nothing more is confirmed to the source until there is room.", error)
                return
            self._saved_at = now()
            self._next_warning = 0.0
            self._warnings.reset()
        self._position = position

    def _sink_position(self, name: str) -> LSN | None:
        known = self._state.sink(name)
        return known.lsn if known else None

    def _needed_from(self, name: str) -> LSN | None:
        """The sink's position; or where an import began, whose table is still to be caught up from there."""
        position, imports = self._sink_position(name), self._imports[name].needed_from()
        return position if position is None or imports is None else min(position, imports)

    def _enforce_retention(self, slowest: LSN | None) -> None:
        if slowest is not None and self._writer.idle and self._editing.acquire(blocking=False):
            try:
                # A segment that is being written meanwhile is counted by the writer itself.
                self._writer.bytes = self._retention.enforce(min(slowest, self._confirmed), time.time())
            finally:
                self._editing.release()
