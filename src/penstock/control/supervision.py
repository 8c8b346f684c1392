"""``run``: capture and delivery, which copies as well, as two child processes that are kept alive.

Two processes, since capture's loop and Spark's driver would share one interpreter lock; children, since a crash of one
(or of the JVM, which takes delivery along) must not be the end of the other. A child reads its task from its standard
input and ends when that closes: whatever kills the parent leaves nothing running.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from penstock.config.model import Config
from penstock.errors import ConfigError, PenstockError
from penstock.imports.copying import CopierTask
from penstock.lsn import LSN
from penstock.process import WITHOUT_WORKING_DIRECTORY
from penstock.retry import Backoff

logger = logging.getLogger(__name__)

TRY_AGAIN = 75  # exit code of a child whose error may pass: EX_TEMPFAIL
BAD_CONFIG = 2
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 30.0
_STABLE_SECONDS = 30.0


Role = Literal["capture", "deliver", "copy"]


@dataclass(frozen=True)
class Task:
    """What a child does; travels through its standard input, so that no secret is in a command line or a file."""

    role: Role
    config: Config
    sinks: tuple[str, ...] = ()
    until: LSN | None = None
    available_now: bool = False
    copying: CopierTask | None = None
    log_level: int = logging.WARNING
    log_format: str = "text"


class ChildFailed(PenstockError):
    """A child stopped for good. It has said why itself."""

    told = True


class ChildMisconfigured(ConfigError):
    """A child found a mistake in the config that takes Spark to see. It has said which itself."""

    told = True


class Supervisor:
    def __init__(
        self,
        config: Config,
        sinks: tuple[str, ...],
        until: LSN | None,
        roles: tuple[Role, ...] = ("capture", "deliver"),
        available_now: bool = False,
        copying: CopierTask | None = None,
    ) -> None:
        level = logging.getLogger("penstock").getEffectiveLevel()
        log_format = os.environ.get("PENSTOCK_LOG_FORMAT", "text")
        self._children = [
            _Child(Task(role, config, sinks, until, available_now, copying, level, log_format)) for role in roles
        ]

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``, until delivery (or copying) has reached its goal, or until one of them gives up."""
        children = self._children
        try:
            while not stop.is_set():
                for child in children:
                    child.keep_alive()
                if any(child.role != "capture" and child.succeeded for child in children):
                    return
                for child in children:
                    if child.gave_up:
                        kind = ChildMisconfigured if child.misconfigured else ChildFailed
                        raise kind(f"{child.role.capitalize()} stopped.", "See its message above.")
                stop.wait(_LOOK_SECONDS)
        finally:
            # Delivery first: what it commits last, capture still confirms to the source.
            for child in reversed(children):
                child.stop()


class _Child:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff(first=0.2)
        self._next_start = 0.0
        self._started = 0.0
        self.succeeded = self.gave_up = self.misconfigured = False

    @property
    def role(self) -> str:
        return self._task.role

    def keep_alive(self) -> None:
        if self._process is None:
            if time.monotonic() >= self._next_start:
                self._start()
            return
        code = self._process.poll()
        if code is None:
            return
        _sweep(self._process)
        self._process = None
        if code == 0:
            self.succeeded = True
        elif code == TRY_AGAIN or code < 0 or code > 128:
            self._restart_later(code)
        else:
            self.gave_up, self.misconfigured = True, code == BAD_CONFIG

    def _restart_later(self, code: int) -> None:
        if time.monotonic() - self._started > _STABLE_SECONDS:
            self._backoff.reset()
        delay = next(self._backoff)
        self._next_start = time.monotonic() + delay
        logger.warning("The %s process ended (code %d) and is started again in %.1f s.", self.role, code, delay)

    def _start(self) -> None:
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.child"],
            stdin=subprocess.PIPE,
            env={**os.environ, **WITHOUT_WORKING_DIRECTORY},
            start_new_session=True,  # Ctrl-C is for the parent, which then stops its children in order
        )
        assert self._process.stdin is not None
        try:
            pickle.dump(self._task, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; the next look will tell

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("The %s process does not end; it is killed.", self.role)
            self._process.kill()
            self._process.wait()
        _sweep(self._process)


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """Ends what a child that is gone has left: its JVM may be starting still. They are in the group that it led."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()


@contextmanager
def repeated(action: Callable[[], None], every: float, name: str) -> Iterator[None]:
    """Meanwhile calls ``action`` every so many seconds, in a thread of its own."""
    done = threading.Event()

    def loop() -> None:
        while not done.wait(every):
            action()

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(1)  # not longer: it may wait for a lock in the source
