"""The queue of imports, in the source's own tables: a job per table and sink.

    pending        made; waits until transactions that were running have ended
    copying        has a plan; chunks are read
    catching_up    everything is read, up to ``to_lsn``
    streaming      complete
    failed         goes on where it was, from ``next_try_at`` on
    removed        the table was taken out of the subscription
    expired        another job has taken its place

Every function is one short transaction of its own, on a connection in autocommit. Those that move a job on say whether
they did: False when it was removed or expired meanwhile, so that nobody brings it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from penstock.imports.chunk_queue import (
    add_chunks,
    chunks_again,
    chunks_done,
    chunks_staged,
    claim_chunks,
    insert_chunks,
    unfinished_chunks,
)
from penstock.imports.job_record import LIVING, Job, State, read_jobs, register_copier, release
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.postgres.transactions import running_transactions
from penstock.subscription.membership import Membership

__all__ = [
    "Job", "NewJob", "State", "active_jobs", "add_chunks", "begin", "chunks_again", "chunks_done", "chunks_staged",
    "claim_chunks", "claim_jobs", "completed", "copied", "create_jobs", "failed", "record_membership", "register_copier",
    "release", "remove_jobs", "start_copying", "start_over", "unfinished_chunks",
]  # fmt: skip


@dataclass(frozen=True)
class NewJob:
    """``again``: the sink has rows of this table from an earlier import. ``membership``: how the table is published, as read
    before the job is made."""

    sink: str
    oid: int
    schema: str
    table: str
    again: bool = False
    membership: Membership | None = None


def create_jobs(connection: Connection, pipeline: str, wanted: Sequence[NewJob]) -> list[Job]:
    """A job for each, in place of the one that the table had for that sink. The tables must be published already."""
    if not wanted:
        return []
    with translated_errors("Creating import jobs"), connection.transaction():
        # A transaction that is not in this list began after the tables were published.
        xids = list(running_transactions(connection))
        targets = {"pipeline": pipeline, "sinks": [job.sink for job in wanted], "oids": [job.oid for job in wanted]}
        _end(connection, "expired", [id for (id,) in connection.execute(_REPLACED, targets)])
        rows = connection.execute(
            _CREATE,
            {
                **targets, "xids": xids, "schemas": [job.schema for job in wanted],
                "tables": [job.table for job in wanted], "again": [job.again for job in wanted],
                "memberships": [_json(job.membership) for job in wanted],
            },
        ).fetchall()  # fmt: skip
        return read_jobs(connection, "id = any(%s)", [[id for (id,) in rows]])


def record_membership(connection: Connection, pipeline: str, oid: int, before: Membership, now: Membership) -> None:
    """For the jobs of the table that were made or recorded under ``before``: nothing was missed from there to ``now``."""
    with translated_errors("Recording how a table is published"):
        connection.execute(
            "update penstock.import_jobs set membership = %s where pipeline = %s and table_oid = %s and membership = %s "
            "and state not in ('removed', 'expired')",
            [_json(now), pipeline, oid, _json(before)],
        )


def active_jobs(connection: Connection, pipeline: str) -> list[Job]:
    """The one that counts of each table and sink, also if it is removed."""
    with translated_errors("Reading import jobs"):
        return read_jobs(connection, "pipeline = %s and state <> 'expired'", [pipeline])


def claim_jobs(
    connection: Connection, pipeline: str, copier: int, sinks: Sequence[str], tables: Sequence[int] | None = None,
    at_once: bool = False,
) -> list[Job]:  # fmt: skip
    """Every job that is to be worked on and that no living copier has, now this copier's. Not those that it has already.

    A job that failed goes back to the state it was in; chunks that a dead copier was reading are there to be read again.
    ``at_once``: also those that failed and are to wait for a while.

    1. The jobs are locked, passing over those that others are claiming right now.
    2. They are marked, unless somebody had them already: who is alive is asked anew, with the rows in our hands.
    """
    scope = [pipeline, list(sinks), *[None if tables is None else list(tables)] * 2, at_once]
    with translated_errors("Claiming import jobs"), connection.transaction():
        found = [id for (id,) in connection.execute(_CLAIMABLE, scope)]
        if not found:
            return []
        claimed = [id for (id,) in connection.execute(_CLAIM, [copier, found])]
        connection.execute(_FREE_CHUNKS, [claimed])
        return read_jobs(connection, "id = any(%s)", [claimed])


def begin(connection: Connection, job_id: int, from_lsn: LSN, from_xids: Sequence[int]) -> bool:
    """The job is still pending: ``from_xids`` have to end."""
    change = "from_lsn = %s::pg_lsn, from_xids = %s, to_lsn = null"
    return _moved_on(connection, job_id, change, [str(from_lsn), list(from_xids)])


def start_copying(
    connection: Connection, job_id: int, layout: TableLayout, chunks: Sequence[Chunk], snapshot: str | None = None
) -> bool:
    """These chunks take the place of any that there were."""
    change = (
        "state = 'copying', relation = %s, snapshot = %s, rows_estimated = %s, bytes_estimated = %s, chunks = %s, "
        "chunks_done = 0, rows_copied = 0, bytes_copied = 0, to_lsn = null, started_at = now()"
    )
    figures = [Jsonb(layout.to_json()), snapshot, layout.rows_estimated, layout.bytes, len(chunks)]
    with translated_errors("Starting an import"), connection.transaction():
        if not _moved_on(connection, job_id, change, figures):
            return False
        connection.execute("delete from penstock.import_chunks where job_id = %s", [job_id])
        insert_chunks(connection, job_id, chunks)
    return True


def copied(connection: Connection, job_id: int, to_lsn: LSN) -> bool:
    return _moved_on(connection, job_id, "state = 'catching_up', to_lsn = %s::pg_lsn", [str(to_lsn)])


def completed(connection: Connection, job_id: int) -> bool:
    """Its chunks are forgotten; its figures stay."""
    change = "state = 'streaming', error = null, next_try_at = null, copier = null, completed_at = now()"
    return _moved_on_without_chunks(connection, job_id, change, [])


def failed(connection: Connection, job_id: int, error: str, retry_in: float) -> bool:
    """Anybody may take it again after so many seconds, and go on with the chunks that are left.

    Of several chunks, each may fail: the longest time counts.
    """
    change = (
        "state = 'failed', attempts = attempts + 1, error = %s, "
        "next_try_at = greatest(next_try_at, now() + make_interval(secs => %s)), copier = null"
    )
    with translated_errors("Recording a failed import"), connection.transaction():
        connection.execute("select from penstock.import_jobs where id = %s for update", [job_id])
        connection.execute(_GIVE_BACK, [job_id])
        return _moved_on(connection, job_id, change, [error, retry_in])


def start_over(connection: Connection, job_id: int) -> bool:
    """Back to the beginning, for any copier to take: what it has copied is void, and so is its place in the WAL."""
    change = (
        "state = 'pending', published_xids = %s, from_lsn = null, from_xids = '{}', to_lsn = null, relation = null, "
        "snapshot = null, copier = null, next_try_at = null, rows_estimated = null, bytes_estimated = null, chunks = 0, "
        "chunks_done = 0, rows_copied = 0, bytes_copied = 0, started_at = null"
    )
    return _moved_on_without_chunks(connection, job_id, change, [list(running_transactions(connection))])


def remove_jobs(connection: Connection, pipeline: str, oids: Sequence[int]) -> None:
    """Of these tables, for all sinks."""
    with translated_errors("Removing import jobs"), connection.transaction():
        _end(connection, "removed", [id for (id,) in connection.execute(_OF_TABLES, [pipeline, list(oids)])])


def _json(membership: Membership | None) -> Jsonb | None:
    return None if membership is None else Jsonb(membership.to_json())


def _end(connection: Connection, state: State, ids: Sequence[int]) -> None:
    connection.execute(
        "update penstock.import_jobs set state = %s, copier = null, next_try_at = null, updated_at = now() "
        "where id = any(%s)",
        [state, ids],
    )
    connection.execute("delete from penstock.import_chunks where job_id = any(%s)", [ids])


def _moved_on(connection: Connection, job_id: int, change: str, parameters: Sequence[Any]) -> bool:
    query = (
        f"update penstock.import_jobs set {change}, updated_at = now() "
        "where id = %s and state not in ('removed', 'expired')"
    )
    with translated_errors("Recording the state of an import"):
        return connection.execute(query, [*parameters, job_id]).rowcount == 1


def _moved_on_without_chunks(connection: Connection, job_id: int, change: str, parameters: Sequence[Any]) -> bool:
    with translated_errors("Recording the state of an import"), connection.transaction():
        moved = _moved_on(connection, job_id, change, parameters)
        connection.execute("delete from penstock.import_chunks where job_id = %s", [job_id])
    return moved


# In the order of their numbers, so that no two wait for each other.
_REPLACED = """
select j.id from penstock.import_jobs j
where j.pipeline = %(pipeline)s and j.state <> 'expired'
    and (j.sink, j.table_oid) in (select * from unnest(%(sinks)s::text[], %(oids)s::oid[]))
order by j.id for update
"""

_OF_TABLES = """
select id from penstock.import_jobs
where pipeline = %s and table_oid = any(%s::oid[]) and state not in ('removed', 'expired')
order by id for update
"""

_CREATE = """
insert into penstock.import_jobs (pipeline, sink, table_oid, schema_name, table_name, again, published_xids, membership)
select %(pipeline)s, w.sink, w.oid, w.schema_name, w.table_name, w.again, %(xids)s::bigint[], w.membership
from unnest(
    %(sinks)s::text[], %(oids)s::oid[], %(schemas)s::text[], %(tables)s::text[], %(again)s::bool[], %(memberships)s::jsonb[]
) with ordinality as w (sink, oid, schema_name, table_name, again, membership, position)
order by w.position
returning id
"""

_FREE = f"(j.copier is null or j.copier not in {LIVING})"

_CLAIMABLE = f"""
select j.id from penstock.import_jobs j
where j.pipeline = %s and j.sink = any(%s) and (%s::oid[] is null or j.table_oid = any(%s::oid[])) and {_FREE}
    and (j.state in ('pending', 'copying', 'catching_up') or j.state = 'failed' and (%s or j.next_try_at <= now()))
order by j.id for update skip locked
"""

_CLAIM = f"""
update penstock.import_jobs j set copier = %s, updated_at = now(), next_try_at = null, state = case
    when j.state <> 'failed' then j.state
    when j.to_lsn is not null then 'catching_up'
    when j.relation is not null then 'copying'
    else 'pending'
end
where j.id = any(%s) and {_FREE}
returning j.id
"""

_FREE_CHUNKS = f"""
update penstock.import_chunks j set state = 'todo', copier = null, claim = null
where j.job_id = any(%s) and j.state = 'copying' and {_FREE}
"""

_GIVE_BACK = """
update penstock.import_chunks c set state = 'todo', copier = null, claim = null
from penstock.import_jobs j where j.id = %s and c.job_id = j.id and c.state = 'copying' and c.copier = j.copier
"""
