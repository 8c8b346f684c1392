"""The Python of Spark's workers: the one that we run on."""

from __future__ import annotations

import shlex
import sys

import py4j
import pyspark

from penstock.spark.startup.java import launcher

# Spark puts packed copies of PySpark and Py4J before all others on the path. Python compiles what it imports from there anew
# in each process, half a second every time, and a query starts five of them one after the other.
# Modules of the working directory must not take the place of libraries: so PYTHONSAFEPATH, and no empty entry in the path.
_LAUNCHER = """#!/bin/sh
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in
    "" | */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) kept="$kept${{kept:+:}}$entry" ;;
  esac
done
if [ "$1 $2" = "-m pyspark.sql.streaming.python_streaming_source_runner" ]; then
  shift 2
  set -- -m penstock.spark.source_runner "$@"
fi
PYTHONSAFEPATH=1 PYTHONPATH=$kept exec {python} "$@"
"""


def worker_python() -> str:
    """For workers on this machine: they find the PySpark that we have imported, unless that is a packed one itself."""
    if any(".zip" in str(package.__file__) for package in (pyspark, py4j)):
        return sys.executable
    return str(launcher("python", _LAUNCHER.format(python=shlex.quote(sys.executable))))
