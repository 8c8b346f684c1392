"""The process that Spark forks its Python workers from, with what they need already imported.

Otherwise every worker would import it for itself, a second of CPU each, while the first batches wait.
"""

import pyspark.daemon
import pyspark.worker

import penstock.sinks.duckdb
import penstock.spark.source
import penstock.spark.writer  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.manager()
