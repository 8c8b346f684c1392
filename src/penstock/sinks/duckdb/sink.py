"""``type: duckdb``: a mirror of the source's tables in a DuckDB file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import duckdb
from pydantic import Field

from penstock.changes.batch import ChangeBatch
from penstock.changes.net import net
from penstock.errors import SinkRefused
from penstock.findings import Finding
from penstock.lsn import LSN
from penstock.schema.kinds import SchemaChange
from penstock.settings.units import Size
from penstock.sinks.contract import Batch, Capabilities, ImportPart, SinkContext
from penstock.sinks.duckdb.changes import apply
from penstock.sinks.duckdb.file import DuckDBFile
from penstock.sinks.duckdb.imports import Shadows
from penstock.sinks.duckdb.records import IMPORTS, PROGRESS, TABLES, has_records, records_of
from penstock.sinks.duckdb.schema import follow, follows_exactly
from penstock.sinks.duckdb.snapshot import Snapshot, SnapshotSettings
from penstock.sinks.duckdb.tables import Tables
from penstock.sinks.duckdb.types import REFUSED_VALUES, duckdb_type, duckdb_values
from penstock.sinks.mirror.changes import of_tables, rows_may_exist
from penstock.sinks.mirror.imports import commit_part
from penstock.sinks.mirror.owner import ExistingRowsSettings
from penstock.sinks.mirror.preflight import TargetTypes, unrepresentable_findings
from penstock.sinks.mirror.records import Records
from penstock.sinks.mirror.sink import MirrorSink
from penstock.sinks.mirror.typed_staging import StagedChanges, stage_changes
from penstock.sinks.settings import SinkSettings
from penstock.storage import why_unwritable

if TYPE_CHECKING:
    from penstock.sinks.duckdb.verify import DuckDBTarget


class DuckDBSettings(ExistingRowsSettings, SinkSettings):
    type: Literal["duckdb"] = "duckdb"
    path: Path
    memory: Size = Field(default=2 << 30, description="What DuckDB may use while it commits; beyond, it uses disk.")
    snapshot: SnapshotSettings | None = Field(default=None, description="A copy for those who read all the time.")

    @property
    def place(self) -> Path:
        return self.path

    @property
    def places(self) -> Mapping[str, Path]:
        return {"path": self.path, **({"snapshot.path": self.snapshot.path} if self.snapshot is not None else {})}

    def below(self, directory: Path) -> Self:
        copy = self.snapshot and self.snapshot.model_copy(update={"path": directory / self.snapshot.path})
        return self.model_copy(update={"path": directory / self.path, "snapshot": copy})


class DuckDBSink(MirrorSink[DuckDBSettings, list[StagedChanges], duckdb.DuckDBPyConnection]):
    """Mirrors ``schema.table`` under the same names, creates what is missing, keeps its position beside the data.

    The file is open only while a batch is committed, so that others can read it in between. There is no primary-key
    index: deleting and inserting by key is ten times faster than an upsert through an index.

    Parallelism: executors decode, reduce to one row per key, and cast; the driver applies.
    Guarantee: exactly-once. A batch's changes of all tables and the position are one DuckDB transaction, and so are a part
    of an import and the record of it. An imported table appears in one step, and replaces the one before in the same.
    """

    Settings: ClassVar[type[DuckDBSettings]] = DuckDBSettings
    capabilities: ClassVar[Capabilities] = replace(MirrorSink.capabilities, verifiable=True)

    def __init__(self, settings: DuckDBSettings) -> None:
        super().__init__(settings)
        self._file = DuckDBFile(settings.path, settings.name, settings.memory)
        copy = settings.snapshot
        self._snapshot = Snapshot(self._file, copy, settings.name, settings.memory) if copy is not None else None

    def close(self) -> None:
        if self._snapshot is not None and self._held is not None:
            self._snapshot.renew(self._owner)
        self._file.close()

    def check(self) -> list[Finding]:
        path, copy = self.settings.path, self.settings.snapshot
        for place in [path] if copy is None else [path, copy.path]:
            if reason := _why_unwritable(place.absolute()):
                raise SinkRefused(
                    f"Sink {self.settings.name} cannot write {place}: {reason}.",
                    "Give the user of Penstock the right to, or correct `path`.",
                )
            if not place.absolute().parent.is_dir():
                raise SinkRefused(
                    f"Sink {self.settings.name}: the directory of {place} does not exist.",
                    "Create it, or correct `path`.",
                )
        if self._snapshot is not None:
            self._snapshot.require_replaceable(self._owner)
        if path.exists():
            with self._file.opened(read_only=True) as connection:
                if has_records(connection):
                    self._refuse_other_source(connection)
        if not (self.source and self.source_tables):
            return []
        types, policies = TargetTypes("DuckDB", duckdb_type, REFUSED_VALUES), self.settings.unrepresentable
        return list(unrepresentable_findings(self.settings.name, types, policies, self.source, self.source_tables))

    def prepare(self) -> LSN | None:
        self.check()
        with self._opened() as connection:
            connection.execute(TABLES)  # here, where nobody else does: two commits that make one conflict
            return self._read_position(connection)

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._file.opened() as connection:
            connection.execute(PROGRESS + IMPORTS)
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._file.transaction() as connection:
            connection.execute(PROGRESS + IMPORTS)
            yield connection

    def _records(self, connection: duckdb.DuckDBPyConnection) -> Records:
        return records_of(connection, self._owner, self.origin, self.subscription)

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> list[StagedChanges]:
        policies, may_exist = self.settings.unrepresentable, rows_may_exist(batch)
        return [
            stage_changes(batch, net(change, may_exist=may_exist), policies, duckdb_values)
            for change in of_tables(changes)
        ]

    def commit(self, batch: Batch, receipts: Sequence[list[StagedChanges]]) -> None:
        """Afterwards the copy for readers is renewed, if there is one and it is due."""
        staged = [changes for receipt in receipts for changes in receipt]
        if batch.part is None:
            self._commit_batch(batch, lambda connection: self._apply(connection, batch, staged))
        else:
            self._commit_part(batch.part, staged)
        if self._snapshot is not None and (batch.part is None or batch.part.phase == "end"):
            self._snapshot.committed(self._owner, bool(receipts or batch.schema_log or batch.part))

    def _apply(self, connection: duckdb.DuckDBPyConnection, batch: Batch, staged: Sequence[StagedChanges]) -> None:
        on_drop = self.settings.on_drop
        tables = Tables(connection, self._owner, self.settings.unrepresentable, on_drop == "keep", batch.start)
        commands = batch.schema_log if self.settings.schema_changes == "apply" else ()
        follow(tables, on_drop, commands, staged, lambda some: apply(connection, tables, some))

    def _commit_part(self, part: ImportPart, staged: Sequence[StagedChanges]) -> None:
        with self._import_transaction() as connection:
            tables = Tables(
                connection, self._owner, self.settings.unrepresentable, existing_rows=self.settings.existing_rows
            )
            commit_part(self._records(connection), Shadows(connection, tables), part, staged)

    def recomputes(self, change: SchemaChange, nested: bool = False) -> bool:
        return follows_exactly(change, nested, self.settings.unrepresentable)

    def verification(self, context: SinkContext) -> DuckDBTarget:
        from penstock.sinks.duckdb.verify import DuckDBTarget

        return DuckDBTarget(self.settings, context.source_url, context.publications, context.pipeline)


def _why_unwritable(path: Path) -> str | None:
    """Of the file itself, if it is there, and of its directory: DuckDB's log and what is staged are files beside it."""
    if reason := why_unwritable(path.parent):
        return reason
    return None if not path.exists() or os.access(path, os.W_OK) else f"{path}: {os.strerror(errno.EACCES)}"
