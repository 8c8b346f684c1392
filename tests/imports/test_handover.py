from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import LogCorrupt
from penstock.imports.handover import ChunkReceipt, Committed, Handover, Manifest
from penstock.lsn import LSN
from penstock.state.lifecycle import TableState
from penstock.storage import Directory
from penstock.testing.change_batches import relation

USERS = relation("public", "users", id="int4", name="text", key=("id",))


@pytest.fixture
def handover(tmp_path: Path) -> Handover:
    return Handover(Directory(str(tmp_path)), "lake")


def receipt(number: int) -> ChunkReceipt:
    return ChunkReceipt(number, rows=10, bytes=100, outcome={"staged": number}, staging="nowhere")


def test_a_manifest_is_read_as_it_was_written(handover: Handover) -> None:
    manifest = Manifest(7, USERS, LSN(5), TableState.CATCHING_UP, True, LSN(0x10), LSN(0x20), 3)
    handover.write_manifest(manifest)
    assert handover.manifest(7) == manifest
    assert list(handover.manifests()) == [manifest]


def test_receipts_are_listed_in_the_order_of_their_numbers_and_by_job(handover: Handover) -> None:
    for job, number in ((7, 10), (7, 9), (77, 1)):
        handover.directory.create()
        handover.write_receipt(job, receipt(number))
    assert list(handover.receipts(7)) == [9, 10]
    assert handover.receipt(7, 9) == receipt(9)


def test_a_receipt_that_cannot_be_read_says_which(handover: Handover) -> None:
    handover.directory.create()
    handover.write_receipt(7, receipt(1))
    path = next(Path(handover.directory.path).glob("7-*.receipt"))
    path.write_bytes(path.read_bytes()[:5])
    with pytest.raises(LogCorrupt, match=path.name):
        handover.receipt(7, 1)


def test_the_log_is_needed_from_the_oldest_import_on(handover: Handover) -> None:
    assert handover.needed_from() is None
    handover.write_manifest(Manifest(7, USERS, LSN(0x50)))
    handover.write_manifest(Manifest(8, USERS, LSN(0x30)))
    assert handover.needed_from() == LSN(0x30)
    handover.remove(8)
    assert handover.needed_from() == LSN(0x50)


def test_what_is_removed_leaves_nothing(handover: Handover) -> None:
    handover.write_manifest(Manifest(7, USERS, LSN(0x50)))
    handover.write_receipt(7, receipt(1))
    handover.write_manifest(Manifest(8, USERS, LSN(0x50)))
    (Path(handover.directory.path) / ".writing-4711-7.json").touch()  # by somebody who was killed
    handover.remove(7)
    assert [path.name for path in Path(handover.directory.path).iterdir()] == ["8.json"]


def test_what_a_kill_within_a_removal_left_goes_and_imports_under_way_stay(handover: Handover, tmp_path: Path) -> None:
    for job in (7, 8):
        handover.write_manifest(Manifest(job, USERS, LSN(0x50)))
        handover.write_receipt(job, receipt(1))
        handover.write_committed(job, Committed((1,)))
        Directory(handover.new_staging(job, 2)).create()
    handover.directory.delete("7.json")  # and killed
    handover.remove_orphans()
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.name[0] in "i78")
    assert [name for name in left if "7" in name] == []
    assert handover.receipts(8) == [1]
    assert handover.committed(8) == Committed((1,))
    assert Directory(handover.staging(8)).exists()
