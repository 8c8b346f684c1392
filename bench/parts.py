"""Capture and delivery as separate processes that a benchmark starts and stops when it likes."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Literal

from penstock.control.supervision import Task
from penstock.imports.copying import CopierTask
from penstock.lsn import LSN, ZERO
from penstock.pipeline import Pipeline


class Part:
    """A child as ``penstock run`` starts it."""

    def __init__(self, role: Literal["capture", "deliver"], pipeline: Pipeline) -> None:
        copying = CopierTask() if pipeline.config.source.copies else None
        self._task = pickle.dumps(Task(role, pipeline.config, copying=copying))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Part:
        self._process = subprocess.Popen([sys.executable, "-m", "penstock.cli.child"], stdin=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(self._task)
        self._process.stdin.flush()
        return self

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def wait_for_sink(pipeline: Pipeline, until: LSN, seconds: float = 600) -> float:
    """Waits until the sink durably holds everything below ``until``; the moment (monotonic) at which it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        known = pipeline.state.sink(pipeline.config.sinks[0].name)
        if known is not None and (known.lsn or ZERO) >= until:
            return time.monotonic()
        time.sleep(0.005)
    raise TimeoutError(f"the sink did not reach {until}")
