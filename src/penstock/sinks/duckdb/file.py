"""A DuckDB file that is open only while it is needed, so that others can read it in between.

Taking turns at a DuckDB file: one process at a time may have it open for writing, and nobody may read it meanwhile.

DuckDB locks with ``fcntl``. Such locks belong to the process: when a process closes any descriptor of the file, all its locks
on the file are gone. So nothing here, and nothing else in Penstock, opens a file that this process has attached.
"""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from penstock.errors import SinkBusy, SinkError, SinkRefused, SinkUnavailable
from penstock.process import in_a_thread, step_back
from penstock.sinks.staging import replace_durably

_BLOCK_BYTES = 8 << 20
_POLITE_SECONDS = 0.25  # for which a file may be open without a rest
_REST_SECONDS = 0.05  # longer than a waiting process pauses between two tries


def is_held_elsewhere(path: Path, read_only: bool) -> bool:
    """Whether another process has a lock that keeps us from attaching the file, which we have not attached."""
    try:
        with path.open("rb" if read_only else "r+b") as file:
            fcntl.lockf(file, (fcntl.LOCK_SH if read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def locked_bytes(path: Path) -> Iterator[bytes]:
    """The bytes of a file that we have not attached, while no other process may write to it. BlockingIOError if one does."""
    with path.open("rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        while block := file.read(_BLOCK_BYTES):
            yield block


class Rests:
    """Leaves the file alone for a moment now and then, however often it is needed, so that others get in.

    They try again and again, since a lock of ``fcntl`` has no queue. A file that is needed only now and then has such moments
    anyway, and nobody waits here.
    """

    def __init__(self) -> None:
        self._opened_at = self._closed_at = 0.0
        self._open_seconds = 0.0  # since the last rest

    def before_opening(self) -> None:
        rested = time.monotonic() - self._closed_at
        if self._open_seconds > _POLITE_SECONDS and rested < _REST_SECONDS:
            time.sleep(_REST_SECONDS - rested)
            rested = _REST_SECONDS
        if rested >= _REST_SECONDS:
            self._open_seconds = 0.0

    def opened(self) -> None:
        self._opened_at = time.monotonic()

    def closed(self) -> None:
        self._closed_at = time.monotonic()
        self._open_seconds += self._closed_at - self._opened_at

    @property
    def open_for(self) -> float:
        """Seconds, of a file that is open."""
        return time.monotonic() - self._opened_at


logger = logging.getLogger(__name__)

CATALOG = "penstock_target"

_PATIENCE_SECONDS = 5.0  # for a file that another process has open
_PAUSE_SECONDS = 0.02  # between two tries
_TRIES_WHILE_FREE = 3  # the other process may leave between our try and our look
_LONGEST_SECONDS = 5.0  # for which several threads may keep the file open in turns

_MAGIC = b"DUCK"  # at byte 8 of every DuckDB file

# What no data can cause: we are alone in the file, so a COMMIT fails, or the engine gives up, only where writing does.
_OF_THE_FILE = (duckdb.IOException, duckdb.FatalException, duckdb.TransactionException)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DuckDBFile:
    """The file of one sink. Errors of DuckDB leave it as errors of the sink. Pickles without its engine.

    Several threads may have it open at once, each with a connection and a transaction of its own. Other processes get in:

    1. The file is open only while it is needed, and has a rest now and then (``duckdb_lock.Rests``).
    2. Threads that have it open in turns let it go after a while: who comes later waits until it was closed once.
    3. A file that another process has open is waited for, with many short pauses: a reader is gone in a moment, and a batch
       that failed costs far more than the wait. SinkBusy after ``_PATIENCE_SECONDS``.
    """

    def __init__(self, path: Path, sink: str, memory: int) -> None:
        self.path, self._sink, self._memory = path, sink, memory
        self._engine: duckdb.DuckDBPyConnection | None = None
        self._users = 0
        self._rests = Rests()
        self._lock = threading.Condition()  # of the three above

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_engine", "_users", "_rests", "_lock")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["_sink"], state["_memory"])  # type: ignore[misc]

    @contextmanager
    def opened(self, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file under a catalog name of its own, so that a schema may be called like the file.

        Attaching costs a few milliseconds, starting DuckDB twenty: so the one stays, and the other comes and goes.
        """
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

    def copy_to(self, copy: Path) -> None:
        """Replaces ``copy`` by the file as it is now. SinkUnavailable, OSError.

        1. No thread has the file open, and none gets in before this is done.
        2. What DuckDB's log beside the file holds is moved into it, and the file is closed: its bytes are all there is.
        3. They are copied under a lock that lets others read, and nobody write.
        4. The copy is durable, then takes the former one's name in one step. Killed before: the former one is there.
           Who has that one open keeps it.
        """
        with self._lock:
            self._lock.wait_for(lambda: not self._users)
            with self.opened() as connection:
                connection.execute(f"CHECKPOINT {CATALOG}")
            replace_durably(copy, locked_bytes(self.path))

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
        with self._lock:
            self._lock.wait_for(lambda: not self._users or self._rests.open_for < _LONGEST_SECONDS)
            engine = self._engine = self._engine or in_a_thread(self._started)
            if not self._users:
                self._rests.before_opening()
                self._attach(engine, read_only)
                self._rests.opened()
            self._users += 1
            return engine.cursor()

    def _attach(self, engine: duckdb.DuckDBPyConnection, read_only: bool) -> None:
        path = str(self.path).replace("'", "''")
        until, free = time.monotonic() + _PATIENCE_SECONDS, 0
        while True:
            self._refuse_other_files()
            try:
                engine.execute(f"ATTACH '{path}' AS {CATALOG} {'(READ_ONLY)' if read_only else ''}")
                return
            except (duckdb.IOException, duckdb.ResourceInUseException) as error:
                # In use: another connection of this process has it open, which the file's locks do not tell.
                in_use = isinstance(error, duckdb.ResourceInUseException)
                held = in_use or is_held_elsewhere(self.path, read_only)
                free += not held
                if free >= _TRIES_WHILE_FREE:
                    raise
                if held and time.monotonic() > until:
                    raise SinkBusy(
                        f"Sink {self._sink} waited {_PATIENCE_SECONDS:g} s for {self.path}: {_said(error)}",
                        "Close the file in that process. A process that reads it all the time should read a copy: see "
                        "`snapshot` in docs/sinks/duckdb.md.",
                    ) from error
                time.sleep(_PAUSE_SECONDS)

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
            self._rests.closed()
            self._lock.notify_all()

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
        """Only while it is not attached: see ``file.py``."""
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
        if isinstance(error, _OF_THE_FILE):
            return SinkUnavailable(
                f"Sink {self._sink} cannot use {self.path}: {_said(error)}",
                "If its disk is full, make room; delivery goes on by itself.",
            )
        return SinkRefused(f"Sink {self._sink}: DuckDB refused the batch: {_said(error)}")


def _said(error: duckdb.Error) -> str:
    """Without advice for DuckDB's own shell."""
    return str(error).strip().splitlines()[0].split(" However, ")[0].split(" See also ")[0]
