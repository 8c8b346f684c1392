"""The process that Spark forks its Python workers from, with what they need already imported.

Otherwise every worker would import it for itself, a second of CPU each, while the first batches wait. Spark collects
garbage after each task; what was imported before the fork is none, and frozen it need not be looked through each time.
"""

import gc

import pyspark.daemon
import pyspark.worker

import penstock.sinks.duckdb
import penstock.sinks.postgres
import penstock.spark.chunk_task
import penstock.spark.source
import penstock.spark.writer  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    pyspark.daemon.manager()
