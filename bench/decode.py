"""Decoding on one core: from segments on disk to typed columns."""

from __future__ import annotations

import time

import pyarrow as pa

from penstock.changelog.log import ChangeLog
from penstock.changelog.units import change_batches, plan
from penstock.lsn import ZERO
from penstock.pgoutput.types import typed


def rows_per_second(log_uri: str) -> float:
    """The best of three passes over the log; checksums, offsets, text columns and casts included."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        return max(_pass(ChangeLog(log_uri)) for _ in range(3))
    finally:
        pa.set_cpu_count(before)


def _pass(log: ChangeLog) -> float:
    contents = log.contents()
    assert contents.end is not None
    rows, begun = 0, time.process_time()
    for task in plan(log, ZERO, contents.end, 1):
        for batch in change_batches(log, task, ZERO):
            for text, column in zip(batch.new, batch.relation.columns, strict=True):
                typed(text, column, "error")
            rows += len(batch)
    return rows / (time.process_time() - begun)
