"""The copy of a DuckDB file for those who read it all the time."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from penstock.changes.batch import ChangeBatch
from penstock.config.load import parse_config
from penstock.errors import ConfigError, SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.duckdb.sink import DuckDBSettings
from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake
from tests.sinks.other_process import OtherProcess

USERS = relation("public", "users", id="int8", name="text", key=("id",))


def user(number: int) -> ChangeBatch:
    return changes(USERS, [("insert", {"id": number, "name": "Ada"})], lsn=0x1000 * (number - 1) + 1)


def lake_with_copy(directory: Path, every: str) -> Lake:
    return Lake(directory, snapshot={"path": directory / "copy.duckdb", "every": every})


def ids(copy: Path) -> list[int]:
    with duckdb.connect(copy, read_only=True) as connection:
        return [row[0] for row in connection.execute("select id from public.users order by 1").fetchall()]


def test_the_copy_is_renewed_when_it_is_due_and_when_the_sink_is_closed(tmp_path: Path) -> None:
    lake, copy = lake_with_copy(tmp_path, "1h"), tmp_path / "copy.duckdb"
    lake.deliver(user(1))
    lake.deliver(user(2))
    assert ids(copy) == [1]
    os.utime(copy, (0, 0))
    lake.deliver(user(3))
    assert ids(copy) == [1, 2, 3]
    lake.deliver(user(4))
    lake.sink.close()
    assert ids(copy) == [1, 2, 3, 4]
    with duckdb.connect(copy, read_only=True) as connection:
        assert connection.execute("select lsn from penstock.progress").fetchall() == [("0/4000",)]


@pytest.mark.process
def test_a_reader_that_never_leaves_the_copy_is_in_nobodys_way(tmp_path: Path) -> None:
    lake, copy = lake_with_copy(tmp_path, "0s"), tmp_path / "copy.duckdb"
    lake.deliver(user(1))
    with OtherProcess(copy) as reader:
        assert reader.opened
        lake.deliver(user(2))
        lake.deliver(user(3))
        assert ids(copy) == [1, 2, 3]
    lake.sink.close()


def test_positions_alone_make_no_new_copy(tmp_path: Path) -> None:
    lake, copy = lake_with_copy(tmp_path, "0s"), tmp_path / "copy.duckdb"
    lake.deliver(user(1))
    before = copy.stat().st_ino
    lake.sink.commit(Batch(1, LSN(0x1000), LSN(0x2000), str(tmp_path / "staging")), [])
    assert copy.stat().st_ino == before
    lake.sink.close()


def test_a_copy_that_cannot_be_made_fails_no_batch_and_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake, copy = lake_with_copy(tmp_path, "0s"), tmp_path / "copy.duckdb"
    lake.deliver(user(1))

    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", full)
        lake.deliver(user(2))
    assert "could not be renewed, and stays as it was" in caplog.text
    assert (ids(copy), lake.rows("select count(*) from public.users")) == ([1], [(2,)])
    lake.sink.close()
    assert ids(copy) == [1, 2]


def test_the_place_of_the_copy_is_checked(tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match=r"the directory of .*nowhere/copy\.duckdb does not exist"):
        Lake(tmp_path, snapshot={"path": tmp_path / "nowhere" / "copy.duckdb"})


def test_the_copy_has_a_path_of_its_own_beside_the_config_file(tmp_path: Path) -> None:
    text = (
        "name: shop\nsource: {{url: 'postgresql://ada@db/shop'}}\n"
        "sinks:\n  - {{name: a, type: duckdb, path: x, snapshot: {{path: {}}}}}\n"
    )
    with pytest.raises(ConfigError, match=r"snapshot.path is the sink's own path; give the copy another"):
        parse_config(text.format("./x"))
    (settings,) = parse_config(text.format("copy")).below(tmp_path).sinks
    assert isinstance(settings, DuckDBSettings)
    assert settings.snapshot is not None
    assert (settings.snapshot.path, settings.snapshot.every) == (tmp_path / "copy", 60.0)


def test_a_file_that_is_no_copy_of_the_sink_is_never_replaced(tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    with duckdb.connect(copy) as connection:
        connection.execute("create table precious as select 1 as id")
    with pytest.raises(SinkRefused, match=r"copy\.duckdb is not an earlier copy by this sink") as refused:
        lake_with_copy(tmp_path, "0s")
    assert "snapshot.path" in str(refused.value.advice)
    copy.write_text("name: shop")
    with pytest.raises(SinkRefused, match="is not a DuckDB file"):
        lake_with_copy(tmp_path, "0s")
    assert copy.read_text() == "name: shop"


def test_a_file_that_took_the_copys_place_meanwhile_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake, copy = lake_with_copy(tmp_path, "0s"), tmp_path / "copy.duckdb"
    lake.deliver(user(1))
    copy.unlink()
    with duckdb.connect(copy) as connection:
        connection.execute("create schema public; create table public.users as select 7 as id")
    lake.deliver(user(2))
    lake.sink.close()
    assert ids(copy) == [7]
    assert "is not an earlier copy by this sink" in caplog.text
    assert lake.rows("select count(*) from public.users") == [(2,)]


def test_the_copy_of_another_sink_or_pipeline_is_not_ours(tmp_path: Path) -> None:
    lake = lake_with_copy(tmp_path, "0s")
    lake.deliver(user(1))
    lake.sink.close()
    other = lake.named("other")
    with pytest.raises(SinkRefused, match="is not an earlier copy by this sink"):
        other.check()
    again = lake.named("lake")
    again.check()  # its own copy, made by an earlier process
    again.pipeline = "elsewhere"
    with pytest.raises(SinkRefused, match='of pipeline "elsewhere"'):
        again.check()


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.touch()
    lake = lake_with_copy(tmp_path, "0s")
    lake.deliver(user(1))
    assert ids(copy) == [1]
    lake.sink.close()
