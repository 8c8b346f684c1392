"""Imports into a directory of event files: what they are called, what is in them, and what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.changes.batch import ChangeBatch
from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.file import sink as file_progress
from penstock.sinks.file import sink as file_sink
from penstock.sinks.file.sink import FileSettings, FileSink
from penstock.sinks.staging import replace_durably
from penstock.testing.change_batches import changes, relation

USERS = relation("public", "users", id="int8", key=("id",))


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "events"


def sink(directory: Path, **settings: Any) -> FileSink:
    made = FileSink(FileSettings(name="out", path=directory, **settings))
    made.prepare()
    return made


def commit(sink: FileSink, batch: Batch, *some: ChangeBatch) -> None:
    sink.commit(batch, [sink.write(batch, iter(some))])


def stream(sink: FileSink, start: int, end: int, *ids: int) -> None:
    written = [changes(USERS, [("insert", {"id": id}) for id in ids], lsn=end - 1)] if ids else []
    commit(sink, Batch(0, LSN(start), LSN(end), "unused"), *written)


def part(sink: FileSink, phase: Any, *some: ChangeBatch, job: int = 1, **members: Any) -> None:
    commit(sink, Batch(-1, LSN(0), LSN(0x20), "unused", ImportPart(job, USERS, phase, **members)), *some)


def read(*ids: int, lsn: int = 0x5) -> ChangeBatch:
    return changes(USERS, [("read", {"id": id}) for id in ids], lsn=lsn)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def events(directory: Path) -> list[Any]:
    return [json.loads(line) for name in files(directory) for line in (directory / name).read_bytes().splitlines()]


def told(directory: Path) -> list[tuple[str, Any]]:
    return [(event["op"], (event["after"] or {}).get("id")) for event in events(directory) if event["op"] != "schema"]


def test_parts_stand_between_the_batches_that_they_were_committed_between(directory: Path) -> None:
    out = sink(directory)
    part(out, "begin")
    part(out, "rows", read(1), number=1)
    stream(out, 0x10, 0x20, 7)
    part(out, "rows", read(2), number=2)
    part(out, "changes", changes(USERS, [("insert", {"id": 3})], lsn=0x18), upto=LSN(0x30))
    part(out, "rows", read(4), number=3, replaces=True)
    stream(out, 0x20, 0x30, 8)
    assert files(directory) == [
        "0000000000000000-0000000000000000.00000001.jsonl",
        "0000000000000010-0000000000000020.jsonl",
        "0000000000000020-0000000000000020.00000002.jsonl",
        "0000000000000020-0000000000000020.00000003.jsonl",
        "0000000000000020-0000000000000020.00000004.jsonl",
        "0000000000000020-0000000000000030.jsonl",
    ]
    assert told(directory) == [
        ("read", 1), ("insert", 7), ("read", 2), ("insert", 3), ("read", 4), ("insert", 8),
    ]  # fmt: skip


def test_changes_of_an_import_come_with_their_own_lsn_though_the_sink_is_past_it(directory: Path) -> None:
    out = sink(directory)
    stream(out, 0, 0x20)
    part(out, "begin")
    part(out, "rows", read(1, lsn=0x8), number=1)
    part(out, "changes", changes(USERS, [("insert", {"id": 2})], lsn=0x10), upto=LSN(0x20))
    part(out, "end", upto=LSN(0x20))
    assert [(event["op"], event["lsn"]) for event in events(directory)] == [
        ("schema", "0/8"), ("read", "0/8"), ("insert", "0/10"),
    ]  # fmt: skip
    assert out.prepare() == LSN(0x20)


def test_parts_without_events_make_no_files(directory: Path) -> None:
    out = sink(directory)
    part(out, "begin")
    part(out, "rows", number=1)
    part(out, "changes", upto=LSN(0x20))
    part(out, "end", upto=LSN(0x20))
    assert files(directory) == []


@pytest.mark.parametrize("again", [True, False])
def test_a_table_is_emptied_first_if_readers_may_have_rows_of_it(directory: Path, again: bool) -> None:
    out = sink(directory)
    if not again:
        stream(out, 0, 0x20, 7)
    part(out, "begin", again=again)
    part(out, "rows", read(1), number=1)
    kept = told(directory) if again else told(directory)[1:]
    assert kept == [("truncate", None), ("read", 1)]
    assert [event["op"] for event in events(directory)].index("schema") == 0


def test_a_table_of_an_import_that_was_given_up_is_emptied_even_after_a_restart(directory: Path) -> None:
    out = sink(directory)
    part(out, "begin", job=1)
    part(out, "rows", read(1, 2), job=1, number=1)
    again = sink(directory)
    part(again, "begin", job=2)
    part(again, "rows", read(2), job=2, number=1)
    assert told(directory) == [("read", 1), ("read", 2), ("truncate", None), ("read", 2)]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("phase", ["begin", "rows", "changes"])
def test_a_crash_at_any_step_of_a_part_loses_nothing_and_repeats_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch, phase: str, step: int
) -> None:
    parts: dict[str, Any] = {
        "begin": lambda out: part(out, "begin", again=True),
        "rows": lambda out: part(out, "rows", read(1), number=1),
        "changes": lambda out: part(out, "changes", changes(USERS, [("insert", {"id": 2})], lsn=0x10), upto=LSN(0x20)),
    }
    out = sink(directory)
    calls = 0

    def crash_before_step(path: Path, chunks: Iterable[bytes | pa.Buffer]) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise Crash
        replace_durably(path, chunks)

    for name, commit_part in parts.items():
        if name == phase:
            with monkeypatch.context() as patch:
                for module in (file_sink, file_progress):
                    patch.setattr(module, "replace_durably", crash_before_step)
                with pytest.raises(Crash):
                    commit_part(out)
            out = FileSink(out.settings)
            out.prepare()
            stream(out, 0, 0x20)  # so that the part comes again at another position
        commit_part(out)
    assert told(directory) == [("truncate", None), ("read", 1), ("insert", 2)]
    assert [name.split(".")[1] for name in files(directory)] == ["00000001", "00000002", "00000003"]


def test_what_a_failed_part_left_is_removed_before_anything_else_is_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No restart: the import is tried again later, and the stream goes on meanwhile."""
    out = sink(directory)
    part(out, "begin")
    with monkeypatch.context() as patch:
        patch.setattr(file_sink, "write_progress", _full)
        with pytest.raises(SinkUnavailable, match="No space left"):
            part(out, "rows", read(1), number=1)
    stream(out, 0, 0x20, 7)
    part(out, "rows", read(1), number=1)
    assert told(directory) == [("insert", 7), ("read", 1)]


def _full(directory: Path, progress: file_progress.Progress) -> None:
    raise OSError(28, "No space left on device")


def test_a_progress_from_before_there_were_imports_is_understood(directory: Path) -> None:
    directory.mkdir()
    (directory / ".progress.json").write_text('{"lsn": "0/10", "announced": {}, "source": "7301"}')
    out = sink(directory)
    assert out.imported().ready == {}
    part(out, "begin")
    part(out, "rows", read(1), number=1)
    part(out, "end", upto=LSN(0x20))
    assert sink(directory).imported().ready[USERS.oid].lsn == LSN(0x20)
    assert files(directory) == ["0000000000000010-0000000000000010.00000001.jsonl"]


def test_the_pgsink_format_has_imports_as_well(directory: Path) -> None:
    out = sink(directory, format="pgsink")
    part(out, "begin", again=True)
    part(out, "rows", read(1), number=1)
    schema, truncate, row = events(directory)
    assert "schema" in schema
    assert (truncate["before"], truncate["after"]) == (None, None)
    assert (row["before"], row["after"]) == (None, {"id": "1"})
