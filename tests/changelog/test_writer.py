from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.clustering import Clusterer
from penstock.changelog.log import ChangeLog
from penstock.changelog.runs import chunk
from penstock.changelog.writer import LogWriter
from penstock.errors import DecodeError, LogError, LogFull
from penstock.lsn import LSN
from penstock.storage import Directory
from penstock.testing import scripted_stream as script
from penstock.testing.conditions import wait_until
from tests.changelog.log_scripts import DESCRIBE, START, LogScript, rows_of


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    found = ChangeLog(str(tmp_path / "log"))
    found.directory.create()
    return found


@pytest.fixture
def writer(log: ChangeLog) -> Iterator[LogWriter]:
    made = LogWriter(log, Clusterer(LSN(START), DESCRIBE, 1 << 20), 0)
    yield made
    made.close()


def scripted_transaction() -> LogScript:
    scripted = LogScript()
    scripted.transaction([("insert", 0, "x"), ("delete", 1, "")], xid=1)
    return scripted


def test_what_is_durable_is_on_disk(log: ChangeLog, writer: LogWriter) -> None:
    scripted = scripted_transaction()
    assert writer.durable == writer.seen == START
    writer.hand_over([chunk(scripted.stream.messages)], flush=True)
    assert writer.wait_idle(30)
    assert writer.durable == writer.seen == scripted.stream.end == log.contents().end
    assert writer.bytes == log.contents().bytes
    assert [row for rows in rows_of(log) for row in rows] == scripted.rows


def test_half_a_transaction_is_not_durable(log: ChangeLog, writer: LogWriter) -> None:
    scripted = scripted_transaction()
    writer.hand_over([chunk(scripted.stream.messages[:-1])], flush=True)
    assert writer.wait_idle(30)
    assert writer.in_transaction
    assert (writer.durable, log.contents().end) == (START, None)


def test_without_a_flush_small_transactions_wait_for_company(log: ChangeLog, writer: LogWriter) -> None:
    scripted = scripted_transaction()
    writer.hand_over([chunk(scripted.stream.messages)], flush=False)
    assert writer.wait_idle(30)
    assert (writer.unflushed, writer.durable, writer.seen) == (True, START, START)
    writer.hand_over([], flush=True)
    assert (writer.wait_idle(30), writer.unflushed) == (True, False)
    assert writer.durable == writer.seen == scripted.stream.end


def test_an_error_of_the_thread_is_raised_where_the_writer_is_used(writer: LogWriter) -> None:
    writer.hand_over([chunk([script.xlog_data(b"?")])], flush=True)
    with pytest.raises(DecodeError, match="unknown kind"):
        writer.wait_idle(30)
    with pytest.raises(DecodeError, match="unknown kind"):
        _ = writer.idle


def test_a_directory_that_vanished_is_an_error(log: ChangeLog, writer: LogWriter) -> None:
    log.directory.delete_all()
    writer.hand_over([chunk(scripted_transaction().stream.messages)], flush=True)
    with pytest.raises(LogError, match="No such file"):
        writer.wait_idle(30)


def test_a_full_disk_is_waited_out(log: ChangeLog, writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    write, tries = Directory.write, []

    def on_a_full_disk(directory: Directory, name: str, content: Any, written: Any = None) -> int:
        tries.append(name)
        if len(tries) > 2:
            return write(directory, name, content, written)

        def no_room(_stream: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        return write(directory, name, no_room, written)

    monkeypatch.setattr(Directory, "write", on_a_full_disk)
    scripted = scripted_transaction()
    writer.hand_over([chunk(scripted.stream.messages)], flush=True)
    wait_until(lambda: writer.idle, what="the writer to find room")
    assert writer.waits_because is None
    assert len(tries) == 3
    assert len(set(tries)) == 1
    assert log.contents().end == scripted.stream.end
    assert [path.name for path in Path(log.directory.path).iterdir()] == tries[:1]


def test_closing_while_the_disk_is_full_does_not_wait_for_room(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def full(_directory: Directory, name: str, _content: Any, _written: Any = None) -> int:
        tries.append(name)
        raise LogFull("No space left.")

    monkeypatch.setattr(Directory, "write", full)
    writer = LogWriter(log, Clusterer(LSN(START), DESCRIBE, 1 << 20), 0)
    writer.hand_over([chunk(scripted_transaction().stream.messages)], flush=True)
    wait_until(lambda: writer.waits_because, what="the first try")
    assert str(writer.waits_because) == "No space left."
    writer.close()
    assert writer.durable == START
