"""Running ``penstock`` the way a user does: in this process where it ends at once, as a process where it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from penstock.cli.main import main
from penstock.testing.conditions import wait_until

PENSTOCK = [sys.executable, "-m", "penstock"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if "error:" in line]


class Here:
    """``penstock`` within this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str | Path) -> Outcome:
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        sys.stdout.flush()
        said = self._capfd.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err)

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self(*arguments).out)


def run_to_end(*arguments: str | Path, seconds: float = 240, python_path: Path | None = None) -> Outcome:
    environment = {**os.environ, "PYTHONPATH": str(python_path)} if python_path else None
    done = subprocess.run(
        [*PENSTOCK, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, env=environment
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@contextmanager
def started(*arguments: str | Path, stderr: int | Path = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """``penstock`` as a process of its own. Afterwards neither it nor a process that it started may be left."""
    errors = os.open(stderr, os.O_WRONLY | os.O_CREAT) if isinstance(stderr, Path) else stderr
    process = subprocess.Popen([*PENSTOCK, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=errors)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if isinstance(stderr, Path):
            os.close(errors)


def stopped_by(number: signal.Signals, process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that got this signal, once everything that it had started is gone too."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    code = process.wait(120)
    wait_until(lambda: not [child for child in family if _lives(child)], what="the children to end")
    return code


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def write_config(directory: Path, url: str, sinks: Sequence[dict[str, Any]] = (), **more: Any) -> Path:
    file = directory / "penstock.yaml"
    document = {
        "name": "shop",
        "source": {"url": url},
        "sinks": list(sinks) or [{"name": "files", "type": "file", "path": "events"}],
        **more,
    }
    file.write_text(yaml.safe_dump(document))
    return file
