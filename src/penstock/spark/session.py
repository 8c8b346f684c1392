"""The Spark session: small batches fast, and quiet."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.config.module_path import PRELOADED, VARIABLE
from penstock.process import WITHOUT_WORKING_DIRECTORY
from penstock.settings.sections import SparkSettings
from penstock.spark.source import ChangeSource
from penstock.spark.startup.class_archive import archive_options
from penstock.spark.startup.java import java_home
from penstock.spark.startup.worker_python import worker_python

logger = logging.getLogger(__name__)

_LOG4J = Path(__file__).with_name("log4j2.properties")

# A micro-batch of ours is a handful of work units: planning, code generation and bookkeeping would cost more than it.
_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.driver.memory": "1g",
    "spark.scheduler.mode": "FAIR",  # sinks share the executors; a slow one does not hold up the others
}
# Without Hadoop's native library its other way to write a checkpoint starts a process (chmod) for every file: 70 ms a
# batch. Renaming is atomic on a local disk either way.
_LOCAL_STATE: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_JVM_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_LOCAL: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def open_session(
    settings: SparkSettings, local_state: bool = True, copying_workers: int = 0, sink_modules: Iterable[str] = ()
) -> SparkSession:
    """A session with our data source registered. What the user's ``spark.conf`` says wins.

    ``copying_workers``: so many tasks more fit into ``local[*]``. A chunk of a table takes a second or so, mostly waiting for
    the source, and the stream's tasks must not wait behind it. ``sink_modules``: imported once for all workers.
    """
    _preload(sink_modules)
    os.environ["JAVA_HOME"] = home = java_home()
    # Of the JVM that puts together the other one's command line.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", JVM_OPTIONS)
    local: Mapping[str, str] = {}
    python = sys.executable
    if settings.master.startswith("local"):
        local, python = _LOCAL, worker_python()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark looks for another address, and says so
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    jvm_options = settings.conf.get(_JVM_OPTIONS_KEY) or f"{JVM_OPTIONS} {archive_options(home)}"
    cores = os.cpu_count() or 1
    room = settings.master == "local[*]" and copying_workers > 0
    builder = SparkSession.builder.master(f"local[{cores + copying_workers}]" if room else settings.master)
    for key, value in {
        **_DEFAULTS,
        **local,
        **({"spark.default.parallelism": str(cores)} if room else {}),
        **(_LOCAL_STATE if local_state else {}),
        **{f"spark.executorEnv.{name}": value for name, value in WITHOUT_WORKING_DIRECTORY.items()},
        **_modules(),
        **settings.conf,
        _JVM_OPTIONS_KEY: f"{_logging_options()} {jvm_options}",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.dataSource.register(ChangeSource)
    _say_nothing_of_accumulators(session)
    return session


def _preload(modules: Iterable[str]) -> None:
    """Only modules of Penstock: what another one does when it is imported may not survive a fork."""
    os.environ[PRELOADED] = ",".join(sorted({module for module in modules if module.startswith("penstock.")}))


def _modules() -> dict[str, str]:
    """Executors of a cluster look for modules where we do, if the config's directory is there."""
    return {f"spark.executorEnv.{name}": value for name in (VARIABLE, PRELOADED) if (value := os.environ.get(name))}


def _say_nothing_of_accumulators(session: SparkSession) -> None:
    """PySpark prints a stack trace when the JVM closes the connection of its accumulators, as it does whenever it ends."""
    server = session.sparkContext._accumulatorServer
    if server is not None:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]


def _logging_options() -> str:
    """Set before the JVM starts: most of the noise comes before a session is there to be told a level.

    Why a batch failed is said by us, in a sentence; Spark's own account of it, with its stack traces, is for who debugs.
    """
    level = "warn" if logger.isEnabledFor(logging.DEBUG) else "fatal"
    return f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}" -Dpenstock.spark.level={level}'


def close_session(session: SparkSession) -> None:
    """Also when the JVM is gone already."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        session.stop()
    except (Py4JError, ConnectionError) as error:
        logger.debug("While closing Spark: %s", error)
