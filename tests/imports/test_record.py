"""What delivery keeps of the tables of a sink, without a sink and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.admission import Ready
from penstock.delivery.table_record import TableRecord
from penstock.imports.handover import Committed, Handover, Manifest
from penstock.lsn import LSN
from penstock.sinks.contract import Imported, ImportPart, UnderWay
from penstock.state.lifecycle import TableState, Trouble
from penstock.state.pipeline_state import PipelineState
from penstock.testing.change_batches import relation

USERS = relation("public", "users", id="int4", name="text", key=("id",))


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    state = PipelineState(str(tmp_path))
    state.create()
    Handover(state.root, "lake").directory.create()  # as whoever writes the first manifest does
    return state


def record(state: PipelineState, own: Imported | None = None) -> TableRecord:
    made = TableRecord(state, "lake")
    made.load(own)
    return made


def part(phase: str, **members: object) -> ImportPart:
    return ImportPart(5, USERS, phase, **members)  # type: ignore[arg-type]


def test_an_import_goes_from_begin_to_ready(state: PipelineState) -> None:
    tables = record(state)
    assert tables.under_way(5) is None
    tables.note(part("begin"))
    tables.note(part("rows", number=1))
    tables.note(part("rows", number=3))
    tables.note(part("changes", upto=LSN(0x100)))
    assert tables.under_way(5) == UnderWay(frozenset({1, 3}), LSN(0x100))
    tables.announce(USERS.oid, 5, LSN(0x100))
    assert tables.admission().after(USERS.oid) == LSN(0x100)
    tables.note(part("end", upto=LSN(0x180)))
    assert tables.ready(USERS.oid) == Ready(5, LSN(0x180))
    assert tables.under_way(5) is None
    assert tables.admission().after(USERS.oid) == LSN(0x180)


def test_a_batch_planned_before_the_announcement_is_not_the_one_to_join_with(state: PipelineState) -> None:
    tables = record(state)
    planned_before = tables.admission().version
    tables.note(part("begin"))
    tables.announce(USERS.oid, 5, LSN(0x100))
    assert tables.due(planned_before) == []
    assert tables.due(tables.admission().version) == [5]


def test_a_batch_that_left_out_a_table_which_has_joined_since_is_told(state: PipelineState) -> None:
    tables = record(state)
    planned_before = tables.admission().version
    tables.note(part("begin"))
    tables.announce(USERS.oid, 5, LSN(0x100))
    tables.note(part("end", upto=LSN(0x180)))
    assert tables.lacks_table(planned_before, LSN(0x200))
    assert not tables.lacks_table(planned_before, LSN(0x180))
    assert not tables.lacks_table(tables.admission().version, LSN(0x200))


def test_a_table_that_does_not_join_after_all_waits_again(state: PipelineState) -> None:
    tables = record(state)
    tables.note(part("begin"))
    tables.announce(USERS.oid, 5, LSN(0x100))
    version = tables.admission().version
    tables.withdraw(5)
    assert tables.admission().after(USERS.oid) is None
    assert tables.admission().version > version


def test_without_a_record_of_the_sink_the_files_are_read(state: PipelineState) -> None:
    Handover(state.root, "lake").write_manifest(Manifest(5, USERS, LSN(1), TableState.COPYING))
    tables = record(state)
    tables.note(part("rows", number=2))
    tables.note_snapshot(5, "10:20:15")
    again = record(state)
    assert again.under_way(5) == UnderWay(frozenset({2}))
    assert again.snapshot(5) == "10:20:15"


def test_the_sinks_own_record_wins(state: PipelineState) -> None:
    Handover(state.root, "lake").write_manifest(Manifest(5, USERS, LSN(1), TableState.COPYING))
    tables = record(state)
    tables.note(part("rows", number=2))
    tables.note(part("end", upto=LSN(0x100)))
    restored = record(state, Imported("slot", {}, {5: UnderWay(frozenset({1}))}))
    assert restored.ready(USERS.oid) is None
    assert restored.under_way(5) == UnderWay(frozenset({1}))
    assert restored.admission().after(USERS.oid) is None
    assert Handover(state.root, "lake").committed(5).chunks == (1,)


def test_trouble_is_told_beside_what_is_there(state: PipelineState) -> None:
    tables = record(state)
    tables.note(part("rows", number=2))
    tables.note_error(5, "The disk is full.", Trouble.RETRY)
    assert Handover(state.root, "lake").committed(5) == Committed((2,), None, None, "The disk is full.", Trouble.RETRY)
    tables.note(part("rows", number=3))
    assert Handover(state.root, "lake").committed(5) == Committed((2, 3))


def test_only_some_tables_join_at_a_time(state: PipelineState) -> None:
    tables = record(state)
    for number in range(8):
        assert not tables.many_joining
        tables.announce(16384 + number, number, LSN(1))
    assert tables.many_joining
