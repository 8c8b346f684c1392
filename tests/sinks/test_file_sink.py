from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.changes.batch import ChangeBatch
from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.file import sink as file_progress
from penstock.sinks.file import sink as file_sink
from penstock.sinks.file.sink import FileSettings, FileSink
from penstock.sinks.registry import sink_class
from penstock.sinks.staging import replace_durably
from penstock.testing.change_batches import changes, relation

USERS = relation("public", "users", id="int8", price="numeric", key=("id",))


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "events"


def sink(directory: Path, **settings: Any) -> FileSink:
    made = FileSink(FileSettings(name="out", path=directory, **settings))
    made.prepare()
    return made


def batch(directory: Path, start: int, end: int) -> Batch:
    return Batch(0, LSN(start), LSN(end), str(directory.parent / "staging"))


def inserts(*ids: int, lsn: int | list[int]) -> ChangeBatch:
    return changes(USERS, [("insert", {"id": i, "price": "1.50"}) for i in ids], lsn=lsn)


def deliver(sink: FileSink, batch: Batch, *written: ChangeBatch) -> None:
    sink.commit(batch, [sink.write(batch, iter([each])) for each in written])


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def events(directory: Path) -> list[Any]:
    return [json.loads(line) for name in files(directory) for line in (directory / name).read_bytes().splitlines()]


def inserted(directory: Path) -> list[int]:
    return [event["after"]["id"] for event in events(directory) if event["op"] == "insert"]


def test_the_registry_knows_it() -> None:
    assert sink_class("file") is FileSink


def test_the_order_of_the_file_names_is_commit_order(directory: Path) -> None:
    out = sink(directory)
    deliver(out, batch(directory, 0x9, 0x10), inserts(1, lsn=0xF))
    deliver(out, batch(directory, 0x10, 0x1_0000_0000), inserts(2, lsn=0x20))
    assert files(directory) == [
        "0000000000000009-0000000000000010.jsonl",
        "0000000000000010-0000000100000000.jsonl",
    ]
    assert inserted(directory) == [1, 2]
    assert [event["op"] for event in events(directory)] == ["schema", "insert", "insert"]


def test_a_batch_without_changes_moves_the_progress_and_writes_no_file(directory: Path) -> None:
    out = sink(directory)
    deliver(out, batch(directory, 0, 0x10))
    assert files(directory) == []
    assert out.prepare() == LSN(0x10)
    known = json.loads((directory / ".progress.json").read_text())
    assert (known["lsn"], known["parts"], known["announced"], known["source"]) == ("0/10", 0, {}, "")


def test_the_settings_choose_format_and_numbers(directory: Path) -> None:
    deliver(sink(directory, numeric="number"), batch(directory, 0, 0x10), inserts(1, lsn=1))
    deliver(sink(directory, format="pgsink"), batch(directory, 0x10, 0x20), inserts(2, lsn=0x10))
    schema, native, modification = events(directory)
    assert (schema["op"], native["after"]["price"], modification["after"]) == (
        "schema",
        1.5,
        {"id": "2", "price": "1.50"},
    )


def test_an_unknown_format_is_refused_by_the_settings(directory: Path) -> None:
    with pytest.raises(ValidationError, match="'json' or 'pgsink'"):
        FileSettings(name="out", path=directory, format="xml")  # type: ignore[arg-type]


def test_a_definition_is_announced_again_only_when_it_changes_even_after_a_restart(directory: Path) -> None:
    deliver(sink(directory), batch(directory, 0, 0x10), inserts(1, lsn=1))
    deliver(sink(directory), batch(directory, 0x10, 0x20), inserts(2, lsn=0x10))
    wider = relation("public", "users", id="int8", price="numeric", note="text", key=("id",))
    deliver(sink(directory), batch(directory, 0x20, 0x30), changes(wider, [("insert", {"id": 3})], lsn=0x20))
    assert [event["op"] for event in events(directory)] == ["schema", "insert", "insert", "schema", "insert"]


def test_a_batch_that_overlaps_what_is_there_adds_only_what_is_new(directory: Path) -> None:
    out = sink(directory)
    deliver(out, batch(directory, 0, 0x10), inserts(1, lsn=0x5))
    deliver(out, batch(directory, 0x10, 0x20), inserts(2, lsn=0x10))
    deliver(out, batch(directory, 0x8, 0x30), inserts(2, 3, lsn=[0x10, 0x20]))
    assert files(directory)[-1] == "0000000000000020-0000000000000030.jsonl"
    assert inserted(directory) == [1, 2, 3]


@pytest.mark.parametrize("step", [1, 2])
def test_a_crash_at_any_step_of_a_commit_loses_nothing_and_repeats_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    deliver(sink(directory), batch(directory, 0, 0x10), inserts(1, lsn=1))
    calls = 0

    def crash_before_step(path: Path, chunks: Iterable[bytes | pa.Buffer]) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise Crash
        replace_durably(path, chunks)

    second = batch(directory, 0x10, 0x20)
    out = sink(directory)
    with monkeypatch.context() as patch:
        for module in (file_sink, file_progress):
            patch.setattr(module, "replace_durably", crash_before_step)
        with pytest.raises(Crash):
            deliver(out, second, inserts(2, lsn=0x10))

    again = FileSink(out.settings)
    assert again.prepare() == LSN(0x10)
    # As after the loss of Spark's checkpoint: the same changes, cut differently.
    deliver(again, batch(directory, 0x10, 0x18), inserts(2, lsn=0x10))
    deliver(again, batch(directory, 0x18, 0x20), inserts(3, lsn=0x18))
    assert inserted(directory) == [1, 2, 3]
    assert [event["op"] for event in events(directory)].count("schema") == 1


def test_a_crash_in_the_very_first_commit_is_like_any_other(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(directory: Path, progress: file_progress.Progress) -> None:
        raise Crash

    out = sink(directory)
    with monkeypatch.context() as patch:
        patch.setattr(file_sink, "write_progress", crash)
        with pytest.raises(Crash):
            deliver(out, batch(directory, 0, 0x10), inserts(1, lsn=1))
    assert len(files(directory)) == 1
    again = FileSink(out.settings)
    assert again.prepare() is None
    assert files(directory) == []


def test_files_of_others_are_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / "mine.jsonl").write_text("{}\n")
    sink(directory)
    assert files(directory) == ["mine.jsonl"]


def test_event_files_without_a_progress_are_never_removed(directory: Path) -> None:
    deliver(sink(directory), batch(directory, 0, 0x10), inserts(1, lsn=1))
    (directory / ".progress.json").unlink()
    with pytest.raises(SinkRefused, match=r"no \.progress\.json"):
        sink(directory)
    assert inserted(directory) == [1]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lsn": "x", "announced": {}}', '{"lsn": 5, "announced": {}}'])
def test_a_damaged_progress_is_a_loud_stop(directory: Path, text: str) -> None:
    directory.mkdir()
    (directory / ".progress.json").write_text(text)
    with pytest.raises(SinkRefused, match="is damaged"):
        sink(directory)


def test_a_full_disk_can_be_tried_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, chunks: Iterable[bytes | pa.Buffer]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = sink(directory)
    with monkeypatch.context() as patch:
        patch.setattr(file_sink, "replace_durably", full)
        with pytest.raises(SinkUnavailable, match="No space left on device"):
            deliver(out, batch(directory, 0, 0x10), inserts(1, lsn=1))
    deliver(out, batch(directory, 0, 0x10), inserts(1, lsn=1))
    assert inserted(directory) == [1]


def test_a_path_that_is_a_file_is_refused_by_check_and_by_prepare(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    out = FileSink(FileSettings(name="out", path=path))
    with pytest.raises(SinkRefused, match="cannot write files"):
        out.check()
    with pytest.raises(SinkRefused, match="prepare the files"):
        out.prepare()


def test_check_changes_nothing(directory: Path) -> None:
    FileSink(FileSettings(name="out", path=directory / "deep")).check()
    assert not directory.exists()


def test_no_staged_or_temporary_file_is_left_in_the_directory(directory: Path) -> None:
    deliver(sink(directory), batch(directory, 0, 0x10), inserts(*range(20_000), lsn=1))
    assert sorted(path.name for path in directory.iterdir()) == [".progress.json", *files(directory)]
    assert inserted(directory) == list(range(20_000))


def test_a_directory_filled_from_another_server_is_refused(directory: Path) -> None:
    first = FileSink(FileSettings(name="out", path=directory))
    first.origin = "7301"
    first.prepare()
    deliver(first, batch(directory, 0, 10), inserts(1, lsn=5))
    second = FileSink(FileSettings(name="out", path=directory))
    second.origin = "9999"
    with pytest.raises(SinkRefused, match="7301"):
        second.prepare()
