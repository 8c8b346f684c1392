"""Capture in a process of its own: ``python -m bench.capture_run``. Prints the seconds of reading and the peak memory."""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import threading
import time

from penstock.capture.capture import Capture
from penstock.changelog.log import ChangeLog
from penstock.config.model import Config
from penstock.lsn import LSN, ZERO
from penstock.state.pipeline_state import PipelineState


def measure(config: Config, until: LSN) -> tuple[float, float]:
    """(seconds from connecting until everything up to ``until`` is durable, peak MiB of the process)."""
    task = pickle.dumps((config, until))
    done = subprocess.run([sys.executable, "-m", "bench.capture_run"], input=task, capture_output=True, check=True)
    answer = json.loads(done.stdout)
    return answer["seconds"], answer["peak_mib"]


def main() -> None:
    config, until = pickle.load(sys.stdin.buffer)
    state, stop = PipelineState(config.state_dir), threading.Event()
    log = ChangeLog(state.log_uri)
    capture = threading.Thread(target=Capture(config, stop).run)
    begun = time.monotonic()
    capture.start()
    # The last transaction before ``until`` is the mark itself, which leaves no segment.
    while (log.contents().end or ZERO) < until - 4096 and not _captured(state, until):
        time.sleep(0.02)
    seconds = time.monotonic() - begun
    stop.set()
    capture.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak}))


def _captured(state: PipelineState, until: LSN) -> bool:
    captured = state.capture()
    return captured is not None and captured.position >= until


if __name__ == "__main__":
    main()
