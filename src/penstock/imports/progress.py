"""How far a table is with a sink, and ``parts/copying.json``, in which a copier writes it for displays.

The queue in the source has the same states and figures and is what ``penstock status`` asks; the file is a copy of it for
those who do not want to ask the source, or cannot, with what each import does at the moment, which only its copier knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from penstock.errors import LogError
from penstock.imports.jobs import Job
from penstock.lsn import LSN, ZERO
from penstock.state.lifecycle import TableState
from penstock.state.pipeline_state import PipelineState, now
from penstock.storage import Directory

_FILE = "copying.json"


@dataclass(frozen=True)
class TableStatus:
    """A table of ``penstock status``. The figures are those of an import; None where there is none, or none is known."""

    schema: str
    table: str
    sink: str
    state: TableState
    rows_copied: int | None = None
    rows_estimated: int | None = None
    bytes_copied: int | None = None
    bytes_estimated: int | None = None
    rows_per_second: float | None = None
    seconds_left: float | None = None
    phase: str | None = None  # what the import does right now, and how far it is, where rows alone do not tell
    waiting_for: str | None = None
    error: str | None = None

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def fraction(self) -> float | None:
        """How much of it is copied, from 0 to 1: by rows, or by bytes where the number of rows is not known."""
        for copied, estimated in ((self.rows_copied, self.rows_estimated), (self.bytes_copied, self.bytes_estimated)):
            if copied is not None and estimated is not None and 0 < estimated >= copied:
                return copied / estimated
        return None


@dataclass(frozen=True)
class Phase:
    """What an import does right now, and what keeps it from continuing; both in words, "" where there is nothing to say."""

    doing: str = ""
    waiting_for: str = ""


def table_status(job: Job, phase: Phase) -> TableStatus:
    """Rows and bytes are what has been read; pace and time left are estimated from it."""
    elapsed = max(now() - job.started_at.timestamp(), 1e-3) if job.started_at is not None else None
    rate = left = None
    if job.state is TableState.COPYING and elapsed is not None:
        rate = round(job.rows_copied / elapsed, 1)
        if job.chunks > job.chunks_done > 0:
            left = round(elapsed * (job.chunks - job.chunks_done) / job.chunks_done, 1)
    return TableStatus(
        job.schema_name, job.table_name, job.sink, job.state, job.rows_copied, job.rows_estimated, job.bytes_copied,
        job.bytes_estimated, rate, left, phase.doing or None, phase.waiting_for or None,
        job.error if job.state is not TableState.STREAMING else None,
    )  # fmt: skip


@dataclass(frozen=True)
class RecordedProgress:
    """What a copier last wrote, and when."""

    updated_at: float = 0.0
    tables: tuple[TableStatus, ...] = ()


def write_progress(parts: Directory, jobs: Sequence[Job], phases: Mapping[int, Phase]) -> None:
    shown = [job for job in jobs if job.state is not TableState.REMOVED]
    tables = [asdict(table_status(job, phases.get(job.id, Phase()))) for job in shown]
    parts.write_json(_FILE, {"updated_at": now(), "tables": tables})


def read_progress(parts: Directory) -> RecordedProgress:
    data = parts.read_json(_FILE)
    if data is None:
        return RecordedProgress()
    names = {field.name for field in fields(TableStatus)}
    try:
        tables = [{k: v for k, v in table.items() if k in names} for table in data["tables"]]
        statuses = [TableStatus(**{**table, "state": TableState(table["state"])}) for table in tables]
        return RecordedProgress(float(data["updated_at"]), tuple(statuses))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LogError(f"{parts.uri}/{_FILE} is damaged: it lacks what it must say.") from None


def captured_upto(state: PipelineState) -> LSN:
    """Up to where the log has everything: what was committed below is in the log, or was not for this pipeline.

    Capture's own record is up to a second old; the log's end is current, but stands still while there is nothing to capture.
    """
    captured = state.capture()
    end = state.log.contents().end
    return max(captured.position if captured is not None else ZERO, end or ZERO)
