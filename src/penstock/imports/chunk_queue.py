"""The chunks of import jobs: which copier reads which, and in which state (``ChunkState``) they are.

Chunks that are claimed together are one claim: they are read over one connection. A job's figures are kept in its own
row, with every change of a chunk's state in the same statement. Whoever changes chunks locks their job first, so that no
two wait for each other; whoever claims some waits for nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any

from psycopg.types.json import Jsonb

from penstock.imports.job_record import LIVING, Job, read_jobs
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.state.lifecycle import ChunkState

_MOST_CHUNKS = 64
_INSERTED_AT_ONCE = 500  # a JSON array of chunks with thousands of keys each has its limits


def claim_chunks(
    connection: Connection, pipeline: str, copier: int, most_bytes: int, most_connections: int | None = None,
    *, sinks: Sequence[str] | None = None, tables: Sequence[int] | None = None,
) -> list[tuple[Job, Chunk]]:  # fmt: skip
    """Some chunks of one sink, now this copier's: at least one if there is any, up to ``most_bytes`` by estimate.

    None when ``most_connections`` claims of the pipeline are under way. Only of ``sinks`` and ``tables`` where given.

    1. The first ones that are open are looked up without locks, and how many of them make a claim.
    2. So many are locked, passing over those that others are claiming right now.
    3. They are marked, unless somebody had them already: who is alive is asked anew, with the rows in our hands.
    """
    scope = {"pipeline": pipeline, "sinks": None if sinks is None else list(sinks), "most": _MOST_CHUNKS,
             "tables": None if tables is None else list(tables)}  # fmt: skip
    with translated_errors("Claiming chunks of imports"), connection.transaction():
        if most_connections is not None and _claims_under_way(connection, pipeline) >= most_connections:
            return []
        connection.execute(_IN_ORDER)
        found = connection.execute(_FIRST, scope).fetchall()
        if not found:
            return []
        locked = connection.execute(_LOCKED, [*_columns(found), _fitting(found, most_bytes)]).fetchall()
        wanted = locked[: _fitting(locked, most_bytes)]  # larger ones, if others have taken the first
        marked = connection.execute(_CLAIMED, [copier, *_columns(wanted)]).fetchall() if wanted else []
        jobs = {job.id: job for job in read_jobs(connection, "id = any(%s)", [[job for job, _ in marked]])}
    claimed = [(jobs[job], Chunk.from_json(chunk)) for job, chunk in marked]
    return sorted(claimed, key=lambda pair: (pair[0].id, pair[1].number))


def add_chunks(connection: Connection, job_id: int, chunks: Sequence[Chunk], layout: TableLayout | None = None) -> None:
    """More chunks for a job; their numbers must be new to it. ``layout``: with what they were planned for."""
    with translated_errors("Adding chunks to an import"), connection.transaction():
        connection.execute(
            "update penstock.import_jobs set chunks = chunks + %s, relation = coalesce(%s, relation), updated_at = now() "
            "where id = %s",
            [len(chunks), None if layout is None else Jsonb(layout.to_json()), job_id],
        )
        insert_chunks(connection, job_id, chunks)


def insert_chunks(connection: Connection, job_id: int, chunks: Sequence[Chunk]) -> None:
    query = (
        "insert into penstock.import_chunks (job_id, number, chunk, bytes_estimated) "
        "select %s, (chunk->>'number')::int, chunk, (chunk->>'bytes')::bigint from jsonb_array_elements(%s) as chunk"
    )
    for start in range(0, len(chunks), _INSERTED_AT_ONCE):
        some = [chunk.to_json() for chunk in chunks[start : start + _INSERTED_AT_ONCE]]
        connection.execute(query, [job_id, Jsonb(some)])


def chunks_staged(connection: Connection, job_id: int, figures: Mapping[int, tuple[int, int]]) -> None:
    """``figures``: by number, how many rows and bytes were read. A chunk that was staged before stays as it is."""
    rows, sizes = [rows for rows, _ in figures.values()], [size for _, size in figures.values()]
    _record(connection, _STAGED, {"job": job_id, "numbers": list(figures), "rows": rows, "bytes": sizes})


def chunks_done(connection: Connection, job_id: int, numbers: Sequence[int]) -> None:
    _record(connection, _DONE, {"job": job_id, "numbers": list(numbers)})


def chunks_again(connection: Connection, job_id: int, numbers: Sequence[int]) -> None:
    """They are to be read again, whatever became of them."""
    _record(connection, _AGAIN, {"job": job_id, "numbers": list(numbers)})


def unfinished_chunks(connection: Connection, job_id: int) -> list[tuple[int, ChunkState]]:
    """Number and state of those that no sink has committed, in their order."""
    with translated_errors("Reading the chunks of an import"):
        rows = connection.execute(
            "select number, state from penstock.import_chunks where job_id = %s and state <> 'done' order by number",
            [job_id],
        )
        return [(number, ChunkState(state)) for number, state in rows]


def _columns(found: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    return [job for job, _, _ in found], [number for _, number, _ in found]


def _fitting(found: Sequence[tuple[int, int, int]], most_bytes: int) -> int:
    """How many of the first make a claim."""
    return max(1, sum(1 for _ in takewhile(most_bytes.__ge__, accumulate(size for _, _, size in found))))


def _record(connection: Connection, change: str, parameters: dict[str, Any]) -> None:
    with translated_errors("Recording chunks of an import"), connection.transaction():
        connection.execute("select from penstock.import_jobs where id = %(job)s for update", parameters)
        connection.execute(change, parameters)


def _claims_under_way(connection: Connection, pipeline: str) -> int:
    """Two that ask at the same moment wait for each other, or together they would claim one too many."""
    digest = hashlib.sha256(f"penstock claims {pipeline}".encode()).digest()
    connection.execute("select pg_advisory_xact_lock(%s)", [int.from_bytes(digest[:8], "big", signed=True)])
    row = connection.execute(_CLAIMS, [pipeline]).fetchone()
    assert row is not None
    count: int = row[0]
    return count


_FREE = f"(c.state = 'todo' or c.state = 'copying' and (c.copier is null or c.copier not in {LIVING}))"

# By the index that has the queue's order, whatever the planner knows or not of a table that was filled a moment ago.
_IN_ORDER = "set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off"

_CLAIMS = f"""
select count(distinct c.claim) from penstock.import_jobs j join penstock.import_chunks c on c.job_id = j.id
where j.pipeline = %s and c.state = 'copying' and c.copier in {LIVING}
"""

_FIRST = f"""
with found as (
    select j.id, j.sink, c.number, c.bytes_estimated from penstock.import_jobs j
    cross join lateral (
        select c.number, c.bytes_estimated from penstock.import_chunks c
        where c.job_id = j.id and c.state in ('todo', 'copying') and {_FREE} order by c.number limit %(most)s
    ) as c
    where j.pipeline = %(pipeline)s and j.state = 'copying'
        and (%(sinks)s::text[] is null or j.sink = any(%(sinks)s))
        and (%(tables)s::oid[] is null or j.table_oid = any(%(tables)s::oid[]))
)
select id, number, bytes_estimated from found where sink = (select sink from found order by id limit 1)
order by id, number limit %(most)s
"""

_LOCKED = f"""
select c.job_id, c.number, c.bytes_estimated
from unnest(%s::bigint[], %s::int[]) as wanted (job_id, number)
join penstock.import_chunks c on c.job_id = wanted.job_id and c.number = wanted.number
where {_FREE} order by c.job_id, c.number limit %s for update of c skip locked
"""

_CLAIMED = f"""
with claim as materialized (select nextval('penstock.import_claims') as id)
update penstock.import_chunks c set state = 'copying', copier = %s, claim = claim.id
from claim, unnest(%s::bigint[], %s::int[]) as wanted (job_id, number)
where c.job_id = wanted.job_id and c.number = wanted.number and {_FREE}
returning c.job_id, c.chunk
"""

# Only a change of state counts, so a figure is never added twice.
_STAGED = """
with changed as (
    update penstock.import_chunks c set state = 'staged', copier = null, claim = null, rows = n.rows, bytes = n.bytes
    from unnest(%(numbers)s::int[], %(rows)s::bigint[], %(bytes)s::bigint[]) as n (number, rows, bytes)
    where c.job_id = %(job)s and c.number = n.number and c.state in ('todo', 'copying')
    returning c.rows, c.bytes
), figures as (
    select count(*) as chunks, coalesce(sum(rows), 0) as rows, coalesce(sum(bytes), 0) as bytes from changed
)
update penstock.import_jobs j set chunks_done = j.chunks_done + figures.chunks,
    rows_copied = j.rows_copied + figures.rows, bytes_copied = j.bytes_copied + figures.bytes, updated_at = now()
from figures where j.id = %(job)s
"""

_DONE = """
with changed as (
    update penstock.import_chunks set state = 'done'
    where job_id = %(job)s and number = any(%(numbers)s) and state = 'staged'
), skipped as (
    update penstock.import_chunks set state = 'done', copier = null, claim = null
    where job_id = %(job)s and number = any(%(numbers)s) and state in ('todo', 'copying')
    returning number
)
update penstock.import_jobs j set chunks_done = j.chunks_done + (select count(*) from skipped), updated_at = now()
where j.id = %(job)s
"""

_AGAIN = """
with given_back as (
    update penstock.import_chunks set state = 'todo', copier = null, claim = null
    where job_id = %(job)s and number = any(%(numbers)s) and state = 'copying'
), changed as (
    update penstock.import_chunks set state = 'todo'
    where job_id = %(job)s and number = any(%(numbers)s) and state in ('staged', 'done')
    returning rows, bytes
), figures as (
    select count(*) as chunks, coalesce(sum(rows), 0) as rows, coalesce(sum(bytes), 0) as bytes from changed
)
update penstock.import_jobs j set chunks_done = j.chunks_done - figures.chunks,
    rows_copied = j.rows_copied - figures.rows, bytes_copied = j.bytes_copied - figures.bytes, updated_at = now()
from figures where j.id = %(job)s
"""
