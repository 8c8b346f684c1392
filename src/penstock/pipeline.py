"""Read this first: a pipeline, top to bottom.

    Postgres WAL ─▶ capture ─▶ change log ─▶ Spark: decode ▶ sink.write ─▶ sink.commit
          ▲            │    (Arrow segments)     (executors)                (driver)
          └── LSN ◀────┴──────────── position of the slowest sink ◀─────────┘

Data moves left to right only. One thing travels back: an LSN. Rows that were there before (``mode: copy_and_stream``) come
by imports: ``copy`` reads tables in chunks through the same ``sink.write``, and delivery commits them. ``capture``, ``copy``
and ``deliver`` know each other only by the files under ``state_dir`` and a queue in the source, so they may run in one place
or in three; ``run`` keeps all alive as child processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.capture.capture import Capture
from penstock.config.load import load_config
from penstock.config.model import Config
from penstock.control.administration import Administration
from penstock.control.supervision import ChildMisconfigured, Role, Supervisor, repeated
from penstock.errors import ConfigError
from penstock.imports.copying import CopierTask
from penstock.imports.manager import chosen_tables
from penstock.lsn import LSN
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.postgres.tables import tables_matching
from penstock.retry import interval
from penstock.subscription.subscription import NotAllRemoved, Subscription

logger = logging.getLogger(__name__)

RECONCILE_SECONDS = interval(10.0)


class Pipeline(Administration):
    """One source, one slot, one log, any number of sinks. The verbs that move data are here; the others are inherited."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._is_new = False  # whether ``begin`` has made the subscription

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        return cls(load_config(Path(path)))

    def run(
        self,
        once: bool = False,
        sinks: Sequence[str] = (),
        stop: threading.Event | None = None,
        copy: bool = True,
        begun: bool = False,
    ) -> None:
        """Capture, imports and delivery together. ``once``: until every sink holds all that is committed in the source now.

        A fresh pipeline gets its subscription first, so that ``run`` alone is enough to begin. In ``mode: copy`` it is always
        once, and in the end nothing is left in the source. ``begun``: the caller has called ``begin`` itself.
        """
        if not begun:
            self.begin(sinks, copy)
        copies, stop = self.config.source.copies and copy, stop or threading.Event()
        self._report_edit(self.reconcile())
        self._warn_of_tables_without_identity()
        until = self._committed_now() if once or self.config.source.mode == "copy" else None
        self._supervise(tuple(sinks), until, stop, CopierTask(once=until is not None) if copies else None)
        self._clear_away_unless(stop)

    def begin(self, sinks: Sequence[str] = (), copy: bool = True) -> Subscription:
        """What ``run`` does first: refuses what cannot work, then makes what is missing. In this order, so that a mistake in
        a rule or a sink leaves nothing on the source."""
        if self.config.source.mode == "copy" and not copy:
            raise ConfigError("source.mode is copy: without copying, there is nothing to do.", "Leave out --no-copy.")
        self._readiness(sinks).require()
        self._is_new = self.state.source() is None
        return self._create()

    def _supervise(
        self, sinks: tuple[str, ...], until: LSN | None, stop: threading.Event, copying: CopierTask | None
    ) -> None:
        try:
            with repeated(self.keep_tables_in_step, RECONCILE_SECONDS, "reconcile"):
                Supervisor(self.config, sinks, until, self._roles(), copying=copying).run(stop)
        except ChildMisconfigured:  # by what only Spark can see, such as a column that a `sql` rule does not find
            self._undo_beginning()
            raise

    def _roles(self) -> tuple[Role, ...]:
        return ("deliver",) if self.state.capturing() else ("capture", "deliver")

    def _committed_now(self) -> LSN:
        with connect(self._url) as connection:
            return catalog.wal_marker(connection)

    def _warn_of_tables_without_identity(self) -> None:
        if self.config.source.publications:
            return
        with connect(self._url) as connection:
            found = tables_matching(connection, chosen_tables(connection, self.config))
        if poor := [table.qualified_name for table in found if not table.has_usable_identity]:
            logger.warning(
                "Only inserts are captured of %s: no primary key and no replica identity. `penstock check` has the remedy.",
                ", ".join(poor),
            )

    def _clear_away_unless(self, stop: threading.Event) -> None:
        """In ``mode: copy`` nothing is left in the source when the work is done."""
        if self.config.source.mode == "copy" and not stop.is_set():
            self._destroy_aloud("Removed %s.")

    def _undo_beginning(self) -> None:
        """Of a pipeline that this process has begun and that no sink has anything of."""
        known = [self.state.sink(sink.name) for sink in self.config.sinks]
        if self._is_new and all(sink is None or sink.lsn is None for sink in known):
            self._destroy_aloud("Removed %s, which this start had made.")

    def _destroy_aloud(self, words: str) -> None:
        try:
            removed: Sequence[str] = self.destroy()
        except NotAllRemoved as error:
            logger.warning("%s %s", error, error.advice)
            removed = error.removed
        for what in removed:
            logger.info(words, what)

    def capture(self, stop: threading.Event) -> None:
        """Reads the slot into the log until ``stop``."""
        self.state.claim(self.config.name)
        Capture(self.config, stop).run()

    def deliver(
        self,
        stop: threading.Event,
        names: Sequence[str] = (),
        until: LSN | None = None,
        available_now: bool = False,
        copying: CopierTask | None = None,
    ) -> None:
        """Brings the log to the sinks until ``stop``, or until all hold what lies below ``until``, or all there is now.

        ``copying``: and copies tables.
        """
        from penstock.spark.deliveries import deliver  # a JVM is started only by those who need one

        self.state.claim(self.config.name)
        deliver(self.config, self.sinks(names), self.state, stop, until, available_now, copying)

    def run_delivery(self, once: bool = False, sinks: Sequence[str] = (), stop: threading.Event | None = None) -> None:
        """``deliver`` in a child process that is kept alive. ``once``: until every sink holds all that the log has now."""
        self.sinks(sinks)
        if self.config.rules:
            from penstock.imports.rule_checks import refuse_unfit_where_known

            refuse_unfit_where_known(self.config, self.state.parts)
        stop = stop or threading.Event()
        Supervisor(self.config, tuple(sinks), None, roles=("deliver",), available_now=once).run(stop)

    def copy(self, tables: Sequence[str] = (), stop: threading.Event | None = None) -> None:
        """Imports alone, of these tables or of all that are due. For sinks that another process delivers to, it only copies;
        otherwise it captures and delivers as well until they are complete."""
        if not self.config.source.copies:
            raise ConfigError(
                "source.mode is stream, which never copies a table.",
                "Set source.mode to copy_and_stream or copy first.",
            )
        elsewhere = tuple(sink.name for sink in self.config.sinks if self.state.delivering(sink.name))
        if not elsewhere and not tables:
            self.run(once=True, stop=stop)
            return
        if elsewhere:
            self.init()
        else:
            self._readiness().require_selected(tables)
            self.begin()
        with self._tables() as known:
            known.keep_in_step()
            oids = tuple(table.oid for table in known.find(tables)) if tables else None
        copying, stop = CopierTask(oids, once=True), stop or threading.Event()
        if elsewhere:
            Supervisor(self.config, elsewhere, None, ("copy",), copying=copying).run(stop)
        else:
            self._supervise((), self._committed_now(), stop, copying)
            self._clear_away_unless(stop)

    def copy_for_others(self, stop: threading.Event, names: Sequence[str], copying: CopierTask) -> None:
        """Copies tables for sinks that another process delivers to."""
        from penstock.spark.deliveries import copy

        self.state.claim(self.config.name)
        copy(self.config, self.sinks(names), self.state, stop, copying)
