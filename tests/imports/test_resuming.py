"""What a copier makes of an import that another one left: wherever that one died, it goes on there."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.admission import Ready, write_ready
from penstock.delivery.chunk_task import ChunkTask
from penstock.errors import LogFull
from penstock.imports import jobs
from penstock.imports.copying import Copying, TableCopy
from penstock.imports.handover import ChunkReceipt, ChunkToCopy, Committed, CopiedChunk, Handover
from penstock.imports.jobs import Job
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from tests.imports.pipeline_with_imports import PipelineWithImports


class Left:
    """The import of a table in several chunks, by copiers that come and die at the test's word."""

    def __init__(self, url: str, directory: Path, connection: Connection, columns: str = "id int primary key") -> None:
        self._pipeline = PipelineWithImports(url, directory, copy="workers: 1, chunk_bytes: 1")
        self._pipeline.execute(f"create table t ({columns}); insert into t (id) select generate_series(1, 1000)")
        self._pipeline.pipeline.init()
        self._pipeline.pipeline.reconcile()
        self._connection, self._state = connection, self._pipeline.state
        self.config = self._pipeline.pipeline.config
        self.handover = Handover(self._state.root, "lake")
        self.first = self._take()

    def _take(self) -> TableCopy:
        self._copier = jobs.register_copier(self._connection)
        (job,) = jobs.claim_jobs(self._connection, "imports", self._copier, ["lake"])
        return TableCopy(job, Copying(self._pipeline.pipeline.config, self._state, ("imports",), lambda *_: []))

    def taken_again(self) -> TableCopy:
        """By the next copier, which has had its first look at it."""
        jobs.release(self._connection, self._copier)
        copy = self._take()
        copy.advance(self._connection)
        return copy

    def advance(self, *, until_planned: bool = True) -> None:
        for _ in range(3 if until_planned else 2):
            self.first.advance(self._connection)

    def stage(self, number: int, rows: int) -> None:
        self.handover.write_receipt(self.id, ChunkReceipt(number, rows, 10 * rows, None, ""))

    def read_all(self) -> list[int]:
        self.advance()
        chunks = list(self.chunks())
        jobs.chunks_staged(self._connection, self.id, dict.fromkeys(chunks, (1, 1)))
        for number in chunks:
            self.stage(number, rows=1)
        return chunks

    def copy(self, number: int, url: str) -> CopiedChunk:
        """What an executor does with a chunk, as the next copier gives it to one."""
        ((job, chunk),) = jobs.claim_chunks(self._connection, "imports", self._copier, 1)
        assert chunk.number == number
        assert job.layout is not None
        assert job.from_lsn is not None
        (sink,) = self._pipeline.pipeline.sinks(["lake"])
        task = ChunkTask(sink, url, self._state.root.uri, ("imports",))
        (done,) = task([ChunkToCopy(job.id, job.layout, chunk, job.from_lsn)])
        return done

    def joins(self) -> None:
        """The delivery has ended the import, and removed what it needs no more."""
        oid = self.first.job.table_oid
        write_ready(self._state.parts, "lake", 1, {oid: Ready(self.id, LSN(1))}, {})
        self.handover.remove(self.id)

    @property
    def id(self) -> int:
        return self.first.job.id

    @property
    def job(self) -> Job:
        """The one that counts."""
        return next(job for job in jobs.active_jobs(self._connection, "imports") if job.sink == "lake")

    def chunks(self) -> dict[int, str]:
        return dict(jobs.unfinished_chunks(self._connection, self.job.id))


@pytest.fixture
def left(database: str, tmp_path: Path, connection: Connection) -> Left:
    return Left(database, tmp_path / "p", connection)


def test_a_copier_that_died_before_it_planned_anything_is_followed_by_one_that_plans(left: Left) -> None:
    left.advance(until_planned=False)
    assert left.job.from_lsn is not None
    left.taken_again()
    assert (left.job.id, left.handover.manifest(left.id)) == (left.id, None)


def test_an_import_whose_table_has_joined_is_complete_whoever_was_to_say_so(left: Left) -> None:
    left.advance()
    left.joins()
    assert left.taken_again().ended
    assert (left.job.id, left.job.state) == (left.id, "streaming")


def test_a_chunk_that_was_read_is_not_read_again_though_nobody_said_so(left: Left) -> None:
    left.advance()
    left.stage(1, rows=7)
    left.taken_again()
    assert left.chunks()[1] == "staged"
    assert left.chunks()[2] == "todo"
    assert (left.job.id, left.job.rows_copied, left.job.chunks_done) == (left.id, 7, 1)


def test_a_chunk_that_is_there_when_somebody_begins_to_read_it_is_not_read(left: Left) -> None:
    """Its executor died right after it had left the receipt, and the same copier gives it to another one."""
    left.advance()
    left.stage(1, rows=7)
    assert left.copy(1, "postgresql://127.0.0.1:1/nowhere") == CopiedChunk(left.id, 1, rows=7, bytes=70)


def test_a_chunk_whose_receipt_finds_no_room_is_an_error_of_ours_not_a_failed_task_of_sparks(
    left: Left, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise LogFull("No space left on the disk.")

    left.advance()
    monkeypatch.setattr(Handover, "write_receipt", no_room)
    assert isinstance(left.copy(1, database).error, LogFull)


def test_what_attempts_left_goes_with_the_import(left: Left) -> None:
    """Each stages in a place of its own: one that was given up may still be writing."""
    left.advance()
    places = [Path(left.handover.new_staging(left.id, 1)) for _ in range(2)]
    assert places[0] != places[1]
    for place in places:
        place.mkdir(parents=True)
    left.handover.remove(left.id)
    assert not any(place.exists() for place in places)


def test_a_chunk_that_the_sink_holds_is_not_read_again_though_nobody_said_so(left: Left) -> None:
    left.advance()
    left.handover.write_committed(left.id, Committed((2,)))
    left.taken_again()
    assert left.chunks()[2] == "staged"
    assert left.chunks()[1] == "todo"


def test_a_chunk_that_is_lost_is_read_again(left: Left, connection: Connection) -> None:
    """Such as when the sink was set back to an earlier state meanwhile."""
    left.advance()
    jobs.chunks_staged(connection, left.id, {1: (7, 70), 2: (8, 80)})
    left.stage(2, rows=8)
    left.taken_again()
    assert left.chunks()[1] == "todo"
    assert left.chunks()[2] == "staged"
    assert (left.job.id, left.job.rows_copied) == (left.id, 8)


def test_a_chunk_that_is_lost_when_all_was_handed_over_is_a_new_beginning(left: Left, connection: Connection) -> None:
    chunks = left.read_all()
    for _ in range(2):
        left.first.advance(connection)
    manifest = left.handover.manifest(left.id)
    assert manifest is not None
    assert manifest.state == "catching_up"
    left.handover.remove_receipt(left.id, chunks[-1])
    assert left.taken_again().ended
    assert left.job.id > left.id
    assert left.job.state == "pending"


def test_a_copier_that_died_while_it_handed_over_has_handed_over(
    left: Left, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.read_all()

    def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    left.first.advance(connection)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "copied", dies)
        with pytest.raises(KeyboardInterrupt):
            left.first.advance(connection)
    assert left.job.state == "copying"
    copy = left.taken_again()
    assert (copy.ended, copy.being_copied) == (False, False)
    assert (left.job.id, left.job.state) == (left.id, "catching_up")


def test_an_import_whose_files_are_gone_begins_anew(left: Left) -> None:
    left.advance()
    left.handover.remove(left.id)
    assert left.taken_again().ended
    assert left.job.id > left.id
