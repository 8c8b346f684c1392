"""Readers of a DuckDB file in other processes, while the sink writes to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.errors import SinkBusy, SinkUnavailable
from penstock.sinks.duckdb import file as duckdb_file
from penstock.sinks.duckdb.file import DuckDBFile, Rests, is_held_elsewhere
from penstock.testing.change_batches import changes, relation
from tests.docs.pages import ROOT, blocks
from tests.sinks.duckdb_files import Lake
from tests.sinks.other_process import OtherProcess

USERS = relation("public", "users", id="int8", name="text", key=("id",))
ADA = changes(USERS, [("insert", {"id": 1, "name": "Ada"})])


@pytest.mark.process
def test_a_commit_waits_for_a_reader_that_leaves_in_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    with OtherProcess(lake.path) as reader:
        assert reader.opened
        waited: list[float] = []

        def pause(seconds: float) -> None:
            waited.append(seconds)
            reader.leave()

        monkeypatch.setattr("penstock.sinks.duckdb.file.time.sleep", pause)
        lake.deliver(ADA)
    assert waited
    assert lake.rows("from public.users") == [(1, "Ada")]


def test_a_commit_waits_for_a_reader_of_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    lake.deliver(ADA)
    reader = duckdb.connect(str(lake.path), read_only=True)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        reader.close()

    monkeypatch.setattr("penstock.sinks.duckdb.file.time.sleep", pause)
    lake.deliver(changes(USERS, [("insert", {"id": 2, "name": "Bob"})]))
    assert waited
    assert lake.rows("from public.users order by id") == [(1, "Ada"), (2, "Bob")]


@pytest.mark.process
@pytest.mark.parametrize("page", ["README.md", "docs/sinks/duckdb.md"])
def test_the_reader_in_the_docs_comes_again_until_the_file_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], page: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("shop.duckdb") as shop:
        shop.execute("create schema public; create table public.orders as select 4711 as id")
    connect, refusals = duckdb.connect, list[duckdb.IOException]()

    def connect_beside_a_writer(*arguments: Any, **named: Any) -> duckdb.DuckDBPyConnection:
        """The writer leaves when it was in the reader's way."""
        try:
            return connect(*arguments, **named)
        except duckdb.IOException as refusal:
            refusals.append(refusal)
            writer.leave()
            raise

    with OtherProcess(Path("shop.duckdb"), reads=False) as writer:
        monkeypatch.setattr(duckdb, "connect", connect_beside_a_writer)
        exec(blocks("python", ROOT / page)[0].text, {})
    assert refusals
    assert capfd.readouterr().out


@pytest.mark.process
def test_a_reader_that_stays_is_named_and_the_batch_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    monkeypatch.setattr(duckdb_file, "_PATIENCE_SECONDS", 0.0)
    with OtherProcess(lake.path) as reader:
        with pytest.raises(SinkBusy, match=rf"PID {reader.pid}\)"):
            lake.deliver(ADA)
        reader.leave()
    lake.deliver(ADA)
    assert lake.rows("from public.users") == [(1, "Ada")]


def test_what_is_wrong_with_the_file_itself_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_file, "_PATIENCE_SECONDS", 3600.0)
    file = DuckDBFile(tmp_path / "nowhere" / "lake.duckdb", "lake", 1 << 30)
    with pytest.raises(SinkUnavailable) as problem, file.opened():
        pass
    assert not isinstance(problem.value, SinkBusy)


@pytest.mark.process
def test_nobody_gets_in_while_one_thread_comes_and_another_is_in_a_transaction(tmp_path: Path) -> None:
    """A process loses its locks on a file when it closes any descriptor of it, such as one that read the file's head."""
    file = DuckDBFile(tmp_path / "lake.duckdb", "lake", 1 << 30)
    with file.transaction() as connection:
        connection.execute("CREATE TABLE penstock_target.main.t (id INT)")
        with file.opened(), OtherProcess(file.path) as reader:
            assert not reader.opened
    with OtherProcess(file.path) as reader:
        assert reader.opened
    file.close()


@pytest.mark.process
def test_a_lock_is_told_from_none(tmp_path: Path) -> None:
    path = tmp_path / "lake.duckdb"
    assert not is_held_elsewhere(path, read_only=False)
    with duckdb.connect(path):
        pass
    with OtherProcess(path, reads=True):
        assert (is_held_elsewhere(path, read_only=True), is_held_elsewhere(path, read_only=False)) == (False, True)
    with OtherProcess(path, reads=False):
        assert (is_held_elsewhere(path, read_only=True), is_held_elsewhere(path, read_only=False)) == (True, True)


def test_threads_that_use_the_file_in_turns_let_it_go_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DuckDBFile(tmp_path / "lake.duckdb", "lake", 1 << 30)
    asked, came = threading.Event(), threading.Event()

    def open_for_long(rests: Rests) -> float:
        asked.set()
        return 3600.0

    monkeypatch.setattr(Rests, "open_for", property(open_for_long))

    def come() -> None:
        with file.opened():
            came.set()

    other = threading.Thread(target=come)
    with file.opened():
        other.start()
        assert asked.wait(30)
        assert not came.is_set()
    other.join()
    assert came.is_set()
    file.close()


def test_a_file_that_is_needed_all_the_time_has_a_rest_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rested = [1000.0], []
    monkeypatch.setattr("penstock.sinks.duckdb.file.time.monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        rested.append(clock[0])
        clock[0] += seconds

    monkeypatch.setattr("penstock.sinks.duckdb.file.time.sleep", sleep)
    rests = Rests()
    for _ in range(20):
        rests.before_opening()
        rests.opened()
        clock[0] += 0.1
        rests.closed()
    assert len(rested) == 6  # after every third, which is more than a quarter of a second
    rested.clear()
    for _ in range(20):
        rests.before_opening()
        rests.opened()
        clock[0] += 0.1
        rests.closed()
        clock[0] += 0.1  # others had the time
    assert rested == []
