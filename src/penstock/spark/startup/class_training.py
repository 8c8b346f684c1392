"""Makes the archive of ``class_archive``: runs what a pipeline runs, to learn which classes it takes; Java writes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.settings.sections import SparkSettings
from penstock.spark.session import JVM_OPTIONS, open_session
from penstock.spark.startup.class_archive import archive_path, outdated_archives
from penstock.spark.startup.java import java_home

_PATIENCE_SECONDS = 600
_LEFT_SECONDS = 3600


def make_archive(say: Callable[[str], None]) -> Path:
    """Renamed into place when it is whole, so that no JVM starts with half of it."""
    home = java_home()
    path = archive_path(home)
    with _place_beside(path) as place:
        say("Learning which classes Spark loads …")
        classes = place / "classes"
        conf = {"spark.driver.extraJavaOptions": f'{JVM_OPTIONS} "-XX:DumpLoadedClassList={classes}"'}
        session = open_session(SparkSettings(master="local[2]", conf=conf))
        try:
            jvm_arguments = _of_modules(session)
            class_path = str(_jvm(session).java.lang.System.getProperty("java.class.path"))
            _train(session, place)
        finally:
            _end(session)
        say("Writing the archive …")
        command = [
            f"{home}/bin/java", "-Xshare:dump", f"-XX:SharedClassListFile={classes}",
            f"-XX:SharedArchiveFile={place / path.name}", "-XX:+UseSerialGC",
            "-XX:+IgnoreUnrecognizedVMOptions", *jvm_arguments, "-cp", class_path,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
        if done.returncode != 0 or not (place / path.name).exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise PenstockError(
                f"Java did not write the archive {path}: {said[-1] if said else f'exit code {done.returncode}'}.",
                "Penstock works without it; only its starts take longer.",
            )
        os.replace(place / path.name, path)
    for outdated in outdated_archives(path):
        outdated.unlink(missing_ok=True)
    return path


@contextmanager
def _place_beside(path: Path) -> Iterator[Path]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(".making-*"):  # by somebody who was killed
            if left.stat().st_mtime < time.time() - _LEFT_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=path.parent) as name:
            yield Path(name)
    except OSError as error:
        raise PenstockError(
            f"The archive {path} cannot be written: {error.strerror or error}.",
            "Set XDG_CACHE_HOME to a directory that can. Penstock works without it; only its starts take longer.",
        ) from error


def _jvm(session: SparkSession) -> Any:
    return session._jvm


def _of_modules(session: SparkSession) -> list[str]:
    """What Spark's launcher opens of Java's modules: an archive is for the same alone."""
    arguments = _jvm(session).java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    return [argument for argument in map(str, arguments) if argument.startswith("--")]


def _train(session: SparkSession, place: Path) -> None:
    """A streaming query whose batches Python maps and commits, as a delivery's are; and a job, as an import's."""
    frame = session.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=2).load()
    query = (
        frame.mapInArrow(_as_it_is, frame.schema)
        .observe("changes", F.sum("value").alias("sum"))
        .writeStream.option("checkpointLocation", (place / "checkpoint").as_uri())
        .foreachBatch(_commit)
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    session.sparkContext.parallelize(range(2), 2).map(str).collect()


def _commit(batch: DataFrame, number: int) -> None:
    batch.collect()


def _as_it_is(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _end(session: SparkSession) -> None:
    """The JVM writes its list of classes when it ends."""
    gateway = SparkContext._gateway
    session.stop()
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()
    process.wait(_PATIENCE_SECONDS)
    SparkContext._gateway = SparkContext._jvm = None
