"""A DuckDB file that is open only while it is needed, so that others can read it in between."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from penstock.errors import SinkError, SinkRefused, SinkUnavailable

logger = logging.getLogger(__name__)

CATALOG = "penstock_target"

_MAGIC = b"DUCK"  # at byte 8 of every DuckDB file

# What no data can cause: we are alone in the file, so a COMMIT fails, or the engine gives up, only where writing does.
_OF_THE_FILE = (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DuckDBFile:
    """The file of one sink. Errors of DuckDB leave it as errors of the sink. Pickles without its engine."""

    def __init__(self, path: Path, sink: str, memory: int) -> None:
        self.path, self._sink, self._memory = path, sink, memory
        self._engine: duckdb.DuckDBPyConnection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}

    @contextmanager
    def opened(self, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file under a catalog name of its own, so that a schema may be called like the file.

        Attaching costs a few milliseconds, starting DuckDB twenty: so the one stays, and the other comes and goes.
        """
        self._refuse_other_files()
        path = str(self.path).replace("'", "''")
        try:
            connection = self._engine = self._engine or self._started()
            connection.execute(f"ATTACH '{path}' AS {CATALOG} {'(READ_ONLY)' if read_only else ''}")
            try:
                yield connection
            finally:
                self._detach(connection)
        except duckdb.Error as error:
            raise self._error(error) from error

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file, opened for one transaction: all of it is durable once this is left without an error."""
        with self.opened() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            except BaseException:
                with suppress(
                    duckdb.Error
                ):  # an engine that has given up does not roll back either; what failed counts
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Leaves one file: what DuckDB's log beside it holds is moved into it."""
        if self._engine is None:
            return
        try:
            if Path(f"{self.path}.wal").exists():
                with self.opened() as connection:
                    connection.execute(f"CHECKPOINT {CATALOG}")
        except SinkUnavailable as error:
            logger.debug("%s stays beside its log: %s", self.path, error)  # which is just as durable
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _detach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """An engine that cannot even let the file go is done for (a full disk does that): the next try starts another."""
        try:
            connection.execute(f"DETACH {CATALOG}")
        except duckdb.Error as error:
            logger.debug("%s is let go with the engine that had it open: %s", self.path, error)
            self._engine = None
            connection.close()

    def _started(self) -> duckdb.DuckDBPyConnection:
        """A checkpoint of many tables costs more than replaying a short log, and that less than replaying a long one.

        Many rows at once do not go through that log: they are written to their place, and the log says where.
        """
        connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "memory_limit": f"{self._memory}B",
                "temp_directory": f"{self.path}.tmp",
                "checkpoint_threshold": "256KB",
            }
        )
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        return connection

    def _refuse_other_files(self) -> None:
        try:
            with self.path.open("rb") as file:
                head = file.read(12)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SinkRefused(f"Sink {self._sink} cannot read {self.path}: {error.strerror}.") from error
        if head and head[8:12] != _MAGIC:
            raise SinkRefused(
                f"Sink {self._sink}: {self.path} is not a DuckDB file.", "Correct `path`, or move that file away."
            )

    def _error(self, error: duckdb.Error) -> SinkError:
        said = str(error).strip().splitlines()[0].split(" However, ")[0]  # advice for DuckDB's own shell
        if isinstance(error, _OF_THE_FILE):
            return SinkUnavailable(
                f"Sink {self._sink} cannot use {self.path}: {said}",
                "If another process has the file open for writing, close it; if its disk is full, make room; delivery "
                "goes on by itself.",
            )
        return SinkRefused(f"Sink {self._sink}: DuckDB refused the batch: {said}")
