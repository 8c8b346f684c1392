"""The state of each table of a pipeline in each sink, by the queue of imports in the source: see ``state/lifecycle.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.imports.jobs import Job, active_jobs
from penstock.imports.progress import Phase, TableStatus, table_status
from penstock.postgres.connection import Connection
from penstock.postgres.transactions import still_running
from penstock.state.lifecycle import Event, TableState, next_state
from penstock.subscription import migrations, ownership
from penstock.subscription.ownership import ForeignTable
from penstock.subscription.publication import PublishedTable

_NAMED = 3  # of the transactions that are waited for


def all_streaming(published: Sequence[PublishedTable], sinks: Sequence[str]) -> list[TableStatus]:
    """In mode stream there is nothing to wait for."""
    return [TableStatus(table.schema, table.table, sink, TableState.STREAMING) for table in published for sink in sinks]


def import_statuses(
    connection: Connection, pipeline: str, published: Sequence[PublishedTable], sinks: Sequence[str]
) -> list[TableStatus]:
    """By the queue in the source. A published table without a job is pending: the next look at the publications makes one."""
    recorded = active_jobs(connection, pipeline) if migrations.installed(connection) else []
    jobs = {(job.sink, job.table_oid): job for job in recorded if job.sink in sinks}
    waits = _Waits(connection)
    statuses = []
    for table in published:
        for sink in sinks:
            job = jobs.pop((sink, table.oid), None)
            status = _status(table.schema, table.table, sink, job, Event.SEEN_PUBLISHED, waits)
            statuses.append(replace(status, schema=table.schema, table=table.table))
    names = {(table.schema, table.table) for table in published}
    for job in jobs.values():  # of tables that were dropped, or taken out of the publication
        if (job.schema_name, job.table_name) not in names:  # unless another table has the name now
            event = Event.SEEN_UNPUBLISHED
            statuses.append(_status(job.schema_name, job.table_name, job.sink, job, event, waits))
    return sorted(statuses, key=lambda table: (table.schema, table.table, sinks.index(table.sink)))


def with_refused(
    tables: Sequence[TableStatus], refused: Sequence[ForeignTable], sinks: Sequence[str]
) -> list[TableStatus]:
    """``refused``: are not published as selected, because the role may not publish them."""
    errors = {(table.schema, table.table): f"{table.problem} {ownership.remedy([table])}" for table in refused}
    others = [table for table in tables if (table.schema, table.table) not in errors]
    failed = [
        TableStatus(schema, table, sink, TableState.FAILED, error=error)
        for (schema, table), error in errors.items()
        for sink in sinks
    ]
    return sorted([*others, *failed], key=lambda table: (table.schema, table.table, sinks.index(table.sink)))


def _status(schema: str, table: str, sink: str, job: Job | None, event: Event, waits: _Waits) -> TableStatus:
    """With the figures of its import, unless they are of one that does not count any more."""
    recorded = TableState.REMOVED if job is None else job.state
    state = next_state(recorded, event) or recorded
    if job is None or state is not job.state or state is TableState.REMOVED:
        return TableStatus(schema, table, sink, state)
    return table_status(job, Phase(waiting_for=waits.of(job) if state is TableState.PENDING else ""))


class _Waits:
    """Which transactions jobs wait for. Many wait for the same ones, which are looked up once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._words: dict[tuple[int, ...], str] = {}

    def of(self, job: Job) -> str:
        xids = job.from_xids or job.published_xids
        if xids not in self._words:
            running = still_running(self._connection, xids)
            rest = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
            self._words[xids] = ", ".join(running[:_NAMED]) + rest
        return self._words[xids]
