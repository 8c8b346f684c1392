from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.admission import Admission, Ready, read_admission, write_holds, write_ready
from penstock.changes.batch import MESSAGES
from penstock.lsn import LSN, ZERO
from penstock.storage import Directory


@pytest.fixture
def parts(tmp_path: Path) -> Directory:
    return Directory(str(tmp_path))


def test_a_table_that_nobody_has_imported_waits() -> None:
    assert Admission().after(16384) is None


def test_a_ready_table_is_taken_from_where_its_import_ended() -> None:
    assert Admission(ready={16384: Ready(3, LSN(0x100))}).after(16384) == LSN(0x100)


def test_messages_belong_to_no_table_and_never_wait() -> None:
    assert Admission().after(MESSAGES.oid) == ZERO


def test_a_table_that_waits_for_a_newer_import_is_not_taken_until_that_one_is_complete() -> None:
    holds = {16384: 4}
    assert Admission(ready={16384: Ready(3, LSN(0x100))}, holds=holds).after(16384) is None
    assert Admission(ready={16384: Ready(4, LSN(0x200))}, holds=holds).after(16384) == LSN(0x200)


def test_a_joining_table_is_taken_from_where_it_has_come_whatever_it_waited_for() -> None:
    known = Admission(ready={16384: Ready(3, LSN(0x100))}, joining={16384: LSN(0x300)}, holds={16384: 4})
    assert known.after(16384) == LSN(0x300)


def test_what_is_written_is_read_again(parts: Directory) -> None:
    write_ready(parts, "lake", 7, {16384: Ready(3, LSN(0x100))}, {16390: LSN(0x200)})
    write_holds(parts, "lake", {16384: 5})
    expected = Admission(7, {16384: Ready(3, LSN(0x100))}, {16390: LSN(0x200)}, {16384: 5})
    assert read_admission(parts, "lake") == expected


def test_without_files_nothing_is_admitted(parts: Directory) -> None:
    assert read_admission(parts, "lake") == Admission()
