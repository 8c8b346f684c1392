from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import psycopg
import pytest

from penstock.changes.batch import Column, Relation
from penstock.errors import SourceRefused
from penstock.imports import jobs
from penstock.imports.jobs import Job, NewJob
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import Leaf, TableLayout
from penstock.subscription import migrations
from penstock.testing.conditions import wait_until

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)

RELATION = Relation(7, "public", "t", "d", (Column("a", 23, "integer", "int4", in_identity=True),), ("a",))
LAYOUT = TableLayout(RELATION, (Leaf(7, "public", "t", 7, 100, 819_200),), True, "(a > 1)", 5000, 819_200)
MB = 1 << 20


@pytest.fixture
def queue(connection: Connection) -> Connection:
    migrations.migrate(connection)
    return connection


@pytest.fixture
def session(queue: Connection, database: str) -> Iterator[Callable[[], Connection]]:
    """More sessions on the same database."""
    made: list[Connection] = []

    def make() -> Connection:
        made.append(connect(database))
        return made[-1]

    yield make
    for one in made:
        one.close()


def new(oid: int = 7, sink: str = "lake", again: bool = False) -> NewJob:
    return NewJob(sink, oid, "public", f"t{oid}", again)


def only(found: Sequence[Job]) -> Job:
    (job,) = found
    return job


def created(connection: Connection, *wanted: NewJob, pipeline: str = "shop") -> list[Job]:
    return jobs.create_jobs(connection, pipeline, wanted or [new()])


def the_job(connection: Connection, pipeline: str = "shop") -> Job:
    return only(jobs.active_jobs(connection, pipeline))


def pages(*sizes: int, first: int = 1) -> list[Chunk]:
    return [Chunk(first + n, "pages", 0, n * 10, n * 10 + 10, bytes=size) for n, size in enumerate(sizes)]


def copying(connection: Connection, *sizes: int, wanted: NewJob | None = None) -> tuple[Job, int]:
    """A job that is being copied, and its copier."""
    (job,) = created(connection, wanted or new())
    copier = jobs.register_copier(connection)
    jobs.claim_jobs(connection, "shop", copier, [job.sink], None)
    jobs.begin(connection, job.id, LSN(16), ())
    jobs.start_copying(connection, job.id, LAYOUT, pages(*sizes))
    return job, copier


def claimed(
    connection: Connection, copier: int, most_bytes: int = MB, most_connections: int | None = None
) -> list[int]:
    return [chunk.number for _, chunk in jobs.claim_chunks(connection, "shop", copier, most_bytes, most_connections)]


@both_versions
def test_a_job_says_what_it_is_about_and_who_was_writing_when_it_was_made(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    writer = session()
    writer.execute("begin; create table public.t (a int)")
    row = writer.execute("select pg_current_xact_id()::xid::text::bigint").fetchone()
    first, second = created(queue, new(7), new(8, "other", again=True))
    assert (first.sink, first.table_oid, first.qualified_name, first.again) == ("lake", 7, "public.t7", False)
    assert (second.sink, second.table_oid, second.qualified_name, second.again) == ("other", 8, "public.t8", True)
    assert (first.state, first.layout, first.copier, first.attempts, first.chunks) == ("pending", None, None, 0, 0)
    assert first.published_xids == second.published_xids == row
    assert jobs.active_jobs(queue, "shop") == [first, second]
    assert jobs.create_jobs(queue, "shop", []) == []


def test_a_new_job_expires_the_one_before_for_that_sink_and_pipeline_alone(queue: Connection) -> None:
    old, other_sink, other_table = created(queue, new(7), new(7, "other"), new(8))
    (other_pipeline,) = created(queue, pipeline="another")
    jobs.start_copying(queue, old.id, LAYOUT, pages(1, 1))
    (replacement,) = created(queue)
    assert jobs.active_jobs(queue, "shop") == [other_sink, other_table, replacement]
    assert jobs.active_jobs(queue, "another") == [other_pipeline]
    assert queue.execute("select state from penstock.import_jobs where id = %s", [old.id]).fetchone() == ("expired",)
    assert queue.execute("select from penstock.import_chunks").fetchone() is None


def test_a_table_never_has_two_jobs_that_count(queue: Connection) -> None:
    created(queue)
    with pytest.raises(psycopg.errors.UniqueViolation):
        queue.execute(
            "insert into penstock.import_jobs (pipeline, sink, table_oid, schema_name, table_name) "
            "select pipeline, sink, table_oid, schema_name, table_name from penstock.import_jobs"
        )


def test_an_expired_or_removed_job_does_not_come_back(queue: Connection) -> None:
    (expired,) = created(queue)
    (removed,) = created(queue)
    jobs.remove_jobs(queue, "shop", [7])
    for job in (expired, removed):
        assert not jobs.begin(queue, job.id, LSN(1), ())
        assert not jobs.start_copying(queue, job.id, LAYOUT, pages(1))
        assert not jobs.copied(queue, job.id, LSN(2))
        assert not jobs.completed(queue, job.id)
        assert not jobs.failed(queue, job.id, "no", 0)
        assert not jobs.start_over(queue, job.id)
    assert the_job(queue).state == "removed"
    assert queue.execute("select from penstock.import_chunks").fetchone() is None


def test_removing_takes_the_job_of_every_sink_of_that_pipeline(queue: Connection) -> None:
    created(queue, new(7), new(7, "other"), new(8))
    created(queue, pipeline="another")
    jobs.remove_jobs(queue, "shop", [7])
    states = {(job.sink, job.table_oid): job.state for job in jobs.active_jobs(queue, "shop")}
    assert states == {("lake", 7): "removed", ("other", 7): "removed", ("lake", 8): "pending"}
    assert the_job(queue, "another").state == "pending"


@both_versions
def test_an_import_from_beginning_to_end(queue: Connection) -> None:
    (job,) = created(queue)
    copier = jobs.register_copier(queue)
    assert only(jobs.claim_jobs(queue, "shop", copier, ["lake"], None)).copier == copier
    assert jobs.begin(queue, job.id, LSN(0x1_0000_0010), (5, 6))
    begun = the_job(queue)
    assert (begun.state, begun.from_lsn, begun.from_xids) == ("pending", LSN(0x1_0000_0010), (5, 6))
    assert jobs.start_copying(queue, job.id, LAYOUT, pages(10, 20, 30), snapshot="1:2:")
    started = the_job(queue)
    assert (started.state, started.layout, started.snapshot, started.chunks) == ("copying", LAYOUT, "1:2:", 3)
    assert (started.rows_estimated, started.bytes_estimated) == (5000, 819_200)
    assert started.started_at is not None
    assert claimed(queue, copier) == [1, 2, 3]
    jobs.chunks_staged(queue, job.id, {1: (100, 1000), 2: (200, 2000)})
    jobs.chunks_done(queue, job.id, [1])
    assert jobs.unfinished_chunks(queue, job.id) == [(2, "staged"), (3, "copying")]
    jobs.add_chunks(queue, job.id, [Chunk(4, "rows", keys=(("1",), ("2",)))])
    assert jobs.claim_chunks(queue, "shop", copier, MB, None)[0][1] == Chunk(4, "rows", keys=(("1",), ("2",)))
    jobs.chunks_staged(queue, job.id, {3: (300, 3000), 4: (2, 20)})
    jobs.chunks_done(queue, job.id, range(1, 5))
    assert jobs.unfinished_chunks(queue, job.id) == []
    assert jobs.copied(queue, job.id, LSN(77))
    assert (the_job(queue).state, the_job(queue).to_lsn, the_job(queue).copier) == ("catching_up", LSN(77), copier)
    assert jobs.completed(queue, job.id)
    done = the_job(queue)
    assert (done.state, done.copier, done.chunks, done.chunks_done) == ("streaming", None, 4, 4)
    assert (done.rows_copied, done.bytes_copied) == (602, 6020)
    assert done.completed_at is not None
    assert queue.execute("select from penstock.import_chunks").fetchone() is None
    assert jobs.claim_jobs(queue, "shop", copier, ["lake"], None) == []


def test_figures_count_every_chunk_once_whatever_happens_to_it(queue: Connection) -> None:
    job, copier = copying(queue, 1, 1, 1)
    claimed(queue, copier)

    def figures() -> tuple[int, int, int, int]:
        found = the_job(queue)
        return found.chunks, found.chunks_done, found.rows_copied, found.bytes_copied

    jobs.chunks_staged(queue, job.id, {1: (10, 100), 2: (20, 200)})
    jobs.chunks_staged(queue, job.id, {1: (10, 100)})
    assert figures() == (3, 2, 30, 300)
    jobs.chunks_done(queue, job.id, [1, 3])
    jobs.chunks_done(queue, job.id, [1])
    assert figures() == (3, 3, 30, 300)
    jobs.chunks_again(queue, job.id, [1, 2])
    jobs.chunks_again(queue, job.id, [1])
    assert figures() == (3, 1, 0, 0)
    assert jobs.unfinished_chunks(queue, job.id) == [(1, "todo"), (2, "todo")]
    jobs.chunks_staged(queue, job.id, {1: (11, 101)})
    assert figures() == (3, 2, 11, 101)
    jobs.chunks_staged(queue, job.id, {})
    jobs.chunks_again(queue, job.id, [])
    assert figures() == (3, 2, 11, 101)


def test_a_chunk_that_was_added_with_a_larger_layout_goes_by_it(queue: Connection) -> None:
    job, copier = copying(queue, 1)
    larger = TableLayout(RELATION, (*LAYOUT.leaves, Leaf(8, "public", "t8", 8, 1, 8192)), True, None, None, 827_392)
    jobs.add_chunks(queue, job.id, [Chunk(2, "pages", 1)], larger)
    found = jobs.claim_chunks(queue, "shop", copier, MB, None)
    assert [(of.layout, chunk.leaf) for of, chunk in found] == [(larger, 0), (larger, 1)]
    with pytest.raises(SourceRefused, match="duplicate key"):
        jobs.add_chunks(queue, job.id, [Chunk(2, "pages", 1)])
    assert the_job(queue).chunks == 2


def test_starting_over_forgets_everything_but_that_it_was_tried(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    job, copier = copying(queue, 1, 1)
    jobs.chunks_staged(queue, job.id, {1: (10, 100)})
    jobs.failed(queue, job.id, "boom", 0)
    writer = session()
    writer.execute("begin; create table public.t (a int)")
    assert jobs.start_over(queue, job.id)
    again = the_job(queue)
    assert (again.state, again.copier, again.from_lsn, again.layout) == ("pending", None, None, None)
    assert (again.chunks, again.chunks_done, again.rows_copied, again.attempts) == (0, 0, 0, 1)
    assert len(again.published_xids) == 1
    assert jobs.unfinished_chunks(queue, job.id) == []
    assert only(jobs.claim_jobs(queue, "shop", copier, ["lake"], None)).id == job.id


def test_a_failed_job_is_taken_again_when_its_time_has_come_and_goes_on_where_it_was(queue: Connection) -> None:
    job, copier = copying(queue, 1, 1, 1)
    jobs.chunks_staged(queue, job.id, {1: (10, 100)})
    assert claimed(queue, copier, most_bytes=1) == [2]
    assert jobs.failed(queue, job.id, "no more room", 3600)
    failed = the_job(queue)
    assert (failed.state, failed.error, failed.attempts, failed.copier) == ("failed", "no more room", 1, None)
    assert failed.next_try_at is not None
    assert (failed.next_try_at - failed.updated_at).total_seconds() == 3600
    assert jobs.claim_jobs(queue, "shop", copier, ["lake"], None) == []
    assert claimed(queue, copier) == []
    queue.execute("update penstock.import_jobs set next_try_at = now()")
    again = only(jobs.claim_jobs(queue, "shop", copier, ["lake"], None))
    assert (again.state, again.error, again.chunks_done) == ("copying", "no more room", 1)
    assert claimed(queue, copier) == [2, 3]
    jobs.completed(queue, job.id)
    assert the_job(queue).error is None


def test_a_failed_job_is_taken_before_its_time_by_somebody_who_asks_for_it_now(queue: Connection) -> None:
    job, copier = copying(queue, 1)
    assert jobs.failed(queue, job.id, "no more room", 3600)
    assert only(jobs.claim_jobs(queue, "shop", copier, ["lake"], None, at_once=True)).state == "copying"


def test_a_chunk_that_fails_after_the_job_has_does_not_shorten_the_wait(queue: Connection) -> None:
    job, _ = copying(queue, 1, 1)
    jobs.failed(queue, job.id, "no right", 3600)
    before = the_job(queue).next_try_at
    jobs.failed(queue, job.id, "no right either", 2)
    assert the_job(queue).next_try_at == before


@pytest.mark.parametrize("state", ["pending", "copying", "catching_up"])
def test_a_job_that_failed_goes_back_to_the_state_it_was_in(queue: Connection, state: str) -> None:
    (job,) = created(queue)
    copier = jobs.register_copier(queue)
    jobs.begin(queue, job.id, LSN(1), ())
    if state != "pending":
        jobs.start_copying(queue, job.id, LAYOUT, pages(1))
    if state == "catching_up":
        jobs.copied(queue, job.id, LSN(2))
    jobs.failed(queue, job.id, "boom", 0)
    assert only(jobs.claim_jobs(queue, "shop", copier, ["lake"], None)).state == state


def test_a_copier_gets_the_jobs_of_its_sinks_and_tables_once(queue: Connection) -> None:
    created(queue, new(7), new(8), new(7, "other"))
    created(queue, pipeline="another")
    copier = jobs.register_copier(queue)
    assert jobs.claim_jobs(queue, "shop", copier, ["nobody"], None) == []
    assert jobs.claim_jobs(queue, "shop", copier, ["lake"], [9]) == []
    assert [job.table_oid for job in jobs.claim_jobs(queue, "shop", copier, ["lake"], [8])] == [8]
    assert [job.table_oid for job in jobs.claim_jobs(queue, "shop", copier, ["lake"], None)] == [7]
    assert [job.sink for job in jobs.claim_jobs(queue, "shop", copier, ["lake", "other"], None)] == ["other"]
    assert jobs.claim_jobs(queue, "shop", copier, ["lake", "other"], None) == []


@both_versions
def test_what_a_living_copier_has_is_nobody_elses_until_it_dies(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    first = session()
    job, copier = copying(first, 1, 1, 1)
    assert claimed(first, copier, most_bytes=2) == [1, 2]
    jobs.chunks_staged(first, job.id, {1: (10, 100)})
    another = jobs.register_copier(queue)
    assert jobs.claim_jobs(queue, "shop", another, ["lake"], None) == []
    first.close()
    # The server notices after the client has gone.
    taken = wait_until(lambda: jobs.claim_jobs(queue, "shop", another, ["lake"], None), what="the dead copier's job")
    assert (only(taken).id, only(taken).copier, only(taken).chunks_done) == (job.id, another, 1)
    assert jobs.unfinished_chunks(queue, job.id) == [(1, "staged"), (2, "todo"), (3, "todo")]
    assert claimed(queue, another) == [2, 3]


def test_copiers_share_the_chunks_of_a_job_and_take_those_of_a_dead_one(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    _, owner = copying(queue, 1, 1, 1, 1)
    helper = session()
    helping = jobs.register_copier(helper)
    assert claimed(queue, owner, most_bytes=1) == [1]
    assert claimed(helper, helping, most_bytes=2) == [2, 3]
    assert claimed(queue, owner, most_bytes=1) == [4]
    assert claimed(queue, owner) == []
    helper.close()
    wait_until(lambda: claimed(queue, owner) == [2, 3], what="the dead copier's chunks")


def test_a_chunk_stays_with_its_reader_when_its_job_passes_to_another(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    first, helper = session(), session()
    job, _ = copying(first, 1, 1)
    assert claimed(helper, jobs.register_copier(helper), most_bytes=1) == [1]
    first.close()
    copier = jobs.register_copier(queue)
    wait_until(lambda: jobs.claim_jobs(queue, "shop", copier, ["lake"], None), what="the dead copier's job")
    assert jobs.unfinished_chunks(queue, job.id) == [(1, "copying"), (2, "todo")]
    assert claimed(queue, copier) == [2]


def test_what_is_released_is_free_at_once(queue: Connection, session: Callable[[], Connection]) -> None:
    job, copier = copying(queue, 1, 1)
    assert claimed(queue, copier, most_bytes=1) == [1]
    other = session()
    another = jobs.register_copier(other)
    jobs.release(queue, copier)
    assert jobs.unfinished_chunks(queue, job.id) == [(1, "todo"), (2, "todo")]
    assert only(jobs.claim_jobs(other, "shop", another, ["lake"], None)).copier == another
    jobs.release(other, copier)  # somebody else's number: nothing happens
    assert the_job(queue).copier == another


def test_a_claim_ends_at_the_bytes_and_at_64_chunks_but_has_at_least_one(queue: Connection) -> None:
    _, copier = copying(queue, 100, 10, 10, 10, 5, *[0] * 100)
    assert claimed(queue, copier, most_bytes=25) == [1]
    assert claimed(queue, copier, most_bytes=25) == [2, 3]
    assert claimed(queue, copier, most_bytes=25) == list(range(4, 68))
    assert claimed(queue, copier, most_bytes=25) == list(range(68, 106))
    assert claimed(queue, copier, most_bytes=25) == []


def test_a_claim_is_of_one_sink_and_may_be_of_several_jobs_in_their_order(queue: Connection) -> None:
    copier = jobs.register_copier(queue)
    made = created(queue, new(7), new(8, "other"), new(9), new(10))
    for job in made[:3]:
        jobs.start_copying(queue, job.id, LAYOUT, pages(1, 1))
    found = jobs.claim_chunks(queue, "shop", copier, MB, None)
    assert [(job.table_oid, chunk.number) for job, chunk in found] == [(7, 1), (7, 2), (9, 1), (9, 2)]
    found = jobs.claim_chunks(queue, "shop", copier, MB, None)
    assert [(job.table_oid, chunk.number) for job, chunk in found] == [(8, 1), (8, 2)]
    assert jobs.claim_chunks(queue, "shop", copier, MB, None) == []


def test_a_claim_can_be_limited_to_sinks_and_tables(queue: Connection) -> None:
    copier = jobs.register_copier(queue)
    for job in created(queue, new(7), new(7, "other"), new(8, "other")):
        jobs.start_copying(queue, job.id, LAYOUT, pages(1))
    found = jobs.claim_chunks(queue, "shop", copier, MB, None, sinks=["other"], tables=[8])
    assert [(job.sink, job.table_oid) for job, _ in found] == [("other", 8)]
    found = jobs.claim_chunks(queue, "shop", copier, MB, None, sinks=["other"])
    assert [(job.sink, job.table_oid) for job, _ in found] == [("other", 7)]
    assert jobs.claim_chunks(queue, "shop", copier, MB, None, sinks=[]) == []


def test_no_more_claims_are_under_way_than_connections_allow(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    job, copier = copying(queue, *[1] * 10)
    other = session()
    another = jobs.register_copier(other)
    assert claimed(queue, copier, 2, most_connections=2) == [1, 2]
    assert claimed(other, another, 2, most_connections=2) == [3, 4]
    assert claimed(queue, copier, 2, most_connections=2) == []
    jobs.chunks_staged(queue, job.id, {1: (0, 0)})  # half of a claim: its connection is still in use
    assert claimed(queue, copier, 2, most_connections=2) == []
    jobs.chunks_staged(queue, job.id, {2: (0, 0)})
    assert claimed(queue, copier, 2, most_connections=2) == [5, 6]
    other.close()  # a dead copier uses no connection, and its chunks are there to be taken
    wait_until(lambda: claimed(queue, copier, 2, most_connections=2) == [3, 4], what="the dead copier's claim")
    assert claimed(queue, copier, 2, most_connections=2) == []


def test_two_that_claim_at_once_do_not_take_one_connection_too_many(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    _, copier = copying(queue, 1, 1)
    other, watcher = session(), session()
    another = jobs.register_copier(other)
    waiting = "select from pg_locks where locktype = 'advisory' and not granted and pid = %s"
    with ThreadPoolExecutor(1) as pool:
        with queue.transaction():
            assert claimed(queue, copier, 1, most_connections=1) == [1]
            claiming = pool.submit(claimed, other, another, 1, 1)
            wait_until(
                lambda: claiming.done() or watcher.execute(waiting, [other.info.backend_pid]).fetchone() is not None,
                what="the other to wait",
            )
        assert claiming.result() == []


@both_versions
def test_claiming_passes_over_what_another_is_claiming_right_now(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    """In one open transaction, as a claim is for a moment: whoever waited for it here would wait for ever."""
    created(queue, new(7), new(8))
    queue.execute("set lock_timeout = '10s'")
    other = session()
    copier, another = jobs.register_copier(queue), jobs.register_copier(other)
    with other.transaction():
        assert len(jobs.claim_jobs(other, "shop", another, ["lake"], [7])) == 1
        assert [job.table_oid for job in jobs.claim_jobs(queue, "shop", copier, ["lake"], None)] == [8]
    for job in jobs.active_jobs(queue, "shop"):
        jobs.start_copying(queue, job.id, LAYOUT, pages(1, 1))
    with other.transaction():
        assert claimed(other, another, most_bytes=3) == [1, 2, 1]
        assert claimed(queue, copier) == [2]
    assert claimed(queue, copier) == []


def test_many_copiers_at_once_claim_every_chunk_once(queue: Connection, session: Callable[[], Connection]) -> None:
    job, _ = copying(queue, *[1] * 300)
    sessions = [session() for _ in range(6)]
    copiers = [jobs.register_copier(one) for one in sessions]

    def take_all(at: int) -> list[int]:
        taken: list[int] = []
        while jobs.unfinished_chunks(sessions[at], job.id):
            found = claimed(sessions[at], copiers[at], most_bytes=7, most_connections=4 if at % 2 else None)
            jobs.chunks_staged(sessions[at], job.id, dict.fromkeys(found, (1, 1)))
            jobs.chunks_done(sessions[at], job.id, found)
            taken += found
        return taken

    with ThreadPoolExecutor(len(sessions)) as pool:
        taken = list(pool.map(take_all, range(len(sessions))))
    assert sorted(chain.from_iterable(taken)) == list(range(1, 301))
    assert (the_job(queue).chunks_done, the_job(queue).rows_copied) == (300, 300)


def test_many_copiers_at_once_claim_every_job_once(queue: Connection, session: Callable[[], Connection]) -> None:
    created(queue, *[new(oid) for oid in range(1, 101)])
    sessions = [session() for _ in range(6)]

    def take(one: Connection) -> list[int]:
        copier = jobs.register_copier(one)
        return [job.table_oid for _ in range(5) for job in jobs.claim_jobs(one, "shop", copier, ["lake"], None)]

    with ThreadPoolExecutor(len(sessions)) as pool:
        taken = list(pool.map(take, sessions))
    assert sorted(chain.from_iterable(taken)) == list(range(1, 101))


def test_expiring_a_job_while_its_chunks_are_recorded_ends_in_no_deadlock(
    queue: Connection, session: Callable[[], Connection]
) -> None:
    recorder = session()

    def record(job: Job) -> None:
        for number in range(1, 31):
            jobs.chunks_staged(recorder, job.id, {31 - number: (1, 1), number: (1, 1)})

    with ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            job, copier = copying(queue, *[1] * 30)
            recording = pool.submit(record, job)
            jobs.failed(queue, job.id, "boom", 0)
            jobs.claim_jobs(queue, "shop", copier, ["lake"], None)
            created(queue)
            recording.result()
    assert the_job(queue).chunks_done == 0
