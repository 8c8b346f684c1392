"""The process that Spark forks its Python workers from, with what they need already imported.

Otherwise every worker would import it for itself, a second of CPU each, while the first batches wait. Spark collects
garbage after each task; what was imported before the fork is none, and frozen it need not be looked through each time.
"""

import gc
import os
import socket

import pyspark.daemon
import pyspark.worker

from penstock.config.module_path import look_for_inherited_modules

_serve = pyspark.daemon.worker


def _serve_until_spark_leaves(sock: socket.socket, authenticated: bool) -> int:
    """PySpark prints a stack trace when Spark closes a worker's connection, as it does whenever it ends amid a task."""
    try:
        return _serve(sock, authenticated)
    except (EOFError, OSError):
        return 1


if __name__ == "__main__":
    pyspark.daemon.worker = _serve_until_spark_leaves
    look_for_inherited_modules()
    gc.freeze()
    try:
        pyspark.daemon.manager()
    except SystemExit:
        os._exit(0)  # DuckDB's binding would report its own modules as leaks, on standard error
