"""What must not be taken for a source that was set back, and what comes twice when the newest transaction is looked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.config.load import load_config
from penstock.errors import SourceGap, SourceSetBack
from penstock.pipeline import Pipeline
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.pipeline_under_test import PipelineUnderTest
from tests.recovery.server_copies import snapshots_logged

pytestmark = pytest.mark.process

VERSIONS = pytest.mark.parametrize("database", [16, 18], indirect=True)


def begun(url: str, directory: Path, log: str = "acknowledge: log", source: str = "") -> PipelineUnderTest:
    pipeline = PipelineUnderTest(url, directory, log, source=source)
    pipeline.begin()
    return pipeline


def rows_in_log(pipeline: PipelineUnderTest) -> int:
    segments = [name for stretch in pipeline.log.contents().stretches for name in stretch.segments]
    return sum(entry.rows for name in segments for entry in pipeline.log.open(name).relations)


def newest(pipeline: PipelineUnderTest) -> object:
    history = pipeline.state.history()
    return history.commit_lsn if history else None


def await_mark(pipeline: PipelineUnderTest) -> None:
    before = newest(pipeline)
    wait_until(lambda: newest(pipeline) != before, what="a mark")


@VERSIONS
def test_restarts_are_no_alarm_and_nothing_comes_twice(database: str, tmp_path: Path) -> None:
    """Nothing is delivered, so nothing is confirmed, and the newest transaction comes again at each start."""
    pipeline = begun(database, tmp_path, "acknowledge: sinks")
    for first in (1, 11, 21):
        pipeline.insert(first, first + 9)
        pipeline.capture_all()
        with pipeline.capturing() as capture:
            pipeline.insert(first + 1000, first + 1009)
            capture.reach(pipeline.committed_now())

    assert rows_in_log(pipeline) == 60


def test_a_last_transaction_of_many_segments_comes_again_without_a_trace(database: str, tmp_path: Path) -> None:
    pipeline = begun(database, tmp_path, "acknowledge: sinks, segment_bytes: 64KiB", source=", heartbeat: 0s")
    with pipeline.capturing() as capture:
        pipeline.insert(1, 5000, size=100)
        capture.reach(pipeline.committed_now())
    segments = len(pipeline.log.contents().stretches[-1].segments)
    (tmp_path / "state" / "parts" / "history.json").unlink()

    with pipeline.capturing() as capture:
        pipeline.insert(5001, 5010)
        capture.reach(pipeline.committed_now())

    assert segments > 1
    assert rows_in_log(pipeline) == 5010


def test_a_message_outside_transactions_at_the_end_of_the_log_does_not_come_twice(
    database: str, tmp_path: Path
) -> None:
    pipeline = begun(database, tmp_path, "acknowledge: sinks", source=", heartbeat: 0s")
    with pipeline.capturing():
        pipeline.insert(1, 10)
        pipeline.execute("select pg_logical_emit_message(false, 'shop', 'a message')")
        wait_until(lambda: rows_in_log(pipeline) == 11, what="the message to be in the log")

    pipeline.insert(11, 20)
    pipeline.capture_all()

    assert rows_in_log(pipeline) == 21


def test_transactions_that_a_crash_of_the_source_lost_were_never_read(server_directory: Path, tmp_path: Path) -> None:
    """With synchronous_commit = off a commit is not on disk at once; the server sends only what is."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "0"}
    with EmbeddedPostgres(server_directory, settings=settings) as server:
        pipeline = begun(server.create_database("crashing"), tmp_path)
        with pipeline.capturing() as capture:
            for first in (1, 1001, 2001):
                pipeline.insert_one_by_one(first, first + 50)
                server.kill()
                server.start()
                pipeline.insert(first + 500, first + 509)
                capture.reach(pipeline.committed_now())

        ((rows,),) = pipeline.execute("select count(*) from items")
        assert rows_in_log(pipeline) == rows


def test_marks_of_an_idle_database_are_no_alarm(database: str, tmp_path: Path) -> None:
    pipeline = begun(database, tmp_path, source=", heartbeat: 10ms")
    for _ in range(3):
        with pipeline.capturing():
            await_mark(pipeline)
            pipeline.execute("select pg_switch_wal()")
            pipeline.execute("checkpoint")
            await_mark(pipeline)

    assert rows_in_log(pipeline) == 0


def test_a_mark_that_was_written_and_not_remembered_is_no_alarm(database: str, tmp_path: Path) -> None:
    """Killed between the two: the next start looks for an older transaction, or for none."""
    pipeline = begun(database, tmp_path)
    parts = tmp_path / "state" / "parts"
    pipeline.capture_all()
    (parts / "history.json").unlink()
    pipeline.insert(1, 10)
    pipeline.capture_all()
    older = (parts / "history.json").read_text()
    pipeline.capture_all()
    (parts / "history.json").write_text(older)
    pipeline.insert(11, 20)
    pipeline.capture_all()

    assert rows_in_log(pipeline) == 20


@pytest.mark.parametrize("acknowledge", ["sinks", "log"])
def test_an_older_copy_of_the_state_is_not_a_source_that_was_set_back(
    database: str, tmp_path: Path, acknowledge: str
) -> None:
    pipeline = begun(database, tmp_path, f"acknowledge: {acknowledge}")
    pipeline.insert(1, 10)
    pipeline.capture_all()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    pipeline.insert(11, 20)
    pipeline.capture_all()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")

    if acknowledge == "log":  # the slot has let go of what the copy lacks
        error = pipeline.why_capture_stops()
        assert isinstance(error, SourceGap)
        assert not isinstance(error, SourceSetBack)
    else:
        pipeline.capture_all()
        assert rows_in_log(pipeline) == 20


def test_a_lost_log_is_captured_again_without_an_alarm(database: str, tmp_path: Path) -> None:
    pipeline = begun(database, tmp_path, "acknowledge: sinks")
    pipeline.insert(1, 10)
    pipeline.capture_all()
    pipeline.insert(11, 20)
    pipeline.capture_all()
    shutil.rmtree(tmp_path / "state" / "log")

    pipeline.insert(21, 30)
    pipeline.capture_all()

    assert rows_in_log(pipeline) == 30


def test_init_may_be_run_again_and_destroy_makes_a_new_beginning(database: str, tmp_path: Path) -> None:
    pipeline = begun(database, tmp_path)
    pipeline.insert(1, 10)
    pipeline.capture_all()
    pipeline.pipeline.init()
    pipeline.insert(11, 20)
    pipeline.capture_all()
    assert rows_in_log(pipeline) == 20

    pipeline.pipeline.destroy()
    pipeline.pipeline.init()
    pipeline.insert(21, 30)
    pipeline.capture_all()
    assert rows_in_log(pipeline) == 10


def test_two_pipelines_on_one_source_read_the_marks_of_each_other(database: str, tmp_path: Path) -> None:
    one = begun(database, tmp_path, source=", heartbeat: 10ms")
    (tmp_path / "other").mkdir()
    other = PipelineUnderTest(database, tmp_path / "other", "acknowledge: log", source=", heartbeat: 10ms")
    other.file.write_text(other.file.read_text().replace("name: broken", "name: other"))
    other.config = load_config(other.file)
    other.pipeline = Pipeline(other.config)
    other.pipeline.init()
    for first in (1, 11):
        with one.capturing() as capture, other.capturing() as other_capture:
            one.insert(first, first + 9)
            for each in (capture, other_capture):
                each.reach(one.committed_now())

    assert (rows_in_log(one), rows_in_log(other)) == (20, 20)


def test_a_standby_as_source_may_be_promoted_while_it_is_read(server_directory: Path, tmp_path: Path) -> None:
    """It takes no marks, and its timeline changes under our hands."""
    with EmbeddedPostgres(server_directory / "primary") as primary:
        admin = PipelineUnderTest(primary.create_database("shop"), server_directory)
        admin.execute("create table items (id int primary key, value text)")
        admin.execute("create publication shop_items for table items")
        primary.execute("select pg_create_physical_replication_slot('standby', true)")
        settings = {"hot_standby_feedback": "on", "primary_slot_name": "standby"}
        with primary.standby(server_directory / "standby", settings) as standby:
            source = ", publication: shop_items, mode: stream"
            pipeline = PipelineUnderTest(standby.url_of("shop"), tmp_path, "acknowledge: log", source=source)
            with snapshots_logged(primary):
                pipeline.pipeline.init()
            with pipeline.capturing():
                admin.insert(1, 10)
                wait_until(lambda: rows_in_log(pipeline) == 10, what="the rows of the primary")
                standby.execute("select pg_promote()")
                pipeline.insert(11, 20)
                wait_until(lambda: rows_in_log(pipeline) == 20, what="the rows of the promoted standby")
            pipeline.insert(21, 30)
            pipeline.capture_all()

            assert rows_in_log(pipeline) == 30
