"""Another process that has a DuckDB file open, as long as it is told to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_HOLDS = """
import sys, duckdb
with duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reads"):
    print("open", flush=True)
    sys.stdin.read()
"""


class OtherProcess:
    """Has the file open from the moment it is entered until ``leave``. ``opened``: whether DuckDB let it in."""

    def __init__(self, path: Path, reads: bool = True) -> None:
        self._command = [sys.executable, "-c", _HOLDS, str(path), "reads" if reads else "writes"]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.opened = self._process.stdout.readline() == "open\n"
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def leave(self) -> None:
        self._process.communicate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.leave()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
