from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog import units as changes_of_units
from penstock.changelog.log import ChangeLog
from penstock.changelog.units import WorkUnit, change_batches, plan
from penstock.errors import LogCorrupt
from penstock.lsn import LSN
from tests.changelog.log_scripts import START, LogScript, version, write_log


def log_of(directory: Path, transactions: int) -> tuple[ChangeLog, LSN]:
    """Each transaction in a segment of its own."""
    scripted = LogScript()
    for xid in range(1, transactions + 1):
        scripted.transaction([("insert", 0, ""), ("insert", 1, "")], xid)
    return write_log(directory, scripted.stream.messages, 1, cuts=list(range(100))), scripted.stream.end


def test_segments_of_one_definition_are_decoded_together(tmp_path: Path) -> None:
    log, end = log_of(tmp_path, 3)
    (units,) = plan(log, LSN(START), end, 1)
    batches = list(change_batches(log, units, LSN(START)))
    assert [(batch.relation.table, batch.xid.tolist()) for batch in batches] == [("t0", [1, 2, 3]), ("t1", [1, 2, 3])]


def test_a_chunk_ends_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, end = log_of(tmp_path, 3)
    monkeypatch.setattr(changes_of_units, "CHUNK_BYTES", 1)
    (units,) = plan(log, LSN(START), end, 1)
    batches = list(change_batches(log, units, LSN(START)))
    assert [batch.xid.tolist() for batch in batches] == [[1], [2], [3]] * 2


def test_a_chunk_ends_where_the_definition_changes(tmp_path: Path) -> None:
    scripted = LogScript()
    scripted.transaction([("insert", 0, "a"), ("redefine", 0, ""), ("insert", 0, "b")], xid=1)
    log = write_log(tmp_path, scripted.stream.messages, 1 << 20)
    (units,) = plan(log, LSN(START), scripted.stream.end, 1)
    batches = list(change_batches(log, units, LSN(START)))
    assert [batch.relation for batch in batches] == [version(0, 0), version(0, 1)]
    assert [batch.sequence.tolist() for batch in batches] == [[1], [2]]


def test_a_unit_that_names_no_segment_is_corruption(tmp_path: Path) -> None:
    unit = WorkUnit("nonsense", "public.t0", 0, 0, 1, 1, 1)
    with pytest.raises(LogCorrupt, match="nonsense"):
        list(change_batches(ChangeLog(str(tmp_path)), [unit], LSN(START)))
