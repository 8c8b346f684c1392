"""The DuckDB sink's file: whose it is, and what happens when DuckDB itself gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SinkRefused
from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake

USERS = relation("public", "users", id="int8", name="text", key=("id",))


def test_a_sink_under_a_new_name_is_refused_the_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(changes(USERS, [("insert", {"id": 1, "name": "Ada"})]))
    with pytest.raises(SinkRefused, match="filled by a sink called lake") as refused:
        lake.named("warehouse").prepare()
    assert "give it the old one back" in (refused.value.advice or "")
    assert lake.named("lake").prepare() == 0x1000
