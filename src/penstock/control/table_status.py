"""Where each table of a pipeline stands with each sink.

By the queue of imports in the source, where that can be asked; or by ``parts/copying.json`` under state_dir, which
whoever copies writes all the while, and which costs nothing to look at.

    pending        its turn has not come, or it waits for transactions that were running when it came in
    copying        rows are being read
    catching_up    all rows are read; the changes since the copy began are being applied
    streaming      complete: its changes come with those of all others
    failed         the last try failed; it is tried again later. Or the role may not publish the table
    removed        it was taken out of the subscription; the sink keeps what it has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from penstock.errors import LogError
from penstock.imports import progress
from penstock.imports.jobs import Job, active_jobs
from penstock.postgres.connection import Connection
from penstock.postgres.transactions import still_running
from penstock.storage import Directory
from penstock.subscription import migrations, ownership
from penstock.subscription.ownership import ForeignTable
from penstock.subscription.publication import PublishedTable

_NAMED = 3  # of the transactions that are waited for


@dataclass(frozen=True)
class TableStatus:
    """The figures are those of an import; None where there is none, or where nobody can tell."""

    schema: str
    table: str
    sink: str
    state: str
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
        """How much of it is copied, from 0 to 1: by rows, or by bytes where nobody knows how many rows there are."""
        for copied, estimated in ((self.rows_copied, self.rows_estimated), (self.bytes_copied, self.bytes_estimated)):
            if copied is not None and estimated is not None and 0 < estimated >= copied:
                return copied / estimated
        return None


def all_streaming(published: Sequence[PublishedTable], sinks: Sequence[str]) -> list[TableStatus]:
    """In mode stream there is nothing to wait for."""
    return [TableStatus(table.schema, table.table, sink, "streaming") for table in published for sink in sinks]


def import_statuses(
    connection: Connection, pipeline: str, published: Sequence[PublishedTable], sinks: Sequence[str]
) -> list[TableStatus]:
    """By the queue in the source. A published table without a job is pending: whoever copies will make it one."""
    known = active_jobs(connection, pipeline) if migrations.installed(connection) else []
    jobs = {(job.sink, job.table_oid): job for job in known if job.sink in sinks}
    waits = _Waits(connection)
    found = []
    for table in published:
        for sink in sinks:
            job = jobs.pop((sink, table.oid), None)
            if job is None or job.state == "removed":  # removed, and published again since
                found.append(TableStatus(table.schema, table.table, sink, "pending"))
            else:
                found.append(replace(_told(job, waits), schema=table.schema, table=table.table))
    names = {(table.schema, table.table) for table in published}
    for job in jobs.values():  # dropped, or taken out of the publication by somebody
        if (job.schema_name, job.table_name) in names:  # another table has its name now
            continue
        gone = job.state in ("streaming", "removed")
        found.append(TableStatus(job.schema_name, job.table_name, job.sink, "removed") if gone else _told(job, waits))
    return sorted(found, key=lambda table: (table.schema, table.table, sinks.index(table.sink)))


def with_refused(
    tables: Sequence[TableStatus], refused: Sequence[ForeignTable], sinks: Sequence[str]
) -> list[TableStatus]:
    """``refused``: are not published as selected, because the role may not publish them."""
    errors = {(table.schema, table.table): f"{table.problem} {ownership.remedy([table])}" for table in refused}
    others = [table for table in tables if (table.schema, table.table) not in errors]
    failed = [
        TableStatus(schema, table, sink, "failed", error=error)
        for (schema, table), error in errors.items()
        for sink in sinks
    ]
    return sorted([*others, *failed], key=lambda table: (table.schema, table.table, sinks.index(table.sink)))


def _told(job: Job, waits: _Waits) -> TableStatus:
    return TableStatus(**progress.figures(job, waits.of(job) if job.state == "pending" else ""))


class _Waits:
    """Whom jobs wait for. Many wait for the same transactions, which are looked for once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[int, ...], str] = {}

    def of(self, job: Job) -> str:
        xids = job.from_xids or job.published_xids
        if xids not in self._known:
            running = still_running(self._connection, xids)
            rest = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
            self._known[xids] = ", ".join(running[:_NAMED]) + rest
        return self._known[xids]


@dataclass(frozen=True)
class Copying:
    """What was last written of imports, and when."""

    updated_at: float = 0.0
    tables: tuple[TableStatus, ...] = ()


def read_copying(parts: Directory) -> Copying:
    data = parts.read_json(progress.FILE)
    if data is None:
        return Copying()
    known = {field.name for field in fields(TableStatus)}
    try:
        tables = [TableStatus(**{k: v for k, v in table.items() if k in known}) for table in data["tables"]]
        return Copying(float(data["updated_at"]), tuple(tables))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LogError(f"{parts.uri}/{progress.FILE} is damaged: it lacks what it must say.") from None
