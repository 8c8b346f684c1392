"""The child processes of ``penstock run``: ``python -m penstock.cli.child``, with the task on standard input."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading

from penstock.config.module_path import look_for_inherited_modules
from penstock.control.supervision import BAD_CONFIG, TRY_AGAIN, Task
from penstock.error_policy import Verdict, policy_for
from penstock.errors import ConfigError, PenstockError
from penstock.logs import set_up_logging, show_error, show_faults_in_a_line
from penstock.pipeline import Pipeline


def main() -> int:
    look_for_inherited_modules()
    task: Task = pickle.load(sys.stdin.buffer)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    show_faults_in_a_line()
    set_up_logging(task.log_level, task.log_format, task.config.secrets())
    pipeline = Pipeline(task.config)
    try:
        if task.role == "capture":
            pipeline.capture(stop)
        elif task.role == "copy":
            assert task.copying is not None
            pipeline.copy_for_others(stop, task.sinks, task.copying)
        else:
            pipeline.deliver(stop, task.sinks, task.until, task.available_now, task.copying)
    except PenstockError as error:
        if not error.told:
            show_error(error)
        if isinstance(error, ConfigError):
            return BAD_CONFIG
        return TRY_AGAIN if policy_for(error).verdict is Verdict.RETRY else 1
    return 0


def _die_with_parent() -> None:
    """Standard input closes when the parent is gone, however it went. As with kill -9, what is durable is durable."""
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # DuckDB's binding would report what an error's traceback still holds as leaks, on standard error
