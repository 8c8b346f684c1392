"""``type: duckdb``: a mirror of the source's tables in a DuckDB file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import duckdb
from pydantic import Field

from penstock.changes import MESSAGES, ChangeBatch
from penstock.config.sink import SinkSettings
from penstock.config.units import Size
from penstock.errors import SinkError, SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.net import net
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.duckdb_staging import StagedChanges, stage_changes
from penstock.sinks.duckdb_tables import CATALOG, Tables, apply

logger = logging.getLogger(__name__)

_MAGIC = b"DUCK"  # at byte 8 of every DuckDB file

# What no data can cause: we are alone in the file, so a COMMIT fails, or the engine gives up, only where writing does.
_OF_THE_FILE = (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException)

_PROGRESS = f"""
    CREATE SCHEMA IF NOT EXISTS {CATALOG}.penstock;
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.progress
        (sink VARCHAR, lsn VARCHAR, committed_at TIMESTAMPTZ, source VARCHAR);
"""


class DuckDBSettings(SinkSettings):
    type: Literal["duckdb"] = "duckdb"
    path: Path
    memory: Size = Field(default=2 << 30, description="What DuckDB may use while it commits; beyond, it uses disk.")

    @property
    def place(self) -> Path:
        return self.path

    def below(self, directory: Path) -> Self:
        return self.model_copy(update={"path": directory / self.path})


class DuckDBSink(Sink[DuckDBSettings]):
    """Mirrors ``schema.table`` under the same names, creates what is missing, keeps its position beside the data.

    The file is open only while a batch is committed, so that others can read it in between. There is no primary-key
    index: deleting and inserting by key is ten times faster than an upsert through an index.

    Parallelism: executors decode, reduce to one row per key, and cast; the driver applies.
    Guarantee: exactly-once. A batch's changes of all tables and the position are one DuckDB transaction.
    """

    Settings: ClassVar[type[DuckDBSettings]] = DuckDBSettings
    guarantee: ClassVar[str] = "exactly-once"
    keeps_position: ClassVar[bool] = True

    def __init__(self, settings: DuckDBSettings) -> None:
        super().__init__(settings)
        self._duckdb: duckdb.DuckDBPyConnection | None = None
        self._held: LSN | None = None  # up to where the file held everything when we last had it open

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_duckdb": None}

    def close(self) -> None:
        """Leaves one file: what DuckDB's log beside it holds is moved into it."""
        if self._duckdb is None:
            return
        try:
            if Path(f"{self.settings.path}.wal").exists():
                with self._opened() as connection:
                    connection.execute(f"CHECKPOINT {CATALOG}")
        except SinkUnavailable as error:
            logger.debug("%s stays beside its log: %s", self.settings.path, error)  # which is just as durable
        self._duckdb.close()
        self._duckdb = None

    def check(self) -> None:
        path = self.settings.path
        if not path.absolute().parent.is_dir():
            raise SinkRefused(
                f"Sink {self.settings.name}: the directory of {path} does not exist.", "Create it, or correct `path`."
            )
        if path.exists():
            with self._opened(read_only=True):
                pass

    def prepare(self) -> LSN | None:
        self.check()
        with self._opened() as connection:
            connection.execute(_PROGRESS)
            self._held = self._position(connection)
            if self._held is None:
                self._refuse_file_of_another(connection)
            for (recorded,) in connection.execute(f"SELECT source FROM {CATALOG}.penstock.progress").fetchall():
                self.refuse_other_origin(recorded)
            return self._held

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> list[StagedChanges]:
        return [
            stage_changes(batch, net(change), self.settings.unrepresentable)
            for change in changes
            if change.relation.oid != MESSAGES.oid  # a logical decoding message belongs to no table
        ]

    def commit(self, batch: Batch, receipts: Sequence[list[StagedChanges]]) -> None:
        """One transaction:

        0. A file that holds less than it did was replaced since: the batch would leave a hole, so ``prepare`` looks anew.
        1. A batch at or below the recorded position was committed by somebody who died before saying so: nothing to do.
        2. Tables are created or altered to fit, changes applied in order.
        3. The position is recorded, and all of it committed. Killed before: DuckDB's log rolls everything back.
        """
        with self._opened() as connection, self._transaction(connection):
            connection.execute(_PROGRESS)
            position = self._position(connection)
            self._refuse_older_copy(position)
            if position is not None and batch.end <= position:
                return
            tables = Tables(connection, self.settings.unrepresentable)
            apply(connection, tables, [staged for receipt in receipts for staged in receipt])
            connection.execute(f"DELETE FROM {CATALOG}.penstock.progress WHERE sink = ?", [self.settings.name])
            connection.execute(
                f"INSERT INTO {CATALOG}.penstock.progress VALUES (?, ?, now(), ?)",
                [self.settings.name, str(batch.end), self.origin],
            )
        self._held = batch.end

    def _refuse_file_of_another(self, connection: duckdb.DuckDBPyConnection) -> None:
        """A renamed sink would begin where the log does, and write everything that is still in there a second time."""
        others = connection.execute(f"SELECT sink FROM {CATALOG}.penstock.progress ORDER BY sink").fetchall()
        if others:
            name, names = self.settings.name, ", ".join(other for (other,) in others)
            raise SinkRefused(
                f"Sink {name}: {self.settings.path} was filled by a sink called {names}, and does not say up to where "
                f"{name} has come.",
                f"If {name} is the same sink under a new name, give it the old one back; otherwise give it another `path`.",
            )

    def _refuse_older_copy(self, position: LSN | None) -> None:
        if self._held is not None and (position is None or position < self._held):
            raise SinkUnavailable(
                f"{self.settings.path} of sink {self.settings.name} held changes up to {self._held} and now holds them up "
                f"to {position or 'none at all'}: it was replaced while we were running.",
                "Delivery looks for what it lacks in the change log.",
            )

    def _position(self, connection: duckdb.DuckDBPyConnection) -> LSN | None:
        found = connection.execute(
            f"SELECT lsn FROM {CATALOG}.penstock.progress WHERE sink = ?", [self.settings.name]
        ).fetchall()
        return LSN.parse(found[0][0]) if found else None

    @contextmanager
    def _opened(self, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file under a catalog name of its own, so that a schema may be called like the file.

        Attaching costs a few milliseconds, starting DuckDB twenty: so the one stays, and the other comes and goes.
        """
        self._refuse_other_files()
        path = str(self.settings.path).replace("'", "''")
        try:
            connection = self._duckdb = self._duckdb or self._started()
            connection.execute(f"ATTACH '{path}' AS {CATALOG} {'(READ_ONLY)' if read_only else ''}")
            try:
                yield connection
            finally:
                self._detach(connection)
        except duckdb.Error as error:
            raise self._error(error) from error

    def _detach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """An engine that cannot even let the file go is done for (a full disk does that): the next try starts another."""
        try:
            connection.execute(f"DETACH {CATALOG}")
        except duckdb.Error as error:
            logger.debug("%s is let go with the engine that had it open: %s", self.settings.path, error)
            self._duckdb = None
            connection.close()

    def _started(self) -> duckdb.DuckDBPyConnection:
        """A checkpoint of many tables costs more than replaying a short log, and that less than replaying a long one."""
        connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "memory_limit": f"{self.settings.memory}B",
                "temp_directory": f"{self.settings.path}.tmp",
                "checkpoint_threshold": "256KB",
            }
        )
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        return connection

    @contextmanager
    def _transaction(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            with suppress(duckdb.Error):  # an engine that has given up does not roll back either; what failed counts
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _refuse_other_files(self) -> None:
        path = self.settings.path
        try:
            with path.open("rb") as file:
                head = file.read(12)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SinkRefused(f"Sink {self.settings.name} cannot read {path}: {error.strerror}.") from error
        if head and head[8:12] != _MAGIC:
            raise SinkRefused(
                f"Sink {self.settings.name}: {path} is not a DuckDB file.", "Correct `path`, or move that file away."
            )

    def _error(self, error: duckdb.Error) -> SinkError:
        said = str(error).strip().splitlines()[0].split(" However, ")[0]  # advice for DuckDB's own shell
        if isinstance(error, _OF_THE_FILE):
            return SinkUnavailable(
                f"Sink {self.settings.name} cannot use {self.settings.path}: {said}",
                "If another process has the file open for writing, close it; if its disk is full, make room; delivery "
                "goes on by itself.",
            )
        return SinkRefused(f"Sink {self.settings.name}: DuckDB refused the batch: {said}")
