"""What Spark's Python processes import, and what they say when Spark goes away."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys

import pytest

from penstock.config.module_path import PRELOADED
from penstock.spark.startup.worker_python import worker_python

IMPORTED_SINKS = """
import sys
from penstock.spark import daemon
daemon._import_sinks()
print(*sorted(name for name in sys.modules if name.endswith((".sink", ".stdout"))))
"""
pytestmark = pytest.mark.process

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, and the other side's reads and writes fail


@pytest.mark.parametrize("at_once", [False, True], ids=["ended", "reset"])
def test_the_process_that_tells_offsets_ends_without_a_word_as_well(at_once: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as spark:
        port = str(spark.getsockname()[1])
        runner = subprocess.Popen(
            [worker_python(), "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "secret"},
        )
        connection, _ = spark.accept()
        with connection:
            assert connection.recv(10, socket.MSG_WAITALL) == struct.pack("!i", 6) + b"secret"
            connection.sendall(struct.pack("!i", 2) + b"ok")
            assert connection.recv(4, socket.MSG_WAITALL) == struct.pack("!i", runner.pid)
            if at_once:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert runner.communicate(timeout=60)[1] == b""


def test_the_process_that_tells_offsets_ends_without_a_word_if_the_query_has_ended_before_it_asks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as spark:
        port = str(spark.getsockname()[1])
    runner = subprocess.run(
        [worker_python(), "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "secret"},
    )
    assert runner.stderr == b""


@pytest.mark.parametrize("at_once", [False, True], ids=["ended", "reset"])
def test_a_worker_whose_connection_spark_closes_ends_without_a_word(at_once: bool) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "penstock.spark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "secret"},
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    assert daemon.stderr is not None
    with daemon:
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            (worker,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
            ended = os.pidfd_open(worker)
            if at_once:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        try:
            assert select.select([ended], [], [], 60)[0]
        finally:
            os.close(ended)
        daemon.stdin.close()
        assert daemon.stderr.read() == b""
        assert daemon.wait(60) is not None


def test_workers_are_forked_with_the_sinks_of_their_pipeline_and_no_other() -> None:
    environment = {**os.environ, PRELOADED: "penstock.sinks.file.sink,penstock.sinks.no_such_sink"}
    command = [sys.executable, "-c", IMPORTED_SINKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["penstock.sinks.file.sink"]
