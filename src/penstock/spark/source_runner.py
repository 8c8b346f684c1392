"""PySpark's process that a streaming source's offsets are asked from, without its last words.

It prints a stack trace when Spark closes its connection, as it does whenever a query ends while it is asked.
"""

import os

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.python_streaming_source_runner import main
from pyspark.worker_util import get_sock_file_to_executor

if __name__ == "__main__":
    try:
        with get_sock_file_to_executor(timeout=None) as connection:
            main(connection, connection)
    except (EOFError, OSError, PySparkRuntimeError):  # the last: the query ended before the connection was made
        os._exit(1)  # what is left to be written cannot be, which would be said as well
