from __future__ import annotations

import errno
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import storage
from penstock.changelog.log import ChangeLog
from penstock.errors import ConfigError, LogError, LogFull
from penstock.storage import Directory, FileEntry
from tests.changelog.log_scripts import LogScript, rows_of, write_log


@pytest.fixture(params=["local", "file URI", "object store"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
    """The same on a path, behind a URI, and by way of ``pyarrow.fs`` alone, as on an object store."""
    path = tmp_path / "with space, ü and #%41"
    made = Directory(path.as_uri() if request.param == "file URI" else str(path))
    if request.param == "object store":
        made.is_local = False
        monkeypatch.setattr(os, "fsync", _not_here)
    made.create()
    return made


def _not_here(_descriptor: int) -> None:
    raise AssertionError("there is nothing to fsync on an object store")


def write(directory: Directory, name: str, data: bytes) -> int:
    return directory.write(name, lambda stream: stream.write(data))


def test_what_was_written_is_listed_and_read(directory: Directory) -> None:
    assert write(directory, "a", b"hello") == 5
    assert write(directory, "b", b"") == 0
    assert sorted(directory.entries(), key=lambda entry: entry.name) == [FileEntry("a", 5), FileEntry("b", 0)]
    assert directory.open("a").read() == b"hello"


def test_writing_again_replaces(directory: Directory) -> None:
    write(directory, "a", b"long before")
    write(directory, "a", b"new")
    assert directory.open("a").read() == b"new"


def test_deleting_twice_is_no_error(directory: Directory) -> None:
    write(directory, "a", b"x")
    directory.delete("a")
    directory.delete("a")
    assert directory.entries() == []


def test_an_absent_directory_is_empty_and_can_be_deleted(directory: Directory) -> None:
    child = directory.child("never/made")
    child.is_local = directory.is_local
    assert child.entries() == []
    assert not child.exists()
    child.delete_all()


def test_the_directories_in_it_are_listed_and_no_files(directory: Directory) -> None:
    write(directory, "a", b"x")
    directory.child("b").create()
    assert directory.directories() == ["b"]
    assert directory.child("never").directories() == []


def test_a_directory_goes_with_all_that_is_in_it(directory: Directory) -> None:
    write(directory, "a", b"x")
    directory.delete_all()
    assert not directory.exists()


def test_a_missing_file_is_not_found(directory: Directory) -> None:
    with pytest.raises(FileNotFoundError):
        directory.open("nothing")
    assert directory.read_json("nothing") is None


def test_json_comes_back(directory: Directory) -> None:
    directory.write_json("state.json", {"lsn": "0/1", "name": "ü"})
    assert directory.read_json("state.json") == {"lsn": "0/1", "name": "ü"}


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff\xfe", b"[1, 2]", b"null"])
def test_damaged_json_is_said_not_taken_for_nothing(directory: Directory, damaged: bytes) -> None:
    write(directory, "state.json", damaged)
    with pytest.raises(LogError, match=r"state\.json is damaged"):
        directory.read_json("state.json")


def test_a_file_where_a_directory_should_be_is_a_log_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(LogError, match="taken"):
        Directory(str(tmp_path / "taken")).create()
    with pytest.raises(LogError, match="taken"):
        Directory(str(tmp_path / "taken")).entries()
    with pytest.raises(LogError, match="taken"):
        write(Directory(str(tmp_path / "taken")), "a", b"x")


def test_a_directory_pickles_as_its_uri(directory: Directory) -> None:
    write(directory, "a", b"x")
    assert pickle.loads(pickle.dumps(directory)).entries() == [FileEntry("a", 1)]


@pytest.mark.parametrize("uri", ["nosuch://bucket/x", "://", "file://relative/x"])
def test_a_uri_that_nothing_serves_is_a_config_error(uri: str) -> None:
    with pytest.raises(ConfigError, match="not a place that can be used"):
        Directory(uri)


def test_nothing_is_visible_before_everything_is_on_disk(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))
    seen: list[Any] = []
    directory.write("a", lambda stream: stream.write(b"x"), lambda: seen.append(directory.entries()))
    assert seen == [[]]


def test_two_that_write_the_same_name_at_the_same_moment_do_not_meet(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))

    def another_writes() -> None:
        thread = threading.Thread(target=directory.write, args=("a", lambda stream: stream.write(b"theirs")))
        thread.start()
        thread.join()
        assert (tmp_path / "a").read_bytes() == b"theirs"

    directory.write("a", lambda stream: stream.write(b"ours"), another_writes)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"ours"


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fails(stream: Any) -> None:
        stream.write(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Directory(str(tmp_path)).write("a", fails)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_told_apart_from_other_trouble(directory: Directory, number: int) -> None:
    def full(_stream: Any) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(LogFull):
        directory.write("a", full)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))
    write(directory, "a", b"x")
    (tmp_path / f"{storage._TEMPORARY}b").write_bytes(b"half")
    assert directory.entries() == [FileEntry("a", 1)]
    directory.remove_leftovers()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_leftovers_may_be_removed_of_some_files_alone(tmp_path: Path) -> None:
    names = [
        f"{storage._TEMPORARY}{name}" for name in ("77-2.json", "78-2-0001", "2-12.json", "79-20.json", "80-1-2.x")
    ]
    for name in names:
        (tmp_path / name).touch()
    Directory(str(tmp_path)).remove_leftovers("2.", "2-")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])


def test_what_is_removed_while_it_is_written_is_as_if_it_were_removed_later(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))
    with pytest.raises(LogError):
        directory.write("a", lambda stream: stream.write(b"x"), directory.remove_leftovers)
    directory.write("a", lambda stream: stream.write(b"x"), directory.remove_leftovers, removable=True)
    assert list(tmp_path.iterdir()) == []


def test_a_log_on_an_object_store_reads_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = property(lambda _self: False, lambda _self, _value: None)
    monkeypatch.setattr(storage.Directory, "is_local", never, raising=False)
    scripted = LogScript()
    scripted.transaction([("insert", 0, "x"), ("truncate", 1, ""), ("message", 0, "m")], xid=1)
    scripted.transaction([("delete", 0, "")], xid=2)
    log = write_log(tmp_path / "log", scripted.stream.messages, 1, cuts=[6])
    assert not ChangeLog(log.directory.uri).directory.is_local
    found = [row for rows in rows_of(ChangeLog(log.directory.uri)) for row in rows]
    assert sorted(found, key=repr) == sorted(scripted.rows, key=repr)
