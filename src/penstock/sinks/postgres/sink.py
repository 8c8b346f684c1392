"""``type: postgres``: a replica of the source's tables in another Postgres database."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, SecretStr

from penstock import failpoints
from penstock.changes.batch import ChangeBatch
from penstock.changes.net import net
from penstock.errors import PenstockError, SinkRefused
from penstock.findings import Finding
from penstock.lsn import LSN, ZERO
from penstock.postgres.connection import Connection
from penstock.retry import interval
from penstock.schema.kinds import SchemaChange
from penstock.schema.log.row import LoggedCommand
from penstock.settings.base import Settings
from penstock.settings.units import Duration
from penstock.sinks.contract import Batch, Capabilities, ImportPart, SinkContext
from penstock.sinks.mirror.changes import of_tables, rows_may_exist
from penstock.sinks.mirror.imports import commit_part
from penstock.sinks.mirror.owner import ExistingRowsSettings
from penstock.sinks.mirror.records import Records
from penstock.sinks.mirror.sink import MirrorSink
from penstock.sinks.postgres.bisect import Bisection, RefusedRow, Tolerance
from penstock.sinks.postgres.carried_ddl import ReplicateDdl
from penstock.sinks.postgres.changes import Applier
from penstock.sinks.postgres.columns import follows_exactly, restart_sequences
from penstock.sinks.postgres.dead_letters import LetterBox, PostgresDeadLetters
from penstock.sinks.postgres.filling import Filler
from penstock.sinks.postgres.foreign_keys import OrderedApplier
from penstock.sinks.postgres.imports import Shadows, index_shadow, postpone_uniqueness, write_rows
from penstock.sinks.postgres.records import create_records, records_of
from penstock.sinks.postgres.refusals import RowRefused
from penstock.sinks.postgres.rights import Rights, refuse_source_as_target
from penstock.sinks.postgres.schema import SchemaFollower
from penstock.sinks.postgres.session import Session, replication_grant
from penstock.sinks.postgres.shapes import Shapes
from penstock.sinks.postgres.staging import StagedChanges, joined, stage_changes
from penstock.sinks.postgres.tables import Tables
from penstock.sinks.settings import SinkSettings

if TYPE_CHECKING:
    from penstock.sinks.postgres.verify import PostgresTarget

logger = logging.getLogger(__name__)

_AT_WORK = (
    "Its role may not set session_replication_role, so triggers and foreign keys of the target are at work while changes are "
    "applied."
)
_SETTLING_SECONDS = interval(10.0)
# SQLSTATEs: text that the type does not read, such as a label that an enum lacks; NOT NULL and a check, maybe of a domain
_NOT_OF_THE_TYPE = {"22P02", "23502", "23514"}


class DeadLetterSettings(Settings):
    max: int = Field(default=10_000, ge=1, description="Of one batch; with more, the sink stops.")


class PostgresSettings(ExistingRowsSettings, SinkSettings):
    type: Literal["postgres"] = "postgres"
    url: SecretStr
    tables_schema: Literal["create", "existing"] = Field(
        default="create",
        alias="schema",
        description="create: missing schemas and tables are made, and altered to fit. existing: they are yours.",
    )
    replicate_ddl: ReplicateDdl = Field(
        default=ReplicateDdl(), description="Which kinds of things the target has of the source's, besides tables."
    )
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    lock_timeout: Duration = Field(
        default=30.0,
        description="How long to wait for a lock on the target before the batch is rolled back and tried again.",
    )


class PostgresSink(MirrorSink[PostgresSettings, list[StagedChanges], Connection]):
    """Mirrors ``schema.table`` under the same names, and keeps its position beside the data.

    Parallelism: executors decode, reduce to one row per key, and write the text that COPY reads; of an import, they COPY.
    Guarantee: exactly-once. A batch's changes of all tables and the position are one transaction of the target: a reader
    never sees half a transaction of the source. An imported table appears in one step, and replaces the one before in the
    same.
    """

    Settings: ClassVar[type[PostgresSettings]] = PostgresSettings
    capabilities: ClassVar[Capabilities] = replace(MirrorSink.capabilities, keeps_dead_letters=True, verifiable=True)

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(settings)
        self._session = Session(settings.url.get_secret_value(), settings.name, settings.lock_timeout)
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._tables = self._new_tables()
        self._letters = LetterBox(self._owner)
        self._held = None
        self._appliers: dict[int, tuple[Connection, Applier]] = {}  # by thread
        self._prepared = False
        self._is_elsewhere = False  # the target is known not to be the source's database
        self._next_settling = 0.0

    def _new_tables(self) -> Tables:
        shapes = Shapes(self.settings.name, self.source, self.settings.replicate_ddl)
        return Tables(self._owner, self.settings.tables_schema, shapes, self.settings.existing_rows)

    def __getstate__(self) -> dict[str, Any]:
        left_here = (
            "_tables", "_letters", "_held", "_appliers", "_prepared", "_is_elsewhere", "_next_settling", "source",
        )  # fmt: skip
        return {name: value for name, value in self.__dict__.items() if name not in left_here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_afresh()

    def close(self) -> None:
        if self._prepared:
            self._settle()
        self._prepared = False
        self._appliers.clear()
        self._session.close()

    def check(self) -> list[Finding]:
        """Whether the role may do what it has to, and what is worth knowing about the target."""
        name, mode = self.settings.name, self.settings.tables_schema
        with self._session.opened() as connection:
            rights = Rights(connection, name)
            of_tables = rights.for_tables(self.source_tables, mode, self.source_is_copied)
            if of_database := rights.on_database():
                rights.require([*of_database, *of_tables])
            self._refuse_unfit(connection)
            rights.require(of_tables)
            if mode == "existing":
                Tables(self._owner, mode, Shapes(name, "")).require(connection, self.source_tables)
            version = connection.info.server_version // 10000
        findings = [Finding(f"sink {name}", True, f"The target runs Postgres {version}.")]
        if not self._session.may_replicate:
            findings.append(Finding(f"sink {name}", None, _AT_WORK, replication_grant(connection.info.user, version)))
        return findings

    def prepare(self) -> LSN | None:
        self._tables = self._new_tables()
        with self._session.opened() as connection:
            self._refuse_unfit(connection)
            create_records(connection)
            if not self._session.may_replicate:
                logger.warning("Sink %s: %s See docs/sinks/postgres.md, Rights.", self.settings.name, _AT_WORK)
            self._letters = LetterBox(self._owner)
            self._letters.look(connection)
            position = self._read_position(connection)
        self._prepared = True
        return position

    def _opened(self) -> AbstractContextManager[Connection]:
        return self._session.opened()

    def _transaction(self) -> AbstractContextManager[Connection]:
        return self._session.transaction()

    def _records(self, connection: Connection) -> Records:
        return records_of(connection, self._owner, self.origin, self.subscription)

    def _refuse_unfit(self, connection: Connection) -> None:
        """A role without rights, a server that takes no changes, the source's own database."""
        rights = Rights(connection, self.settings.name)
        rights.require(rights.on_database())
        self._session.refuse_read_only(connection)
        if self.source and not self._is_elsewhere:
            self._is_elsewhere = refuse_source_as_target(connection, self.source, self.settings.name)

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> list[StagedChanges]:
        part = batch.part
        if part is not None and _goes_straight_in(part) and self._written(part, changes):
            failpoints.reach(failpoints.CHUNK_KEPT)
            return []
        may_exist = rows_may_exist(batch)
        turns: Counter[int] = Counter()
        staged = []
        for some in joined(of_tables(changes)):
            oid = some.relation.oid
            staged.append(replace(stage_changes(batch, net(some, may_exist=may_exist)), turn=turns[oid]))
            turns[oid] += 1
        return staged

    def _written(self, part: ImportPart, changes: Iterator[ChangeBatch]) -> bool:
        try:
            with self._without_letters(part), self._session.opened() as connection:
                return write_rows(connection, self._records(connection), part, changes)
        finally:
            self._session.close()

    def commit(self, batch: Batch, receipts: Sequence[list[StagedChanges]]) -> None:
        """Where the target refuses a row, the batch is applied again, now to find out which: that row stops the sink, or
        becomes a dead letter in the same transaction."""
        staged = [changes for receipt in receipts for changes in receipt]
        if batch.part is not None:
            self._commit_part(batch.part, staged)
            return
        try:
            self._try_batch(batch, staged)
        except SinkRefused as refused:
            looked = self._tables.forget()  # somebody may have altered a table, or added an index, since we looked
            if not looked and not isinstance(refused, RowRefused):
                raise
            if isinstance(refused, RowRefused) and refused.refusal.sqlstate in _NOT_OF_THE_TYPE:
                with self._session.opened() as connection:
                    self._tables.renew_types(connection, (change.relation.oid for change in staged))
            self._try_batch(batch, staged, refused)
        if time.monotonic() >= self._next_settling:
            self._settle()

    def _try_batch(self, batch: Batch, staged: Sequence[StagedChanges], before: SinkRefused | None = None) -> None:
        """``before``: what was refused when it was tried as a whole."""
        with self._session.opened() as connection:
            self._follower(connection).before_batch(self._followed(batch))
        refused: list[RefusedRow] = []

        def apply_batch(connection: Connection) -> None:
            self._tables.stream_at = batch.start
            by_rows = before is not None or self._letters.hold_values_for(connection, staged)

            def apply(some: Sequence[StagedChanges]) -> None:
                if by_rows:
                    refused.extend(self._apply_by_rows(connection, some, before))
                else:
                    self._applier(connection).apply(some, self._tables.target)
                if restart_sequences(connection, some, partial(self._tables.target, connection)):
                    self._next_settling = 0.0  # then they get the source's values, where it can be asked

            self._follower(connection).apply(self._followed(batch), staged, apply)
            self._letters.supersede(connection, staged)
            self._letters.put(connection, refused, batch.failed)

        if self._commit_batch(batch, apply_batch):
            self._letters.tell(refused, batch.failed)

    def _followed(self, batch: Batch) -> tuple[LoggedCommand, ...]:
        follows = self.settings.schema_changes == "apply" and self.settings.tables_schema == "create"
        return self.settings.replicate_ddl.commands(batch.schema_log) if follows else ()

    def _follower(self, connection: Connection) -> SchemaFollower:
        settings = self.settings
        return SchemaFollower(connection, settings.name, self._tables, settings.on_drop, self.source_is_copied)

    def _apply_by_rows(
        self, connection: Connection, staged: Sequence[StagedChanges], before: SinkRefused | None
    ) -> list[RefusedRow]:
        enough = partial(self._tolerance.enough, before=before)
        held = partial(self._letters.held, connection)
        refused = Bisection(connection, self._applier(connection), self._tables, held, enough).apply(staged)
        self._tolerance.settle(refused, before)
        return refused

    @property
    def _tolerance(self) -> Tolerance:
        return Tolerance(self.settings.name, self.settings.on_error == "stop", self.settings.dead_letters.max)

    @contextmanager
    def _without_letters(self, part: ImportPart) -> Iterator[None]:
        """What is refused before an import's end, or for rows of other tables."""
        try:
            yield
        except RowRefused as refused:
            if self.settings.on_error == "stop":
                raise
            raise SinkRefused(
                f"{refused.message} It came with the import of {part.relation.qualified_name}, and is not of the kind that "
                "becomes a dead letter there.",
                refused.advice or "Mend the row in the source or the table in the target; then start again.",
            ) from refused

    def recomputes(self, change: SchemaChange, nested: bool = False) -> bool:
        return follows_exactly(change)

    def dead_letters(self) -> PostgresDeadLetters:
        return PostgresDeadLetters(self._owner, self._session, self._applier)

    def verification(self, context: SinkContext) -> PostgresTarget:
        from penstock.sinks.postgres.verify import PostgresTarget

        keeps_rows = self.settings.existing_rows == "keep"
        url = self.settings.url.get_secret_value()
        return PostgresTarget(self.settings.name, url, context.source_url, context.pipeline, keeps_rows)

    def _commit_part(self, part: ImportPart, staged: Sequence[StagedChanges]) -> None:
        with self._without_letters(part):
            try:
                self._try_part(part, staged)
            except RowRefused as refused:
                if part.phase != "changes" or not refused.refusal.is_unique or not self._postponed(part):
                    raise
                self._try_part(part, staged)
        if part.phase == "end":
            self._settle()

    def _postponed(self, part: ImportPart) -> bool:
        with self._session.opened() as connection:
            return postpone_uniqueness(connection, self._records(connection), part)

    def _try_part(self, part: ImportPart, staged: Sequence[StagedChanges]) -> None:
        with self._session.opened() as connection:
            index_shadow(connection, self._records(connection), self._tables, part)
        with self._import_transaction() as connection:
            filler = Filler(connection, part.relation, part.upto or ZERO, self._tolerance.enough)
            shadows = Shadows(connection, self._tables, self._applier(connection), filler.add)
            done = commit_part(self._records(connection), shadows, part, staged)
            self._tolerance.settle(filler.refused)
            if done and part.phase == "end" and part.upto is not None:
                self._letters.supersede_table(connection, part.relation.oid, part.upto, part.merged)
            self._letters.put(connection, filler.refused)
        self._letters.tell(filler.refused)

    def _settle(self) -> None:
        """The stream does not tell of sequences, so the source is asked. What cannot be done now is done next time. So it is
        with foreign keys that did not hold when they came in."""
        self._next_settling = time.monotonic() + _SETTLING_SECONDS
        try:
            with self._session.transaction() as connection:
                self._tables.settle(connection)
        except PenstockError as error:
            logger.debug(
                "Sequences and foreign keys of the target of %s are not settled: %s", self.settings.name, error
            )

    def _applier(self, connection: Connection) -> Applier:
        """Its temporary tables live as long as the connection."""
        known = self._appliers.get(threading.get_ident())
        if known is None or known[0] is not connection:
            kind = Applier if self._session.may_replicate else OrderedApplier
            known = self._appliers[threading.get_ident()] = connection, kind(connection)
        return known[1]


def _goes_straight_in(part: ImportPart) -> bool:
    """Rows of a table with a key. What a table without one has seen is told by the receipt, not by who comes first."""
    return part.phase == "rows" and not part.replaces and bool(part.relation.key)
