"""The process that Spark forks its Python workers from. It imports what the workers need before the fork.

Otherwise every worker would import it again, a second of CPU each, while the first batches wait. Of sinks it imports those
of this pipeline, which ``session.open_session`` names in an environment variable. Spark collects garbage after each task;
``gc.freeze`` keeps the imported objects out of that.
"""

import gc
import importlib
import os
import socket
from contextlib import suppress

import pyspark.daemon
import pyspark.worker

import penstock.delivery.chunk_task
import penstock.delivery.writer
import penstock.spark.source  # noqa: F401
from penstock.config.module_path import PRELOADED, look_for_inherited_modules

_serve = pyspark.daemon.worker


def _serve_until_spark_leaves(sock: socket.socket, authenticated: bool) -> int:
    """PySpark prints a stack trace when Spark closes a worker's connection, as it does whenever it ends amid a task."""
    try:
        return _serve(sock, authenticated)
    except (EOFError, OSError):
        return 1


def _import_sinks() -> None:
    """A module that is missing here is reported by the task that needs it."""
    for module in filter(None, os.environ.get(PRELOADED, "").split(",")):
        with suppress(ImportError):
            importlib.import_module(module)


if __name__ == "__main__":
    pyspark.daemon.worker = _serve_until_spark_leaves
    look_for_inherited_modules()
    _import_sinks()
    gc.freeze()
    try:
        pyspark.daemon.manager()
    except SystemExit:
        os._exit(0)  # DuckDB's binding would report its own modules as leaks, on standard error
