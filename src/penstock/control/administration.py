"""What is asked of a pipeline and made for it, while it runs or not: the verbs of the command line that move no data."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from penstock.capture.resume import require_same_server
from penstock.config.model import Config
from penstock.control.readiness import Readiness, telling_what_stays
from penstock.control.tables import Tables
from penstock.error_policy import policy_for
from penstock.errors import ConfigError, PenstockError, SourceRefused
from penstock.findings import Finding
from penstock.imports.manager import Manager, chosen_tables
from penstock.imports.progress import TableStatus
from penstock.lsn import ZERO
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, connect
from penstock.schema.log.history import Version, versions
from penstock.settings.tables import table_names
from penstock.sinks.contract import Sink
from penstock.sinks.dead_letters import DeadLetter, DeadLetters, Replayed
from penstock.sinks.registry import sink_class
from penstock.state.pipeline_state import PipelineState, SourceState
from penstock.state.publications_read import write_publications_read
from penstock.subscription import migrations, ownership, subscription
from penstock.subscription.publication import Reconciliation
from penstock.subscription.schema_log import administrating, log_schema_changes
from penstock.subscription.subscription import Leftover, NotAllRemoved, Subscription
from penstock.verify.report import Progress, TableReport, unwatched

logger = logging.getLogger(__name__)


class Administration:
    """Of one pipeline: its subscription on the source, its tables, what its sinks refused, and whether they are equal."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.state = PipelineState(config.state_dir)
        self._warned: frozenset[str] = frozenset()  # of what stays as it is between two looks at the tables

    def init(self, triggers: bool | None = None, administrator: str | None = None) -> Subscription:
        """Makes the publication and the slot, or leaves them as they are if they exist.

        ``triggers``: whether event triggers shall log schema changes, if the role may create them. By default they come with
        a new subscription, so that a later ``run`` does not overrule who wanted none. ``administrator``: the URL of a role
        that may, if the pipeline's own may not; all else is made by the pipeline's own.
        """
        self._readiness().require_state_and_rules()
        return self._create(triggers, administrator)

    def _create(self, triggers: bool | None = None, administrator: str | None = None) -> Subscription:
        source = self.config.source
        with connect(self._url) as connection, ExitStack() as guarded:
            identifier, recorded = str(catalog.server_identity(connection).system_identifier), self.state.source()
            require_same_server(identifier, recorded)
            is_new = subscription.find(connection, self.config.name, source.publications) is None
            if is_new:
                self._readiness().require_creatable(connection)
                guarded.enter_context(telling_what_stays())
            self.state.claim(self.config.name)
            if source.copies:
                self._require_primary(connection)
                migrations.migrate(connection)
                migrations.register(connection, self.config.name)
            if triggers is None:
                triggers = is_new
            if triggers and source.mode != "copy":
                log_schema_changes(
                    connection, self.config.name, administrator
                )  # before the slot, which tells of rows from then on
            wanted = chosen_tables(connection, self.config)
            manager = Manager(connection, self.config, (), self.state)
            made = subscription.create(
                connection, self.config.name, wanted, source.publications,
                before_adding=manager.hold_entering, slot=self.state.slot,
            )  # fmt: skip
            manager.record_edit(made.edited)
            if recorded is None:  # from now on, this state is of this server
                self.state.save(SourceState(self.config.name, identifier, made.slot, secrets.token_hex(4)))
                write_publications_read(self.state.parts, dict.fromkeys(made.publications, ZERO))
            elif made.consistent_point is not None:  # the slot was missing: see resume.py
                self.state.save(recorded.with_new_slot())
        return made

    @staticmethod
    def _require_primary(connection: Connection) -> None:
        if catalog.server_identity(connection).in_recovery:
            raise SourceRefused(
                "The source is a standby, and imports keep their queue in the source.",
                "Point source.url at the primary, or use mode: stream.",
            )

    def destroy(self, administrator: str | None = None) -> list[str]:
        """Removes what Penstock made on the source, and this pipeline's state. Sinks keep what they have.

        NotAllRemoved, when all else is removed, if something belongs to a role that we are not: it has the statements.
        ``administrator``: the URL of a role that may remove what is not ours.
        """
        self.state.require_owner(self.config.name)
        source = self.config.source
        with ExitStack() as sessions:
            connection = sessions.enter_context(connect(self._url))
            if administrator is not None:
                connection = sessions.enter_context(administrating(administrator, connection))
            leftovers: list[Leftover] = []
            name, slot = self.config.name, self.state.slot
            removed = subscription.destroy(connection, name, source.publications, slot=slot, leftovers=leftovers)
            if not catalog.server_identity(connection).in_recovery:
                removed += migrations.remove(connection, name, leftovers)
        removed += self.state.remove()
        if leftovers:
            raise NotAllRemoved.of(leftovers, removed)
        return removed

    def check(self) -> list[Finding]:
        """Everything that would fail, of the source and of the sinks. Changes nothing."""
        return self._readiness().findings()

    def _readiness(self, sinks: Sequence[str] = ()) -> Readiness:
        return Readiness(self.config, self.state, self.sinks(sinks))

    def reconcile(self) -> Reconciliation | None:
        """Puts the tables that match into the publication, takes the others out, and queues imports that are due."""
        with self._tables() as tables:
            return tables.keep_in_step()

    def keep_tables_in_step(self) -> None:
        """New tables that match come in. One that lost its key moves: until then its updates fail, in the source."""
        try:
            changed = self.reconcile()
        except PenstockError as error:
            advice = policy_for(error).advice
            self._warn_once([f"The publication could not be compared with the tables: {error} {advice}".rstrip()])
            return
        self._report_edit(changed)

    def _report_edit(self, changed: Reconciliation | None) -> None:
        if changed is None:
            return
        for verb in ("added", "removed", "moved", "narrowed", "widened"):
            if names := getattr(changed, verb):
                logger.info("Publication: %s %s.", verb, ", ".join(names))
        if changed.late and not self.config.source.copies:
            logger.warning("What was written to %s before now is not captured.", ", ".join(changed.late))
        self._warn_once([f"{table.problem} {ownership.remedy([table])}" for table in changed.refused])

    def _warn_once(self, warnings: Sequence[str]) -> None:
        """The tables are looked at every few seconds: what was said at the last look is not repeated."""
        for warning in warnings:
            if warning not in self._warned:
                logger.warning("%s", warning)
        self._warned = frozenset(warnings)

    def tables(self) -> list[TableStatus]:
        """Where each table stands with each sink."""
        with self._tables() as tables:
            return tables.listing()

    def add_tables(self, names: Sequence[str]) -> list[str]:
        with self._tables() as tables:
            return tables.add(names)

    def remove_tables(self, names: Sequence[str]) -> list[str]:
        with self._tables() as tables:
            return tables.remove(names)

    def resync_tables(self, names: Sequence[str], sinks: Sequence[str] = ()) -> list[str]:
        """Copies them again; a sink shows what it has until that is complete."""
        with self._tables() as tables:
            return tables.resync(names, sinks)

    @contextmanager
    def _tables(self) -> Iterator[Tables]:
        with connect(self._url) as connection:
            yield Tables(connection, self.config, self.sinks(), self.state)

    def schema_versions(self, table: str | None = None) -> list[Version]:
        """The commands that changed the source's schema, or one table of it, as the source's schema log has them."""
        with connect(self._url) as connection:
            return list(versions(connection, table))

    def dead_letters(self, sinks: Sequence[str] = (), tables: Sequence[str] = ()) -> list[DeadLetter]:
        """What these sinks refused, or all that keep dead letters; of these tables, or of all."""
        chosen = table_names(tables)
        with self._dead_letters(sinks) as kept:
            return [letter for letters in kept for letter in letters.listed(chosen)]

    def replay_dead_letters(self, sinks: Sequence[str] = (), tables: Sequence[str] = ()) -> Replayed:
        """Tries them again, while the pipeline runs or not."""
        chosen = table_names(tables)
        with self._dead_letters(sinks) as kept:
            done = [letters.replay(chosen) for letters in kept]
        return Replayed(
            [letter for one in done for letter in one.replayed], [letter for one in done for letter in one.left]
        )

    @contextmanager
    def _dead_letters(self, names: Sequence[str]) -> Iterator[list[DeadLetters]]:
        sinks = self.sinks(names)
        for sink in sinks:
            if names and not sink.capabilities.keeps_dead_letters:
                raise ConfigError(
                    f'Sink "{sink.settings.name}" keeps no dead letters: sinks of type {sink.settings.type} do not.',
                    "Leave out --sink, or name another.",
                )
        try:
            yield [letters for sink in sinks if (letters := sink.dead_letters()) is not None]
        finally:
            for sink in sinks:
                sink.close()

    def verify(
        self, tables: Sequence[str] = (), sinks: Sequence[str] = (), most: int = 20, progress: Progress = unwatched
    ) -> Iterator[TableReport]:
        """Compares what the sinks hold of these tables, or of all, with the source. ``most``: of differing keys to name."""
        from penstock.control.verification import Verification  # brings the clients of sinks

        self.state.require_owner(self.config.name)
        with closing(connect(self._url, application_name="penstock verify")) as connection:
            verification = Verification(connection, self.config, self.sinks(sinks), self.state, most, progress)
            yield from verification.reports(tables, chosen=bool(sinks))

    def sinks(self, names: Sequence[str] = ()) -> list[Sink[Any, Any]]:
        """The sinks of the config, or those with these names."""
        known = {settings.name: settings for settings in self.config.sinks}
        for name in names:
            if name not in known:
                raise ConfigError(f'There is no sink "{name}" in the config; there are: {", ".join(known)}.')
        sinks = [
            sink_class(settings.type)(settings) for settings in known.values() if not names or settings.name in names
        ]
        for sink in sinks:
            sink.source, sink.pipeline = self._url, self.config.name
        return sinks

    @property
    def _url(self) -> str:
        return self.config.source.url.get_secret_value()
