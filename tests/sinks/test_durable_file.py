from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.sinks.staging import replace_durably


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_durably(path, [b"first, and longer"])
    replace_durably(path, [b"sec", b"ond"])
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    def full_disk() -> Iterator[bytes]:
        yield b"some"
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "file"
    replace_durably(path, [b"old"])
    with pytest.raises(OSError, match="No space left"):
        replace_durably(path, full_disk())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_data_is_synced_before_it_gets_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        steps.append("sync directory" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "sync file")
        fsync(descriptor)

    def record_rename(source: Path, target: Path) -> None:
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_rename)
    replace_durably(tmp_path / "file", [b"data"])
    assert steps == ["sync file", "rename", "sync directory"]
