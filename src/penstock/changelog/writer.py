"""Writing the change log. One writer per log, in a thread of its own so that the reader keeps answering the server."""

from __future__ import annotations

import logging
import threading

from penstock import failpoints
from penstock.changelog.clustering import Chunk, Clusterer
from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import SegmentContent
from penstock.errors import LogFull
from penstock.lsn import LSN
from penstock.pgoutput.messages import Begin
from penstock.retry import Backoff

logger = logging.getLogger(__name__)


class LogWriter:
    """Clusters and writes what it is handed, one hand-over at a time.

    The guarantee, in order: (1) a segment is written under a temporary name and fsynced; (2) it is renamed, which makes it
    visible, and the directory is fsynced; (3) only then does ``durable`` move, and only what lies below ``durable`` is
    ever confirmed to Postgres. Killed before (2): the server still has it all and sends it again. Killed before (3): the
    log's end is read from the listing at the next start, so nothing comes twice.
    """

    def __init__(self, log: ChangeLog, clusterer: Clusterer, log_bytes: int) -> None:
        self.durable: LSN = clusterer.position  # end of the last complete segment on disk
        self.seen: LSN = clusterer.position  # end of the last transaction handled, also of those that left no row
        self.last_transaction: Begin | None = None  # likewise
        self.bytes = log_bytes
        self.waits_because: LogFull | None = (
            None  # there is no room for the next segment, which is tried again and again
        )
        self._log, self._clusterer = log, clusterer
        self._error: BaseException | None = None
        self._wake = threading.Condition()
        self._handed: list[Chunk] | None = None
        self._flush = False
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="log writer", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Nothing handed over that is not written. Raises what the writer's thread died of."""
        if self._error is not None:
            raise self._error
        return self._handed is None

    @property
    def in_transaction(self) -> bool:
        return self._clusterer.in_transaction

    @property
    def unflushed(self) -> bool:
        return self._clusterer.unflushed

    def hand_over(self, chunks: list[Chunk], flush: bool) -> None:
        """Only when ``idle``. ``flush``: what is whole goes to disk at once, however little it is."""
        assert self.idle
        with self._wake:
            self._handed, self._flush = chunks, flush
            self._wake.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._handed is None or self._error is not None, seconds)
        return self.idle

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._handed is not None or self._stopping)
                if self._handed is None:
                    return
                chunks = self._handed
            try:
                for content in self._clusterer.add(chunks, self._flush):
                    self._write(content)
                if not self._clusterer.unflushed:
                    self.seen, self.last_transaction = self._clusterer.seen, self._clusterer.last_transaction
            except BaseException as error:  # noqa: BLE001  carried to the thread that owns this writer, which raises it
                self._error = error
            with self._wake:
                self._handed = None
                self._wake.notify_all()
                if self._error is not None:
                    return

    def _write(self, content: SegmentContent) -> None:
        backoff = Backoff()
        while True:
            try:
                self.bytes += self._log.directory.write(
                    str(content.name), content.write, lambda: failpoints.reach(failpoints.SEGMENT_WRITTEN)
                )
                break
            except LogFull as error:
                if self._stopping:
                    raise
                self.waits_because = error
                delay = next(backoff)
                logger.warning("%s Capture waits; next try in %.1f s.", error, delay)
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, delay)
        self.waits_because = None
        failpoints.reach(failpoints.SEGMENT_VISIBLE)
        if content.name.complete:
            self.durable = content.name.end
