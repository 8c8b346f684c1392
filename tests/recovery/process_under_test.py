"""A pipeline as a user runs it: a process of its own with its children, to be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.testing.conditions import wait_until

_PROJECT = Path(__file__).parents[2]
_MARK = "PENSTOCK_UNDER_TEST"  # in the environment of everything that is started here, down to the last grandchild


class RunningPipeline:
    """``penstock run FILE``, or another verb. Whatever it says goes to ``log``."""

    def __init__(self, file: Path, log: Path, *arguments: str, verb: str = "run", failpoint: str = "") -> None:
        environment = {**os.environ, "PENSTOCK_FAILPOINT": failpoint, _MARK: str(os.getpid())}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                _command(verb, file, *arguments), cwd=_PROJECT, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        self._tree = psutil.Process(self._process.pid)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout: float = 120) -> int:
        return self._process.wait(timeout)

    def stop(self) -> int:
        """As Ctrl-C or a service manager would; the exit code."""
        members = self._members()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        _await_gone(members)
        return code

    def kill_tree(self) -> None:
        """Everything at once, the parent first so that it starts nothing anew."""
        members = [self._tree, *self._members()]
        for member in members:
            _kill(member)
        self._process.wait(10)
        _await_gone(members)

    def kill_capture(self) -> None:
        _kill(wait_until(lambda: self._child(java=False), what="the capture process"))

    def kill_deliver(self) -> None:
        _kill(wait_until(lambda: self._child(java=True), what="the deliver process"))

    def kill_jvm(self) -> None:
        _kill(wait_until(self._jvm, what="Spark's Java process"))

    def _members(self) -> list[psutil.Process]:
        try:
            return self._tree.children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _jvm(self) -> psutil.Process | None:
        return next((member for member in self._members() if _is_java(member)), None)

    def _child(self, java: bool) -> psutil.Process | None:
        """The two children differ by what they started: delivery has a JVM."""
        for child in self._tree.children():
            below = child.children(recursive=True)
            if _is_penstock_child(child) and any(map(_is_java, below)) == java:
                return child
        return None


def survivors() -> list[psutil.Process]:
    """What is left of all pipelines that this process started, children and orphans."""
    return [process for process in psutil.process_iter() if _is_marked(process)]


def _is_marked(process: psutil.Process) -> bool:
    try:
        return process.environ().get(_MARK) == str(os.getpid()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False  # gone, or somebody else's


def _command(verb: str, file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", verb, str(file), *arguments]


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        return False


def _is_penstock_child(process: psutil.Process) -> bool:
    try:
        return "penstock.cli.child" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


def _await_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive, f"still there: {alive}"
