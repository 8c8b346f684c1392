"""A source that no longer has what was read from it is noticed, also after it has written past our position."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import SourceSetBack
from penstock.lsn import LSN, ZERO
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.recovery.pipeline_under_test import PipelineUnderTest
from tests.recovery.server_copies import ServerCopy, Standby

pytestmark = pytest.mark.process

VERSIONS = pytest.mark.parametrize("server", [16, 18], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[EmbeddedPostgres]:
    """One of its own, whose data directory may be exchanged."""
    settings = {"fsync": "off", "autovacuum": "off"}
    with EmbeddedPostgres(server_directory / "primary", getattr(request, "param", 18), settings) as server:
        yield server


@pytest.fixture
def pipeline(server: EmbeddedPostgres, tmp_path: Path) -> PipelineUnderTest:
    return begun(server, tmp_path)


def begun(server: EmbeddedPostgres, directory: Path, acknowledge: str = "log", source: str = "") -> PipelineUnderTest:
    pipeline = PipelineUnderTest(
        server.create_database("shop"), directory, f"acknowledge: {acknowledge}", source=source
    )
    pipeline.begin()
    return pipeline


def end_of_wal(pipeline: PipelineUnderTest) -> LSN:
    return LSN.parse(str(pipeline.execute("select pg_current_wal_flush_lsn()")[0][0]))


def write_past(pipeline: PipelineUnderTest, position: LSN, first: int = 1000) -> None:
    """Rows of the new history, until the LSN does not tell any more that the server was set back."""
    while end_of_wal(pipeline) <= position:
        pipeline.insert(first, first + 99, size=100)
        first += 100


def rows_in_log(pipeline: PipelineUnderTest) -> int:
    segments = [name for stretch in pipeline.log.contents().stretches for name in stretch.segments]
    return sum(entry.rows for name in segments for entry in pipeline.log.open(name).relations)


@pytest.mark.parametrize(
    ("server", "acknowledge", "new_timeline"),
    [
        pytest.param(16, "log", False, id="16 before what we confirmed, same timeline"),
        pytest.param(16, "sinks", True, id="16 after what we confirmed, new timeline"),
        pytest.param(18, "log", True, id="18 before what we confirmed, new timeline"),
        pytest.param(18, "sinks", False, id="18 after what we confirmed, same timeline"),
    ],
    indirect=["server"],
)
def test_a_restored_copy_that_lacks_changes_of_the_log_is_noticed(
    server: EmbeddedPostgres, tmp_path: Path, acknowledge: str, new_timeline: bool
) -> None:
    """Without delivery and with acknowledge: sinks, nothing but the slot's beginning is confirmed."""
    pipeline = begun(server, tmp_path, acknowledge)
    pipeline.insert(1, 10)
    pipeline.capture_all()
    copy = ServerCopy(server)
    pipeline.insert(11, 20)
    pipeline.capture_all()
    held, rows = pipeline.position(), rows_in_log(pipeline)

    copy.restore(new_timeline)
    write_past(pipeline, held)

    error = pipeline.why_capture_stops()
    assert isinstance(error, SourceSetBack)
    assert "set back" in str(error)
    history = pipeline.state.history()
    assert history is not None
    assert pipeline.confirmed() <= (history.commit_lsn or ZERO), "the slot let go of the proof"
    assert isinstance(pipeline.why_capture_stops(), SourceSetBack), "trying again must not make it good"
    assert rows_in_log(pipeline) == rows


@VERSIONS
def test_a_restored_copy_in_which_the_same_was_written_again_is_noticed(
    server: EmbeddedPostgres, pipeline: PipelineUnderTest
) -> None:
    """The same LSNs, the same xids, the same rows: only the time of the commit differs."""
    pipeline.capture_all()
    copy = ServerCopy(server)
    pipeline.insert(11, 20)
    pipeline.capture_all()
    held = pipeline.position()

    copy.restore()
    pipeline.insert(11, 20)
    write_past(pipeline, held)

    assert isinstance(pipeline.why_capture_stops(), SourceSetBack)


@pytest.mark.parametrize("new_timeline", [False, True], ids=["same timeline", "new timeline"])
def test_a_change_where_there_was_none_before_is_noticed(
    server: EmbeddedPostgres, tmp_path: Path, new_timeline: bool
) -> None:
    """All that was in the log is still there, but sinks have been taken across WAL that was empty then."""
    pipeline = begun(server, tmp_path, source=", heartbeat: 0s")
    pipeline.insert(1, 10)
    pipeline.capture_all()
    copy = ServerCopy(server)
    with pipeline.capturing() as capture:
        pipeline.execute("select pg_switch_wal()")
        capture.reach(end_of_wal(pipeline))

    copy.restore(new_timeline)
    pipeline.insert(11, 20)
    pipeline.execute("select pg_switch_wal()")
    write_past(pipeline, pipeline.position(), 100)

    for _ in range(2):
        assert isinstance(pipeline.why_capture_stops(), SourceSetBack)
    assert rows_in_log(pipeline) == 10


def test_after_a_kill_the_end_of_the_log_is_what_is_looked_for(
    server: EmbeddedPostgres, pipeline: PipelineUnderTest, tmp_path: Path
) -> None:
    """The record of the newest transaction is older than the log: it is written about once a second."""
    pipeline.insert(1, 10)
    pipeline.capture_all()
    parts = tmp_path / "state" / "parts"
    shutil.copytree(parts, tmp_path / "before")
    copy = ServerCopy(server)
    pipeline.insert(11, 20)
    pipeline.capture_all()
    held = pipeline.position()
    for file in ("history.json", "capture.json"):
        shutil.copy(tmp_path / "before" / file, parts / file)

    copy.restore()
    write_past(pipeline, held)

    assert isinstance(pipeline.why_capture_stops(), SourceSetBack)


@pytest.mark.parametrize("new_timeline", [False, True], ids=["same timeline", "new timeline"])
def test_a_role_without_any_right_to_write_notices_as_well(
    server: EmbeddedPostgres, tmp_path: Path, new_timeline: bool
) -> None:
    owner = server.create_database("shop")
    server.execute("create role reader login replication")
    setup = (
        "create table items (id int primary key, value text); create publication shop_items for table items; "
        "grant select on items to reader; revoke create on schema public from public; "
        "revoke execute on function pg_logical_emit_message(boolean, text, text, boolean) from public"
    )
    server.execute(setup.replace(", boolean)", ")" if server.version < 17 else ", boolean)"), dbname="shop")
    pipeline = PipelineUnderTest(
        owner.replace("postgres@", "reader@"), tmp_path, source=", publication: shop_items, mode: stream"
    )
    pipeline.pipeline.init()
    admin = PipelineUnderTest(owner, server.directory)
    admin.insert(1, 10)
    with pipeline.capturing() as capture:
        capture.reach(end_of_wal(admin))
    copy = ServerCopy(server)
    admin.insert(11, 20)
    with pipeline.capturing() as capture:
        capture.reach(end_of_wal(admin))

    copy.restore(new_timeline)
    write_past(admin, pipeline.position())

    assert isinstance(pipeline.why_capture_stops(), SourceSetBack)


@VERSIONS
def test_a_promoted_standby_that_lacked_our_last_changes_is_noticed(
    server: EmbeddedPostgres, pipeline: PipelineUnderTest, server_directory: Path, tmp_path: Path
) -> None:
    pipeline.insert(1, 10)
    pipeline.capture_all()
    with pipeline.capturing():
        standby = Standby(server, server_directory / "standby", pipeline.slot, "shop")
    try:
        standby.receive_no_more()
        pipeline.insert(11, 20)
        pipeline.capture_all()
        held = pipeline.position()

        promoted = PipelineUnderTest(standby.promote().url_of("shop"), tmp_path, "acknowledge: log")
        write_past(promoted, held)

        assert isinstance(promoted.why_capture_stops(), SourceSetBack)
    finally:
        standby.server.stop()


@VERSIONS
def test_a_promoted_standby_that_has_all_that_we_read_is_gone_on_with(
    server: EmbeddedPostgres, pipeline: PipelineUnderTest, server_directory: Path, tmp_path: Path
) -> None:
    pipeline.insert(1, 10)
    pipeline.capture_all()
    with pipeline.capturing():
        standby = Standby(server, server_directory / "standby", pipeline.slot, "shop")
    try:
        pipeline.insert(11, 20)
        pipeline.capture_all()
        standby.receive_no_more()

        promoted = PipelineUnderTest(standby.promote().url_of("shop"), tmp_path, "acknowledge: log")
        for first in (21, 31):
            promoted.insert(first, first + 9)
            promoted.capture_all()

        assert rows_in_log(promoted) == 40
    finally:
        standby.server.stop()


def test_a_running_capture_notices_when_it_reconnects(server: EmbeddedPostgres, pipeline: PipelineUnderTest) -> None:
    copy = ServerCopy(server)
    with pipeline.capturing() as capture:
        pipeline.insert(1, 10)
        capture.reach(pipeline.committed_now())
        copy.restore()
        write_past(pipeline, pipeline.position())
        error = wait_until(lambda: capture.error, what="capture to notice")
        capture.error = None

    assert isinstance(error, SourceSetBack)


def test_a_set_back_is_noticed_without_the_log_as_well(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """The log's directory was lost; the newest transaction is remembered beside it."""
    pipeline = begun(server, tmp_path, "sinks")
    pipeline.capture_all()
    copy = ServerCopy(server)
    pipeline.insert(1, 10)
    pipeline.capture_all()
    held = pipeline.position()
    shutil.rmtree(tmp_path / "state" / "log")

    copy.restore()
    write_past(pipeline, held)

    assert isinstance(pipeline.why_capture_stops(), SourceSetBack)
