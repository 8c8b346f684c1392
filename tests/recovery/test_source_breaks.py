"""What can happen to the source: each is a clear stop or a pause, never a silent gap."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from penstock.errors import PublicationMissing, SlotLost, SourceGap, WrongServer
from penstock.lsn import LSN
from penstock.postgres.connection import connect
from penstock.subscription import subscription
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.pipeline_under_test import ITEMS, PipelineUnderTest

pytestmark = pytest.mark.process


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> PipelineUnderTest:
    pipeline = PipelineUnderTest(database, tmp_path)
    pipeline.begin()
    return pipeline


def rows_in_log(pipeline: PipelineUnderTest) -> int:
    segments = [name for stretch in pipeline.log.contents().stretches for name in stretch.segments]
    return sum(entry.rows for name in segments for entry in pipeline.log.open(name).relations)


def test_a_dropped_slot_is_a_stop_that_says_so(pipeline: PipelineUnderTest) -> None:
    pipeline.insert(1, 10)
    pipeline.capture_all()
    slot = pipeline.slot
    pipeline.execute("select pg_drop_replication_slot(%s)", slot)

    error = pipeline.why_capture_stops()

    assert isinstance(error, SlotLost)
    assert slot in str(error)


def test_a_slot_made_anew_is_noticed_and_a_new_beginning_works(pipeline: PipelineUnderTest) -> None:
    pipeline.insert(1, 10)
    pipeline.capture_all()
    pipeline.execute("select pg_drop_replication_slot(%s)", pipeline.slot)
    pipeline.insert(11, 20)  # nobody will ever send these
    pipeline.pipeline.init()

    error = pipeline.why_capture_stops()
    assert isinstance(error, SourceGap)
    assert "made again" in str(error)

    pipeline.pipeline.destroy()
    pipeline.pipeline.init()
    pipeline.insert(21, 25)
    pipeline.capture_all()
    assert rows_in_log(pipeline) == 5


def test_a_subscription_made_anew_does_not_continue_an_old_log(pipeline: PipelineUnderTest, tmp_path: Path) -> None:
    pipeline.insert(1, 10)
    pipeline.capture_all()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    PipelineUnderTest(pipeline.url, elsewhere).pipeline.destroy()
    pipeline.pipeline.init()

    error = pipeline.why_capture_stops()

    assert isinstance(error, SlotLost)
    assert "made anew" in str(error)


@pytest.mark.parametrize("acknowledge", ["sinks", "log"])
def test_a_slot_that_was_advanced_behind_our_back_is_a_gap(database: str, tmp_path: Path, acknowledge: str) -> None:
    pipeline = PipelineUnderTest(database, tmp_path, f"acknowledge: {acknowledge}")
    pipeline.begin()
    pipeline.insert(1, 10)
    pipeline.capture_all()
    pipeline.insert(11, 20)
    pipeline.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", pipeline.slot)

    error = pipeline.why_capture_stops()

    assert isinstance(error, SourceGap)
    assert str(pipeline.confirmed()) in str(error)
    assert isinstance(pipeline.why_capture_stops(), SourceGap), "trying again must not make it good"


def test_another_server_behind_the_url_is_refused_and_the_right_one_goes_on(
    pipeline: PipelineUnderTest, tmp_path: Path, postgres16: EmbeddedPostgres
) -> None:
    pipeline.insert(1, 10)
    pipeline.capture_all()
    url = postgres16.create_database("other_server")
    other = PipelineUnderTest(url, tmp_path)
    other.execute("create table items (id int primary key, value text)")
    try:
        with pytest.raises(WrongServer):
            other.pipeline.init()
        with connect(url) as connection:
            subscription.create(connection, other.config.name, other.config.source.tables)
        assert isinstance(other.why_capture_stops(), WrongServer)
    finally:
        postgres16.drop_database("other_server")

    pipeline.insert(11, 20)
    pipeline.capture_all()
    assert rows_in_log(pipeline) == 20


def test_a_pipeline_without_any_change_may_be_started_again_and_again(database: str, tmp_path: Path) -> None:
    quiet = PipelineUnderTest(database, tmp_path, "acknowledge: log")
    quiet.begin()
    for _ in range(3):
        # WAL that holds nothing for us
        quiet.execute("set penstock.skip_schema_log = on; create table elsewhere (id int); drop table elsewhere")
        quiet.capture_all()
    quiet.insert(1, 10)
    quiet.capture_all()
    assert rows_in_log(quiet) == 10


def test_a_commit_right_behind_a_message_outside_a_transaction_is_not_skipped(database: str, tmp_path: Path) -> None:
    """A heartbeat between a row and its commit: the commit's record begins where the heartbeat's ends."""
    pipeline = PipelineUnderTest(database, tmp_path, "acknowledge: log")
    pipeline.begin()
    with psycopg.connect(database) as connection:
        connection.execute("insert into items values (1, 'between')")
        ((message,),) = pipeline.execute("select pg_logical_emit_message(false, 'penstock', 'heartbeat', true)")
        with pipeline.capturing():
            wait_until(lambda: pipeline.confirmed() >= LSN.parse(str(message)), what="the message to be confirmed")
        connection.commit()

    pipeline.capture_all()

    assert rows_in_log(pipeline) == 1


def test_what_was_received_but_not_written_when_capture_was_stopped_comes_again(database: str, tmp_path: Path) -> None:
    """The server has said by then that it has nothing more, which must not count for what we threw away."""
    pipeline = PipelineUnderTest(database, tmp_path, "acknowledge: log, linger: 60s", source=", heartbeat: 0s")
    pipeline.begin()
    with pipeline.capturing():
        pipeline.insert(1, 1)  # the first is written at once
        wait_until(lambda: rows_in_log(pipeline) == 1, what="the first row")
        pipeline.insert(2, 2)  # this one lingers
        ((end, clock),) = pipeline.execute("select pg_current_wal_lsn(), clock_timestamp()")
        answered = (
            "select 1 from pg_stat_replication where sent_lsn >= %s and reply_time > %s::timestamptz + interval '1 s'"
        )
        wait_until(lambda: pipeline.execute(answered, end, clock), what="it to be received")
    assert rows_in_log(pipeline) == 1, "nothing lingered, so this test has shown nothing"

    pipeline.capture_all()

    assert rows_in_log(pipeline) == 2


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_a_publication_that_is_dropped_while_we_read_is_a_stop(pipeline: PipelineUnderTest) -> None:
    """Postgres 18 only warns in its own log and sends nothing more, which would look like an idle database."""
    pipeline.insert(1, 10)
    with pipeline.capturing() as capture:
        capture.reach(pipeline.committed_now())
        pipeline.execute("drop publication broken")
        pipeline.insert(11, 20)
        error = wait_until(lambda: capture.error, what="capture to notice")
        capture.error = None

    assert isinstance(error, PublicationMissing)
    assert "publication" in str(error) or "subscription" in str(error)
    assert ITEMS.name not in str(error)


def test_capture_reconnects_by_itself_when_the_server_comes_back(server_directory: Path, tmp_path: Path) -> None:
    with EmbeddedPostgres(server_directory) as server:
        pipeline = PipelineUnderTest(server.create_database("restarted"), tmp_path)
        pipeline.begin()
        with pipeline.capturing() as capture:
            pipeline.insert(1, 10)
            capture.reach(pipeline.committed_now())
            server.restart()
            pipeline.insert(11, 20)
            capture.reach(pipeline.committed_now())
            server.kill()
            server.start()
            pipeline.insert(21, 30)
            capture.reach(pipeline.committed_now())

        assert rows_in_log(pipeline) == 30
