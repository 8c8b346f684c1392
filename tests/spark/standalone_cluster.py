"""A Spark standalone cluster on loopback: a master and two workers from the ``pyspark`` wheel, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from penstock.spark.startup.java import java_home
from penstock.testing.conditions import wait_until

_HOME = Path(pyspark.__file__).parent
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Cluster:
    url: str
    work_directories: tuple[Path, ...]

    @property
    def workers_used(self) -> int:
        """How many workers have run an executor."""
        return sum(1 for directory in self.work_directories if list(directory.glob("app-*/*")))


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[Cluster]:
    url = f"spark://{_LOOPBACK}:{_free_port()}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        port = url.rpartition(":")[2]
        _start(started, directory / "master.log", "master.Master", "--port", port, "--webui-port", "0")
        wait_until(lambda: _listens(int(port)), what="the master of the cluster")
        works = (directory / "work1", directory / "work2")
        for work in works:
            _start(started, work.with_suffix(".log"), "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                   "--work-dir", str(work), url)  # fmt: skip
        logs = [work.with_suffix(".log") for work in works]
        wait_until(
            lambda: all("registered with master" in log.read_text() for log in logs), what="the workers to register"
        )
        yield Cluster(url, works)
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # executors are in their worker's group
            process.wait()


def _start(started: list[subprocess.Popen[bytes]], log: Path, kind: str, *arguments: str) -> None:
    environment = {**os.environ, "JAVA_HOME": java_home(), "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": _LOOPBACK}
    with log.open("wb") as output:
        started.append(
            subprocess.Popen(
                [
                    str(_HOME / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{kind}",
                    "--host",
                    _LOOPBACK,
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        )


def _free_port() -> int:
    with socket.socket() as candidate:
        candidate.bind((_LOOPBACK, 0))
        port: int = candidate.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_LOOPBACK, port)) == 0
