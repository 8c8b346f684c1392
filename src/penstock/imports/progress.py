"""How far imports are, for whoever watches: ``parts/copying.json``, written by a copier.

Up to where the log has everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.imports.jobs import Job
from penstock.lsn import LSN, ZERO
from penstock.state.pipeline_state import PipelineState, now
from penstock.storage import Directory

FILE = "copying.json"


def figures(job: Job, waiting_for: str = "", phase: str = "") -> dict[str, Any]:
    """A table of ``status``. Rows and bytes are what has been read; the rest is estimated from it."""
    elapsed = max(now() - job.started_at.timestamp(), 1e-3) if job.started_at is not None else None
    copying = job.state == "copying" and elapsed is not None
    rate = job.rows_copied / elapsed if copying and elapsed else None
    left = None
    if copying and elapsed and job.chunks_done and job.chunks > job.chunks_done:
        left = elapsed * (job.chunks - job.chunks_done) / job.chunks_done
    return {
        "schema": job.schema_name, "table": job.table_name, "sink": job.sink, "state": job.state,
        "rows_copied": job.rows_copied, "rows_estimated": job.rows_estimated,
        "bytes_copied": job.bytes_copied, "bytes_estimated": job.bytes_estimated,
        "rows_per_second": None if rate is None else round(rate, 1),
        "seconds_left": None if left is None else round(left, 1),
        "phase": phase or None, "waiting_for": waiting_for or None, "error": job.error if job.state != "streaming" else None,
    }  # fmt: skip


@dataclass(frozen=True)
class Phase:
    """What an import does right now, and what keeps it from continuing; both in words, "" where there is nothing to say."""

    doing: str = ""
    waiting_for: str = ""


def write_progress(parts: Directory, known: Sequence[Job], phases: Mapping[int, Phase]) -> None:
    told = {job.id: phases.get(job.id, Phase()) for job in known}
    tables = [figures(job, told[job.id].waiting_for, told[job.id].doing) for job in known if job.state != "removed"]
    parts.write_json(FILE, {"updated_at": now(), "tables": tables})


def captured_upto(state: PipelineState) -> LSN:
    """Everything that was committed below is in the log, or was not for us.

    Capture's own word is a second old; the log's end is of now, but stands still while nothing is for us.
    """
    captured = state.capture()
    end = state.log.contents().end
    return max(captured.position if captured is not None else ZERO, end or ZERO)
