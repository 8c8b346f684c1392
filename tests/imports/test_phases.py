"""An import that takes long says what it does, how far it is, and what it waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control.status import status
from penstock.imports.handover import Committed, Manifest
from penstock.imports.progress import Phase, write_progress
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.state.pipeline_state import CaptureState, PipelineState, now
from tests.imports.test_resuming import Left


@pytest.fixture
def left(database: str, tmp_path: Path, connection: Connection) -> Left:
    """Has a column whose values an update may leave out, so that rows that moved are looked for."""
    return Left(database, tmp_path / "p", connection, "id int primary key, value text")


def handed_over(left: Left, connection: Connection) -> Manifest:
    left.read_all()
    left.first.advance(connection)
    manifest = left.handover.manifest(left.id)
    assert manifest is not None
    return manifest


def capture_is_at(left: Left, lsn: int) -> None:
    PipelineState(left.config.state_dir).save(CaptureState(LSN(1), LSN(1), LSN(lsn), now()))


def test_an_import_says_that_it_waits_for_capture_and_how_far_that_is(left: Left, connection: Connection) -> None:
    handed_over(left, connection)
    capture_is_at(left, 0xABC)
    left.first.advance(connection)
    assert left.first.waiting_for.startswith("capture to reach ")
    assert left.first.waiting_for.endswith("; it is at 0/ABC")


def test_an_import_says_that_it_looks_for_rows_that_moved_before_it_does(left: Left, connection: Connection) -> None:
    handed_over(left, connection)
    capture_is_at(left, 1 << 60)
    left.first.advance(connection)
    assert left.first.phase.startswith("looking for rows that moved while they were copied, in ")
    assert (left.first.starts_long_step, left.first.waiting_for) == (True, "")
    left.first.advance(connection)
    assert not left.first.starts_long_step
    assert left.job.state == "catching_up"


def test_an_import_that_catches_up_says_how_far_it_is(left: Left, connection: Connection) -> None:
    handed_over(left, connection)
    capture_is_at(left, 1 << 60)
    for _ in range(3):
        left.first.advance(connection)
    manifest = left.handover.manifest(left.id)
    assert manifest is not None
    assert manifest.chunks is not None
    assert manifest.to_lsn is not None
    assert left.first.waiting_for == f"the sink to commit {manifest.chunks} of {manifest.chunks} chunks"

    left.handover.write_committed(left.id, Committed(tuple(range(1, manifest.chunks + 1)), LSN(manifest.to_lsn)))
    capture_is_at(left, manifest.to_lsn + (5 << 20))
    left.first.advance(connection)

    assert left.first.waiting_for == ""
    assert left.first.phase.endswith(f"up to {manifest.to_lsn}, 5.0 MiB of WAL left")


def test_status_shows_what_the_copier_says_of_an_import(left: Left, connection: Connection) -> None:
    """The queue in the source knows the state alone."""
    left.read_all()
    state = PipelineState(left.config.state_dir)
    write_progress(state.parts, [left.job], {left.id: Phase("looking for rows that moved", "capture to reach 0/1")})
    (table,) = (table for table in status(left.config).tables if table.sink == "lake")
    assert (table.state, table.phase, table.waiting_for) == (
        "copying",
        "looking for rows that moved",
        "capture to reach 0/1",
    )


def test_status_does_not_show_what_was_said_of_an_earlier_state(left: Left, connection: Connection) -> None:
    state = PipelineState(left.config.state_dir)
    write_progress(state.parts, [left.job], {left.id: Phase("something of before")})
    left.read_all()
    (table,) = (table for table in status(left.config).tables if table.sink == "lake")
    assert (table.state, table.phase) == ("copying", None)
