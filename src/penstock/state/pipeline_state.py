"""What a pipeline keeps under its ``state_dir``: the log, Spark's checkpoints, and one small JSON file per part.

    log/                   the change log
    checkpoints/<sink>/    Structured Streaming's own
    staging/<sink>/        what executors hand to the driver within a batch
    imports/<sink>/        what copiers hand to the delivery: imports/handover.py
    parts/pipeline.json    whose state this is
    parts/source.json      which server, publication and slot this state belongs to
    parts/capture.json     how far the WAL was read
    parts/history.json     the newest transaction that was read, which the source must still have
    parts/sink-<name>.json how far that sink holds every change durably

The files are how capture and delivery, which may run on two machines, know of each other.
"""

from __future__ import annotations

import fcntl
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

from penstock.changelog.log import ChangeLog
from penstock.errors import ConfigError, LogError, SinkUnavailable, SlotBusy
from penstock.lsn import LSN
from penstock.pgoutput.messages import Begin
from penstock.storage import Directory, private, translated


@dataclass(frozen=True)
class SourceState:
    pipeline: str
    system_identifier: str
    slot: str
    id: str = ""  # made with this state: the slot of a user's publications is called the same each time
    slot_remade: bool = False  # the slot was missing and was made again, after this state

    @property
    def subscription(self) -> str:
        return f"{self.slot} {self.id}".strip()

    def with_new_slot(self) -> SourceState:
        return replace(self, slot_remade=True)


@dataclass(frozen=True)
class CaptureState:
    """Every change below ``position`` is in the log or was not for us; nothing above is confirmed before this says so."""

    begin: LSN  # where this pipeline began to read
    log_end: LSN  # the end of the last transaction written to the log; ``begin`` if there was none
    position: LSN
    updated_at: float
    state: str = "running"  # waiting (for room on its disk), retrying, failed
    error: str | None = None


@dataclass(frozen=True)
class HistoryState:
    """The newest transaction that capture has dealt with, also one without a change for us: see history.py."""

    commit_lsn: LSN | None  # None: there was none yet
    xid: int = 0
    commit_time: int = 0
    publications: tuple[str, ...] = ()  # by which it was read
    timeline: int | None = None  # of the primary that was read last; None: it was a standby

    @property
    def transaction(self) -> Begin | None:
        return None if self.commit_lsn is None else Begin(self.commit_lsn, self.commit_time, self.xid)


@dataclass(frozen=True)
class SinkState:
    lsn: LSN | None  # None: the sink has not begun
    updated_at: float
    state: str = "running"  # starting, running, retrying, stopped, failed
    error: str | None = None
    commit_time: int = 0  # of the newest change delivered, µs since 1970
    changes_total: int = 0
    changes_per_second: float = 0.0


_LOCK_TRIES = 10
_ANOTHER_PLACE = "Make it a directory that the user of Penstock may write to, or choose another state_dir."
_STAGED_BATCH = re.compile(r"[0-9A-F]+-[0-9A-F]+")  # see staged_batch_uri
_CAPTURE_LOCK = "capture.lock"
_DIRECTORIES = ("log", "checkpoints", "staging", "imports", "parts")

T = TypeVar("T", SourceState, CaptureState, HistoryState, SinkState)


def staged_batch_uri(staging_uri: str, end: LSN) -> str:
    """Where a batch that ends there is staged."""
    return f"{staging_uri}/{str(end).replace('/', '-')}"


class PipelineState:
    def __init__(self, state_dir: str) -> None:
        self.root = Directory(state_dir)
        self.parts = self.root.child("parts")

    @property
    def log_uri(self) -> str:
        return self.root.child("log").uri

    @cached_property
    def log(self) -> ChangeLog:
        """One for all who share this state: it remembers what the segments hold."""
        return ChangeLog(self.log_uri)

    def checkpoint_uri(self, sink: str) -> str:
        return self.root.child(f"checkpoints/{sink}").uri

    def staging_uri(self, sink: str) -> str:
        return self.root.child(f"staging/{sink}").uri

    def remove_staged_batches(self, sink: str) -> None:
        """Of batches that were never committed. What imports have staged is not among them."""
        staging = Directory(self.staging_uri(sink))
        for name in staging.directories():
            if _STAGED_BATCH.fullmatch(name):
                staging.child(name).delete_all()

    def create(self) -> None:
        for name in _DIRECTORIES:
            self.root.child(name).create()

    def claim(self, pipeline: str) -> None:
        """Makes the directories, and writes down whose they are."""
        self.require_owner(pipeline)
        self.create()
        if self.parts.read_json("pipeline.json") is None:
            self.parts.write_json("pipeline.json", {"name": pipeline})

    def require_owner(self, pipeline: str) -> None:
        """Two pipelines must not share a state_dir: each would take the other's positions for its own."""
        owner = (self.parts.read_json("pipeline.json") or {}).get("name", pipeline)
        if owner != pipeline:
            raise ConfigError(
                f'state_dir {self.root.uri} belongs to pipeline "{owner}", not to "{pipeline}".',
                "Give each pipeline a state_dir of its own.",
            )

    def require_usable(self) -> None:
        """LogError where nothing could be written: before anything is made on the source for it."""
        for directory in (self.root, *(self.root.child(name) for name in _DIRECTORIES)):
            if reason := directory.why_unusable():
                raise LogError(f"state_dir {directory.uri} cannot be used: {reason}.", _ANOTHER_PLACE)

    def source(self) -> SourceState | None:
        return self._read("source", SourceState)

    @property
    def slot(self) -> str | None:
        """The one that is read, by name; None before there was one."""
        recorded = self.source()
        return recorded.slot if recorded is not None else None

    def capture(self) -> CaptureState | None:
        return self._read("capture", CaptureState)

    def history(self) -> HistoryState | None:
        return self._read("history", HistoryState)

    def sink(self, name: str) -> SinkState | None:
        return self._read(f"sink-{name}", SinkState)

    def save(self, state: SourceState | CaptureState | HistoryState | SinkState, sink: str = "") -> None:
        names = {SourceState: "source", CaptureState: "capture", HistoryState: "history", SinkState: f"sink-{sink}"}
        name = names[type(state)]
        self.parts.write_json(f"{name}.json", {k: _encode(k, v) for k, v in asdict(state).items()})

    def remove(self) -> list[str]:
        """All of it; says what was there."""
        names = [name for name in _DIRECTORIES if self.root.child(name).exists()]
        for name in names:
            self.root.child(name).delete_all()
        return [f"{name} under {self.root.uri}" for name in names]

    @contextmanager
    def exclusive(self, sinks: Iterable[str]) -> Iterator[None]:
        """One delivery per sink: a second one is refused. On a local disk only; elsewhere it is the operator's care."""
        with ExitStack() as held:
            for name in sinks if self.root.is_local else ():
                with translated(str(self._lock_file(name))):
                    lock = held.enter_context(open(self._lock_file(name), "w", opener=private))
                if not _locked(lock):
                    raise SinkUnavailable(
                        f'Another process delivers to sink "{name}".', "Stop it, or leave this sink to it."
                    )
            yield

    @contextmanager
    def exclusive_capture(self) -> Iterator[None]:
        """One capture per log, also while its server has lost sight of it. On a local disk only."""
        if not self.root.is_local:
            yield
            return
        with ExitStack() as held:
            with translated(str(Path(self.parts.path, _CAPTURE_LOCK))):
                lock = held.enter_context(open(Path(self.parts.path, _CAPTURE_LOCK), "w", opener=private))
            if not _locked(lock):
                raise SlotBusy("Another process captures into this log.", "Stop it, or leave it to its work.")
            yield

    def delivering(self, sink: str) -> bool | None:
        """Whether a process holds the sink's lock. None: nobody can tell, since the state is not on a local disk."""
        return self._is_locked(self._lock_file(sink))

    def capturing(self) -> bool | None:
        """Whether a process captures into this log; None as above."""
        return self._is_locked(Path(self.parts.path, _CAPTURE_LOCK))

    def _is_locked(self, path: Path) -> bool | None:
        if not self.root.is_local:
            return None
        try:
            with path.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            with translated(str(path)):
                raise error
        return False

    def _lock_file(self, sink: str) -> Path:
        return Path(self.parts.path, f"sink-{sink}.lock")

    def _read(self, name: str, kind: type[T]) -> T | None:
        data = self.parts.read_json(f"{name}.json")
        if data is None:
            return None
        try:
            return kind(**{k: _decode(k, v) for k, v in data.items() if k in kind.__dataclass_fields__})
        except (TypeError, ValueError):
            raise LogError(f"{self.parts.uri}/{name}.json is damaged: it lacks what it must say.") from None


def now() -> float:
    return time.time()


def _locked(lock: IO[str]) -> bool:
    """Tries for a moment: somebody may just be looking whether it is locked."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


_LSN_FIELDS = ("begin", "log_end", "position", "commit_lsn", "lsn")


def _encode(name: str, value: Any) -> Any:
    return str(value) if name in _LSN_FIELDS and value is not None else value


def _decode(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return LSN.parse(value) if name in _LSN_FIELDS and value is not None else value
