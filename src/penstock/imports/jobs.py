"""The queue of imports, in the source's own tables: a job per table and sink.

The states of a job are those of ``state/lifecycle.py``, and every change of one is a transition of that module: a function
here names the event, and the statement has the states that the event applies to. Those that change one job return whether
they did: False when the event does not apply, such as to a job that was removed or expired meanwhile.

Every function is one short transaction of its own, on a connection in autocommit.
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
from penstock.imports.job_record import LIVING, Job, read_jobs, register_copier, release
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.postgres.transactions import running_transactions
from penstock.state.lifecycle import Event, TableState, claimed, moves, next_state
from penstock.subscription.membership import Membership

__all__ = [
    "Job", "NewJob", "active_jobs", "add_chunks", "begin", "chunks_again", "chunks_done", "chunks_staged",
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
        _end(connection, Event.REPLACED, [id for (id,) in connection.execute(_REPLACED, targets)])
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
    ``at_once``: also those that failed and have to wait for a while.

    1. The jobs are locked, passing over those that others are claiming right now.
    2. They are marked, unless another copier had them already: who is alive is asked again, with the rows locked.
    """
    scope = [pipeline, list(sinks), *[None if tables is None else list(tables)] * 2, at_once]
    with translated_errors("Claiming import jobs"), connection.transaction():
        claimable = connection.execute(_CLAIMABLE, scope).fetchall()
        if not claimable:
            return []
        states = [_claimed(*job) for _, *job in claimable]
        marked = [id for (id,) in connection.execute(_CLAIM, [copier, [id for id, *_ in claimable], states])]
        connection.execute(_FREE_CHUNKS, [marked])
        return read_jobs(connection, "id = any(%s)", [marked])


def _claimed(state: str, planned: bool, copied: bool) -> str:
    after = next_state(TableState(state), claimed(planned, copied))
    assert after is not None  # as it was selected
    return after.value


def begin(connection: Connection, job_id: int, from_lsn: LSN, from_xids: Sequence[int]) -> bool:
    """The job is still pending: ``from_xids`` have to end."""
    change = "from_lsn = %s::pg_lsn, from_xids = %s, to_lsn = null"
    return _record(connection, job_id, Event.POSITION_TAKEN, change, [str(from_lsn), list(from_xids)])


def start_copying(
    connection: Connection, job_id: int, layout: TableLayout, chunks: Sequence[Chunk], snapshot: str | None = None
) -> bool:
    """These chunks take the place of any that there were."""
    change = (
        "relation = %s, snapshot = %s, rows_estimated = %s, bytes_estimated = %s, chunks = %s, "
        "chunks_done = 0, rows_copied = 0, bytes_copied = 0, to_lsn = null, started_at = now()"
    )
    figures = [Jsonb(layout.to_json()), snapshot, layout.rows_estimated, layout.bytes, len(chunks)]
    with translated_errors("Starting an import"), connection.transaction():
        if not _record(connection, job_id, Event.PLANNED, change, figures):
            return False
        connection.execute("delete from penstock.import_chunks where job_id = %s", [job_id])
        insert_chunks(connection, job_id, chunks)
    return True


def copied(connection: Connection, job_id: int, to_lsn: LSN) -> bool:
    return _record(connection, job_id, Event.COPIED, "to_lsn = %s::pg_lsn", [str(to_lsn)])


def completed(connection: Connection, job_id: int) -> bool:
    """Its chunks are forgotten; its figures stay."""
    change = "error = null, next_try_at = null, copier = null, completed_at = now()"
    return _record_without_chunks(connection, job_id, Event.JOINED, change, [])


def failed(connection: Connection, job_id: int, error: str, retry_in: float) -> bool:
    """Anybody may take it again after so many seconds, and go on with the chunks that are left.

    Of several chunks, each may fail: the longest time counts.
    """
    change = (
        "attempts = attempts + 1, error = %s, "
        "next_try_at = greatest(next_try_at, now() + make_interval(secs => %s)), copier = null"
    )
    with translated_errors("Recording a failed import"), connection.transaction():
        connection.execute("select from penstock.import_jobs where id = %s for update", [job_id])
        connection.execute(_GIVE_BACK, [job_id])
        return _record(connection, job_id, Event.FAILED, change, [error, retry_in])


def start_over(connection: Connection, job_id: int) -> bool:
    """Back to the beginning, for any copier to take: what it has copied is void, and so is its place in the WAL."""
    change = (
        "published_xids = %s, from_lsn = null, from_xids = '{}', to_lsn = null, relation = null, "
        "snapshot = null, copier = null, next_try_at = null, rows_estimated = null, bytes_estimated = null, chunks = 0, "
        "chunks_done = 0, rows_copied = 0, bytes_copied = 0, started_at = null"
    )
    xids = list(running_transactions(connection))
    return _record_without_chunks(connection, job_id, Event.STARTED_OVER, change, [xids])


def remove_jobs(connection: Connection, pipeline: str, oids: Sequence[int]) -> None:
    """Of these tables, for all sinks."""
    with translated_errors("Removing import jobs"), connection.transaction():
        _end(connection, Event.REMOVED, [id for (id,) in connection.execute(_OF_TABLES, [pipeline, list(oids)])])


def _json(membership: Membership | None) -> Jsonb | None:
    return None if membership is None else Jsonb(membership.to_json())


def _end(connection: Connection, event: Event, ids: Sequence[int]) -> None:
    connection.execute(
        "update penstock.import_jobs set state = %(moves)s::jsonb ->> state, copier = null, next_try_at = null, "
        "updated_at = now() where id = any(%(ids)s) and %(moves)s::jsonb ? state",
        {"moves": Jsonb(moves(event)), "ids": ids},
    )
    connection.execute("delete from penstock.import_chunks where job_id = any(%s)", [ids])


def _record(connection: Connection, job_id: int, event: Event, change: str, parameters: Sequence[Any]) -> bool:
    """One event of one job, with what comes with it. False: the event does not apply to the job's state."""
    query = (
        f"update penstock.import_jobs set {change}, state = %s::jsonb ->> state, updated_at = now() "
        "where id = %s and %s::jsonb ? state"
    )
    by_state = Jsonb(moves(event))
    with translated_errors("Recording the state of an import"):
        return connection.execute(query, [*parameters, by_state, job_id, by_state]).rowcount == 1


def _record_without_chunks(
    connection: Connection, job_id: int, event: Event, change: str, parameters: Sequence[Any]
) -> bool:
    with translated_errors("Recording the state of an import"), connection.transaction():
        recorded = _record(connection, job_id, event, change, parameters)
        connection.execute("delete from penstock.import_chunks where job_id = %s", [job_id])
    return recorded


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
select j.id, j.state, j.relation is not null, j.to_lsn is not null from penstock.import_jobs j
where j.pipeline = %s and j.sink = any(%s) and (%s::oid[] is null or j.table_oid = any(%s::oid[])) and {_FREE}
    and (j.state in ('pending', 'copying', 'catching_up') or j.state = 'failed' and (%s or j.next_try_at <= now()))
order by j.id for update skip locked
"""

_CLAIM = f"""
update penstock.import_jobs j set copier = %s, updated_at = now(), next_try_at = null, state = claimed.state
from unnest(%s::bigint[], %s::text[]) as claimed (id, state)
where j.id = claimed.id and {_FREE}
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
