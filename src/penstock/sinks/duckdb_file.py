"""A DuckDB file that is open only while it is needed, so that others can read it in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from penstock.errors import SinkError, SinkRefused, SinkUnavailable
from penstock.priority import in_a_thread, step_back

logger = logging.getLogger(__name__)

CATALOG = "penstock_target"

_MAGIC = b"DUCK"  # at byte 8 of every DuckDB file

# What no data can cause: we are alone in the file, so a COMMIT fails, or the engine gives up, only where writing does.
_OF_THE_FILE = (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DuckDBFile:
    """The file of one sink. Errors of DuckDB leave it as errors of the sink. Pickles without its engine.

    Several threads may have it open at once, each with a connection and a transaction of its own.
    """

    def __init__(self, path: Path, sink: str, memory: int) -> None:
        self.path, self._sink, self._memory = path, sink, memory
        self._engine: duckdb.DuckDBPyConnection | None = None
        self._users = 0
        self._lock = threading.Lock()  # of the two above

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_engine", "_users", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["_sink"], state["_memory"])  # type: ignore[misc]

    @contextmanager
    def opened(self, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file under a catalog name of its own, so that a schema may be called like the file.

        Attaching costs a few milliseconds, starting DuckDB twenty: so the one stays, and the other comes and goes.
        """
        self._refuse_other_files()
        try:
            connection = self._attached(read_only)
            try:
                yield connection
            finally:
                connection.close()
                self._let_go()
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
        if self._engine is None or self._users:
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

    def _attached(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        path = str(self.path).replace("'", "''")
        with self._lock:
            engine = self._engine = self._engine or in_a_thread(self._started)
            if not self._users:
                engine.execute(f"ATTACH '{path}' AS {CATALOG} {'(READ_ONLY)' if read_only else ''}")
            self._users += 1
            return engine.cursor()

    def _let_go(self) -> None:
        """An engine that cannot even let the file go is done for (a full disk does that): the next try starts another."""
        with self._lock:
            self._users -= 1
            if self._users or self._engine is None:
                return
            try:
                self._engine.execute(f"DETACH {CATALOG}")
            except duckdb.Error as error:
                logger.debug("%s is let go with the engine that had it open: %s", self.path, error)
                self._engine.close()
                self._engine = None

    def _started(self) -> duckdb.DuckDBPyConnection:
        """A checkpoint of many tables costs more than replaying a short log, and that less than replaying a long one.

        Many rows at once do not go through that log: they are written to their place, and the log says where. The engine's
        own threads help with those. They go last, and the thread that commits a small batch does not wait for them.
        """
        step_back()
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
