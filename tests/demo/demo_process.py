"""The demo as somebody starts it, with what it starts itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

_START = "import sys; from penstock.cli.main import main; sys.argv[0] = 'penstock'; main()"


class DemoProcess:
    """``penstock demo`` in a directory of its own; ``output`` grows while it runs. ``python``: of another environment."""

    def __init__(self, directory: Path, *arguments: str, python: str = sys.executable) -> None:
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        os.chmod(directory, 0o755)  # as root, the server is another user
        os.chmod(self.temporary, 0o1777)
        self.output = ""
        self._family: dict[int, psutil.Process] = {}
        self._process = subprocess.Popen(
            [python, "-c", _START, "demo", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory,
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._look_around()
            self.output += line

    def _look_around(self) -> None:
        """Remembers every process that the demo has started."""
        try:
            for child in psutil.Process(self._process.pid).children(recursive=True):
                self._family[child.pid] = child
        except psutil.NoSuchProcess:
            pass

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._look_around()
        self._process.send_signal(signal.SIGINT)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float) -> int:
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code

    @property
    def started(self) -> int:
        return len(self._family)

    def survivors(self) -> list[str]:
        """What still runs of all that it had started. psutil tells a process from another with the same id."""
        return [process.name() for process in self._family.values() if _runs(process)]

    def close(self) -> None:
        """Ends it if it has not ended."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
