from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import LogCorrupt, SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks import staging
from penstock.sinks.contract import Batch
from penstock.sinks.staging import INLINE_BYTES, stage, storage_error

SMALL = pa.table({"a": [1, 2, None], "b": ["x", None, "🐘"]})
LARGE = pa.table({"n": pa.array(range(100_000))})


def batch(staging_uri: str) -> Batch:
    return Batch(7, LSN(1), LSN(2), staging_uri)


def test_a_small_table_travels_in_the_receipt(tmp_path: Path) -> None:
    staged = stage(batch(str(tmp_path / "none")), "events", SMALL)
    assert staged.inline is not None
    assert len(staged.inline) <= INLINE_BYTES
    assert pickle.loads(pickle.dumps(staged)).open().equals(SMALL)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("form", [str, Path.as_uri])
def test_a_large_table_is_a_file_below_the_staging_directory(tmp_path: Path, form: Callable[[Path], str]) -> None:
    staged = stage(batch(form(tmp_path / "not" / "yet there")), "public.users", LARGE)
    assert staged.inline is None
    (file,) = (tmp_path / "not" / "yet there").iterdir()
    assert file.name.startswith("public.users-")
    assert file.suffix == ".arrow"
    assert pickle.loads(pickle.dumps(staged)).open().equals(LARGE)


def test_two_attempts_do_not_meet(tmp_path: Path) -> None:
    first, second = (stage(batch(str(tmp_path)), "events", LARGE) for _ in range(2))
    assert first.file != second.file
    assert first.open().equals(second.open())


@pytest.mark.parametrize("left", [0, 100, -100])
def test_a_file_that_the_end_of_the_machine_left_half_written_is_damaged(tmp_path: Path, left: int) -> None:
    staged = stage(batch(str(tmp_path)), "events", LARGE)
    os.truncate(tmp_path / staged.file, left % (tmp_path / staged.file).stat().st_size)
    with pytest.raises(LogCorrupt, match="is damaged"):
        staged.open()


def test_a_name_may_be_anything(tmp_path: Path) -> None:
    staged = stage(batch(str(tmp_path)), '../"drop table; --"/🐘' * 50, LARGE)
    assert staged.open().equals(LARGE)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_relative_directory_means_the_same_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    staged = stage(batch("here"), "events", LARGE)
    monkeypatch.chdir("/")
    assert staged.open().equals(LARGE)


def test_chunks_stay_apart(tmp_path: Path) -> None:
    chunked = pa.Table.from_batches([*SMALL.to_batches(), *SMALL.to_batches()])
    opened = stage(batch(str(tmp_path)), "events", chunked).open()
    assert [len(chunk) for chunk in opened.to_batches()] == [3, 3]


def test_a_directory_that_is_a_file_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkRefused, match="stage data"):
        stage(batch(str(tmp_path / "file" / "below")), "events", LARGE)


def test_staged_data_that_is_gone_can_be_made_again(tmp_path: Path) -> None:
    staged = stage(batch(str(tmp_path)), "events", LARGE)
    os.unlink(tmp_path / staged.file)
    with pytest.raises(SinkUnavailable, match="read the staged events-"):
        staged.open()


def test_a_crash_while_writing_leaves_no_file_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(sink: pa.NativeFile, table: pa.Table) -> None:
        sink.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging, "_write", crash)
    with pytest.raises(SinkUnavailable, match="No space left") as raised:
        stage(batch(str(tmp_path)), "events", LARGE)
    assert raised.value.advice is not None
    assert "room" in raised.value.advice
    assert list(tmp_path.glob("*.arrow")) == []


def test_rights_are_refusals_and_room_is_not() -> None:
    assert isinstance(storage_error(PermissionError(errno.EACCES, "Permission denied"), "write", "/x"), SinkRefused)
    assert isinstance(storage_error(OSError(errno.ENOSPC, "No space left"), "write", "/x"), SinkUnavailable)
    assert str(storage_error(OSError(errno.EIO, "Input/output error"), "write", "/x")) == (
        "Cannot write in /x: Input/output error."
    )
