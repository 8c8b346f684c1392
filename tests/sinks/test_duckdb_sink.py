"""The DuckDB sink's file: whose it is, and what happens when DuckDB itself gives up."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from penstock.changes.batch import ChangeBatch
from penstock.errors import PenstockError, SinkRefused, SinkUnavailable
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake

USERS = relation("public", "users", id="int8", name="text", key=("id",))


def test_a_sink_under_a_new_name_is_refused_the_tables_that_it_filled_under_the_old_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada"})]))
    lake.sink = lake.named("warehouse")
    assert lake.sink.prepare() is None
    with pytest.raises(SinkRefused, match=r"public\.users of the target is filled by sink \"lake\""):
        lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada"})], lsn=0x1100))
    assert lake.rows("select count(*) from public.users") == [(1,)]
    assert lake.named("lake").prepare() == 0x1000


@contextmanager
def no_room() -> Iterator[None]:
    """Files of this process do not grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_was_full_in_the_middle_of_a_commit_is_tried_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada"})]))
    more = changes(USERS, [("insert", {"id": id, "name": "x" * 100}) for id in range(2, 500)], lsn=0x1100)
    with no_room():
        failures = [_failure(lake, more) for _ in range(2)]
    assert [type(failure) for failure in failures] == [SinkUnavailable] * 2
    lake.deliver(more)
    assert lake.rows("select count(*) from public.users") == [(499,)]


def _failure(lake: Lake, more: ChangeBatch) -> Exception:
    """Not pytest.raises: that may write while there is no room."""
    try:
        lake.deliver(more)
    except PenstockError as error:
        return error
    raise AssertionError("There was room.")


def test_an_engine_that_gave_up_is_replaced_by_a_fresh_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with pytest.raises(SinkUnavailable, match="cannot use"):
        _give_up(lake.sink)
    lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada"})]))
    assert lake.rows("from public.users") == [(1, "Ada")]


def _give_up(sink: DuckDBSink) -> None:
    with sink._file.opened() as connection:
        connection.close()  # from here on it refuses everything, as after a fatal error
        raise duckdb.FatalException("FATAL Error: database has been invalidated")


def test_a_file_filled_from_another_server_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.sink.origin = "7301"
    lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada"})]))
    stranger = lake.named("lake")
    stranger.origin = "9999"
    with pytest.raises(SinkRefused, match="7301"):
        stranger.prepare()
    again = lake.named("lake")
    again.origin = "7301"
    assert again.prepare() == 0x1000
