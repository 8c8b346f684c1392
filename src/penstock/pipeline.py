"""Read this first: a pipeline, top to bottom.

    Postgres WAL ─▶ capture ─▶ change log ─▶ Spark: decode ▶ sink.write ─▶ sink.commit
          ▲            │    (Arrow segments)     (executors)                (driver)
          └── LSN ◀────┴──────────── position of the slowest sink ◀─────────┘

Data moves left to right only. One thing travels back: an LSN. ``capture`` and ``deliver`` know each other only by the
files under ``state_dir``, so they may run in one place or in two; ``run`` keeps both alive as child processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.capture import Capture
from penstock.config.load import load_config
from penstock.config.model import Config
from penstock.error_policy import Verdict, policy_for
from penstock.errors import ConfigError, PenstockError, SinkUnavailable
from penstock.lsn import LSN
from penstock.postgres import catalog, subscription
from penstock.postgres.connection import connect
from penstock.postgres.preflight import Finding, check_source
from penstock.postgres.publication import Reconciliation
from penstock.postgres.subscription import Subscription
from penstock.postgres.tables import tables_matching
from penstock.resume import require_same_server
from penstock.sinks.contract import Sink
from penstock.sinks.registry import sink_class
from penstock.state import PipelineState, SourceState
from penstock.supervision import Supervisor, repeated

logger = logging.getLogger(__name__)

RECONCILE_SECONDS = 30.0


class Pipeline:
    """One source, one slot, one log, any number of sinks. The verbs of the command line are the methods here."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.state = PipelineState(config.state_dir)

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        return cls(load_config(Path(path)))

    @property
    def _url(self) -> str:
        return self.config.source.url.get_secret_value()

    def init(self) -> Subscription:
        """Makes the publication and the slot, or leaves them as they are if they exist."""
        self.state.claim(self.config.name)
        source = self.config.source
        with connect(self._url) as connection:
            identifier, recorded = str(catalog.server_identity(connection).system_identifier), self.state.source()
            require_same_server(identifier, recorded)
            made = subscription.create(connection, self.config.name, source.tables, source.publications)
            if recorded is None:  # from now on, this state is of this server
                self.state.save(SourceState(self.config.name, identifier, made.slot))
        return made

    def reconcile(self) -> Reconciliation | None:
        """Puts the tables that match into the publication and takes the others out; None for the user's own."""
        if self.config.source.publications:
            return None
        with connect(self._url) as connection:
            return subscription.reconcile_tables(connection, self.config.name, self.config.source.tables)

    def destroy(self) -> list[str]:
        """Removes the slot and the publication from the source, and this pipeline's state. Sinks keep what they have."""
        self.state.require_owner(self.config.name)
        source = self.config.source
        with connect(self._url) as connection:
            removed = subscription.destroy(connection, self.config.name, source.publications)
        return removed + self.state.remove()

    def capture(self, stop: threading.Event) -> None:
        """Reads the slot into the log until ``stop``."""
        self.state.claim(self.config.name)
        Capture(self.config, stop).run()

    def deliver(
        self, stop: threading.Event, names: Sequence[str] = (), until: LSN | None = None, available_now: bool = False
    ) -> None:
        """Brings the log to the sinks until ``stop``, or until all hold what lies below ``until``, or all there is now."""
        from penstock.spark.deliveries import deliver  # a JVM is started only by those who need one

        self.state.claim(self.config.name)
        deliver(self.config.spark, self.sinks(names), self.state, stop, until, available_now)

    def run(self, once: bool = False, sinks: Sequence[str] = (), stop: threading.Event | None = None) -> None:
        """Capture and delivery together. ``once``: until every sink holds all that is committed in the source now.

        A fresh pipeline gets its subscription first, so that ``run`` alone is enough to begin.
        """
        self._refuse_to_start(self.sinks(sinks))
        self.init()
        self.reconcile()
        self._warn_of_tables_without_identity()
        until = self._committed_now() if once else None
        with repeated(self.keep_tables_in_step, RECONCILE_SECONDS, "reconcile"):
            Supervisor(self.config, tuple(sinks), until).run(stop or threading.Event())

    def _refuse_to_start(self, sinks: Sequence[Sink[Any]]) -> None:
        """Before anything is made on the source: what would not get better by itself."""
        self.state.require_owner(self.config.name)
        for sink in sinks:
            name = sink.settings.name
            if self.state.delivering(name):
                raise SinkUnavailable(
                    f'Pipeline "{self.config.name}" is running already: another process delivers to sink "{name}".',
                    "Stop that one first, or leave it to its work.",
                )
            try:
                sink.check()
            except PenstockError as error:
                if policy_for(error).verdict is Verdict.STOP:
                    raise
            finally:
                sink.close()

    def _warn_of_tables_without_identity(self) -> None:
        if self.config.source.publications:
            return
        with connect(self._url) as connection:
            found = tables_matching(connection, self.config.source.tables)
        if poor := [table.qualified_name for table in found if not table.has_usable_identity]:
            logger.warning(
                "Only inserts are captured of %s: no primary key and no replica identity. `penstock check` has the remedy.",
                ", ".join(poor),
            )

    def run_delivery(self, once: bool = False, sinks: Sequence[str] = (), stop: threading.Event | None = None) -> None:
        """``deliver`` in a child process that is kept alive. ``once``: until every sink holds all that the log has now."""
        self.sinks(sinks)
        Supervisor(self.config, tuple(sinks), None, roles=("deliver",), available_now=once).run(
            stop or threading.Event()
        )

    def check(self) -> list[Finding]:
        """Everything that would fail, of the source and of the sinks. Changes nothing."""
        self.state.require_owner(self.config.name)
        source = self.config.source
        findings = check_source(self._url, self.config.name, source.tables, source.publications)
        return [*findings, *(self._check_sink(sink) for sink in self.sinks()), _check_java()]

    @staticmethod
    def _check_sink(sink: Sink[Any]) -> Finding:
        name = f"sink {sink.settings.name}"
        try:
            sink.check()
        except PenstockError as error:
            return Finding(name, False, str(error), policy_for(error).advice)
        finally:
            sink.close()
        return Finding(name, True, f"Ready, {sink.guarantee}.")

    def keep_tables_in_step(self) -> None:
        """New tables that match come in. One that lost its key moves: until then its updates fail, in the source."""
        try:
            changed = self.reconcile()
        except PenstockError as error:
            logger.warning("The publication could not be compared with the tables: %s", error)
            return
        for verb in ("added", "removed", "moved"):
            if names := getattr(changed, verb, ()):
                logger.info("Publication: %s %s.", verb, ", ".join(names))
        if changed is not None and changed.added:
            logger.warning("What was written to %s before now is not captured.", ", ".join(changed.added))

    def _committed_now(self) -> LSN:
        with connect(self._url) as connection:
            return catalog.wal_marker(connection)

    def sinks(self, names: Sequence[str] = ()) -> list[Sink[Any]]:
        """The sinks of the config, or those with these names."""
        known = {settings.name: settings for settings in self.config.sinks}
        for name in names:
            if name not in known:
                raise ConfigError(f'There is no sink "{name}" in the config; there are: {", ".join(known)}.')
        return [
            sink_class(settings.type)(settings) for settings in known.values() if not names or settings.name in names
        ]


def _check_java() -> Finding:
    from penstock.spark.java import java_home

    try:
        java_home()
    except ConfigError as error:
        return Finding("java", False, error.message, error.advice or "")
    return Finding("java", True, "There is a Java that Spark can use.")
