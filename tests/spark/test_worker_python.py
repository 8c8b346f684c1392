from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import py4j
import pytest
from pyspark.sql import SparkSession

from penstock.spark.startup.worker_python import worker_python


@pytest.fixture(autouse=True)
def _cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))


def path_of(python: str, given: str) -> list[str]:
    """PYTHONPATH as it reaches the Python that is started."""
    command = [python, "-c", "import os, sys; print(os.environ['PYTHONPATH']); print(sys.executable)"]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": given}
    )
    path, executable = answer.stdout.splitlines()
    assert executable == sys.executable
    return path.split(":")


@pytest.mark.process
def test_all_of_the_path_stays_but_sparks_packed_copies() -> None:
    spark = "/opt/my spark/python/lib"
    given = ["/my code", f"{spark}/pyspark.zip", f"{spark}/py4j-0.10.9.9-src.zip", "/other*/lib.zip", ""]
    assert path_of(worker_python(), ":".join(given)) == ["/my code", "/other*/lib.zip"]
    assert path_of(worker_python(), f"{spark}/pyspark.zip") == [""]


def test_a_pyspark_that_is_itself_packed_stays_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py4j, "__file__", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/__init__.py")
    assert worker_python() == sys.executable


@pytest.mark.spark
def test_workers_import_the_pyspark_that_we_do(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import pyspark

        return pyspark.__file__

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]
