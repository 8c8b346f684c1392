"""Another list of publications, or publications made anew, for a pipeline that has a slot and state already."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from penstock.errors import PublicationMissing, SlotLost
from penstock.testing.conditions import wait_until
from tests.recovery.captured_publications import Captured

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)
TABLES = [f"create table {table} (id int primary key)" for table in "tuv"]


def a_pipeline(url: str, directory: Path, *publications: str, mode: str = "copy_and_stream") -> Captured:
    """Everything is imported and captured; ``first`` has t and u."""
    pipeline = Captured(url, directory, *publications, mode=mode)
    pipeline.execute(*TABLES, "create publication first for table t, u")
    pipeline.start()
    if mode != "stream":
        pipeline.import_all()
    pipeline.execute("insert into t values (1); insert into u values (1); insert into v values (1)")
    pipeline.capture_all()
    return pipeline


@both_versions
def test_one_publication_more_brings_its_tables_in_and_leaves_the_others_alone(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path, "first")
    slots, before = pipeline.slots(), pipeline.jobs()
    pipeline.execute(
        "insert into t values (2)", "create publication second for table v",
        "insert into v values (2); insert into t values (3)",
    )  # fmt: skip
    pipeline.use("first", "second")
    pipeline.start()
    assert set(pipeline.jobs()) == {"t", "u"}  # as long as v is not captured
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into v values (4); insert into t values (4)")
        capture.reach_end()
    assert pipeline.slots() == slots
    assert pipeline.rows() == {"t": [1, 2, 3, 4], "u": [1], "v": [4]}
    now = pipeline.jobs()
    assert (now["t"].id, now["u"].id, now["v"].state) == (before["t"].id, before["u"].id, "pending")


@both_versions
def test_one_publication_less_leaves_its_tables_as_they_are(database: str, tmp_path: Path) -> None:
    pipeline = Captured(database, tmp_path, "first", "second")
    pipeline.execute(*TABLES, "create publication first for table t, u; create publication second for table u, v")
    pipeline.start()
    pipeline.import_all()
    before = pipeline.jobs()
    pipeline.execute("insert into u values (1); insert into v values (1)")
    pipeline.use("first")
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into u values (2); insert into v values (2)")
        capture.reach_end()
    assert pipeline.rows() == {"u": [1, 2], "v": [1]}  # what was committed before is still delivered
    assert pipeline.states() == {"t": "streaming", "u": "streaming", "v": "removed"}
    assert pipeline.jobs()["u"].id == before["u"].id


@both_versions
def test_a_table_in_both_the_former_and_the_new_publication_misses_nothing_and_is_not_imported_again(
    database: str, tmp_path: Path
) -> None:
    pipeline = a_pipeline(database, tmp_path, "first")
    before = pipeline.jobs()
    pipeline.execute("insert into t values (2)", "create publication second for table t, v", "insert into t values (3)")
    pipeline.use("second")
    with psycopg.connect(database) as session:
        session.execute("insert into t values (4)")
        pipeline.start()
        with pipeline.capturing() as capture:
            wait_until(lambda: pipeline.read() == {"first", "second"}, what="both to be read")
            pipeline.pipeline.reconcile()
            pipeline.execute("insert into t values (5)")
            session.commit()
            capture.reach_end()
            capture.settle()
            pipeline.execute("insert into t values (6); insert into u values (6)")
            capture.reach_end()
    assert pipeline.rows() == {"t": [1, 2, 3, 4, 5, 6], "u": [1]}
    assert pipeline.states() == {"t": "streaming", "u": "removed", "v": "pending"}
    assert pipeline.jobs()["t"].id == before["t"].id


@both_versions
def test_a_publication_that_was_made_anew_has_its_tables_imported_again(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path, "first")
    slots, before = pipeline.slots(), pipeline.jobs()
    pipeline.execute(
        "insert into t values (2)", "drop publication first", "insert into t values (3)",
        "create publication first for table t, u", "insert into t values (4)",
    )  # fmt: skip
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into t values (5)")
        capture.reach_end()
    assert pipeline.slots() == slots
    assert {2, 5} <= set(pipeline.rows()["t"])
    now = pipeline.jobs()
    assert {now[table].state for table in "tu"} == {"pending"}
    assert now["t"].id > before["t"].id
    with pipeline.capturing() as capture:  # it goes on as any other
        pipeline.execute("insert into t values (6)")
        capture.reach_end()
    assert pipeline.rows()["t"][-1] == 6


@both_versions
def test_a_publication_that_was_made_anew_beside_another_does_not_touch_that_ones_tables(
    database: str, tmp_path: Path
) -> None:
    pipeline = Captured(database, tmp_path, "first", "second")
    pipeline.execute(*TABLES, "create publication first for table t; create publication second for table v")
    pipeline.start()
    pipeline.import_all()
    before = pipeline.jobs()
    pipeline.execute(
        "insert into v values (1)", "drop publication first", "insert into v values (2)",
        "create publication first for table t", "insert into v values (3); insert into t values (3)",
    )  # fmt: skip
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into v values (4); insert into t values (4)")
        capture.reach_end()
    assert pipeline.rows()["v"] == [1, 2, 3, 4]
    assert 4 in pipeline.rows()["t"]
    assert (pipeline.states(), pipeline.jobs()["v"].id) == ({"t": "pending", "v": "streaming"}, before["v"].id)


@both_versions
def test_capture_waits_for_a_publication_that_is_dropped_while_it_is_read(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path, "first")

    def waits() -> bool:
        captured = pipeline.state.capture()
        return captured is not None and captured.error == 'The source has no publication "first".'

    with pipeline.capturing() as capture:
        pipeline.execute("insert into t values (2)", "drop publication first", "insert into t values (3)")
        wait_until(waits, what="capture to notice")
        pipeline.execute("create publication first for table t, u")
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into t values (4)")
        capture.reach_end()
    assert pipeline.rows()["t"] == [1, 2, 4]
    assert pipeline.states() == {"t": "pending", "u": "pending"}


@both_versions
def test_in_mode_stream_wal_that_cannot_be_decoded_is_a_stop_with_a_way_out(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path, "first", mode="stream")
    pipeline.execute(
        "drop publication first", "insert into t values (2)",
        "create publication first for table t", "insert into t values (3)",
    )  # fmt: skip
    error = pipeline.why_capture_stops()
    assert isinstance(error, PublicationMissing)
    assert 'the publication "first" did not exist there' in str(error)
    assert isinstance(pipeline.why_capture_stops(), PublicationMissing), "trying again must not make it good"
    pipeline.use("first", mode="copy_and_stream")  # which is what the advice says
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        pipeline.execute("insert into t values (4)")
        capture.reach_end()
        capture.settle()
    assert pipeline.rows()["t"] == [1, 4]
    assert pipeline.states() == {"t": "pending"}


@both_versions
def test_in_mode_stream_another_publication_is_captured_from_the_start_on_without_a_gap(
    database: str, tmp_path: Path
) -> None:
    pipeline = a_pipeline(database, tmp_path, "first", mode="stream")
    pipeline.execute("insert into t values (2)", "create publication second for table t, v", "insert into t values (3)")
    pipeline.use("second", mode="stream")
    pipeline.start()
    with pipeline.capturing() as capture:
        wait_until(lambda: pipeline.read() == {"second"}, what="the new one alone to be read")
        pipeline.execute("insert into t values (4); insert into v values (4); insert into u values (4)")
        capture.reach_end()
    assert pipeline.rows() == {"t": [1, 2, 3, 4], "u": [1], "v": [4]}


@both_versions
def test_a_pipeline_goes_over_to_publications_of_the_user_and_back(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path)
    slots, before = pipeline.slots(), pipeline.jobs()
    pipeline.use("first")
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into t values (2); insert into v values (2)")
        capture.reach_end()
    pipeline.pipeline.reconcile()
    assert pipeline.rows() == {"t": [1, 2], "u": [1], "v": [1]}
    assert (pipeline.states()["v"], pipeline.jobs()["t"].id) == ("removed", before["t"].id)
    pipeline.execute(
        "alter table v drop constraint v_pkey", "update v set id = id + 10"
    )  # no publication is in the way
    pipeline.execute("alter table v add primary key (id)")
    pipeline.use()
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into v values (4)")
        capture.reach_end()
    assert (pipeline.slots(), pipeline.states()["v"]) == (slots, "pending")
    assert pipeline.rows()["v"][-1] == 4
    assert pipeline.pipeline.destroy()[0] == f"replication slot {slots[0]}"
    assert pipeline.slots() == []


@both_versions
def test_penstocks_own_publications_are_made_again_for_the_slot_that_is_there(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path)
    slots = pipeline.slots()
    pipeline.execute("drop publication other, other_inserts", "insert into t values (2)")
    assert isinstance(pipeline.why_capture_stops(), SlotLost)
    pipeline.start()
    with pipeline.capturing() as capture:
        capture.reach_end()
        capture.settle()
        pipeline.execute("insert into t values (3)")
        capture.reach_end()
    assert pipeline.slots() == slots
    assert 3 in pipeline.rows()["t"]
    assert set(pipeline.states().values()) == {"pending"}


def test_destroy_removes_a_slot_whose_publications_are_gone(database: str, tmp_path: Path) -> None:
    pipeline = a_pipeline(database, tmp_path)
    pipeline.execute("drop publication other, other_inserts")
    pipeline.pipeline.destroy()
    assert pipeline.slots() == []
