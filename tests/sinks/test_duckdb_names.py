"""Names that Postgres tells apart and DuckDB does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake


@pytest.mark.parametrize("kept", [True, False])
def test_a_column_may_be_renamed_to_other_capitals(tmp_path: Path, kept: bool) -> None:
    lake = Lake(tmp_path, on_drop="keep" if kept else "drop")
    before = relation("public", "t", id="int4", Name="text", key=("id",))
    after = relation("public", "t", id="int4", name="text", key=("id",))
    lake.deliver(changes(before, [("insert", {"id": 1, "Name": "a"})]))
    lake.deliver(changes(after, [("insert", {"id": 2, "name": "b"})], lsn=0x1100))
    lake.deliver(changes(before, [("update", {"id": 2, "Name": "c"})], lsn=0x2100))
    assert lake.rows("select id, name from public.t order by 1") == [(1, None), (2, "c")]
    columns = lake.rows("select column_name from information_schema.columns where table_name = 't' order by 1")
    assert [name for (name,) in columns] == (
        ["Name", "Name__before_2", "id", "name__before_1"] if kept else ["Name", "id"]
    )


def test_all_columns_may_be_renamed_to_other_capitals_at_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    before = relation("public", "t", {"A": "int4", "a_2": "int4"}, identity="f")
    after = relation("public", "t", {"a": "text", "A_2": "text"}, identity="f")
    lake.deliver(changes(before, [("insert", {"A": 1, "a_2": 2})]))
    lake.deliver(changes(after, [("insert", {"a": "x", "A_2": "y"})], lsn=0x1100))
    assert lake.rows('select a, "A_2" from public.t order by 1 nulls first') == [(None, None), ("x", "y")]


@pytest.mark.parametrize("schema", ["penstock", "Penstock"])
def test_a_schema_called_like_ours_stays_out_of_our_records(tmp_path: Path, schema: str) -> None:
    lake = Lake(tmp_path)
    table = relation(schema, "progress", sink="text", lsn="text", committed_at="timestamptz", key=("sink",))
    for number, lsn in enumerate(("FF/0", "FF/1")):
        lake.deliver(changes(table, [("update", {"sink": "lake", "lsn": lsn})], lsn=0x1000 * number + 0x100))
    assert lake.rows("select sink, lsn from penstock.progress") == [("lake", "0/2000")]
    assert lake.rows("select sink, lsn from penstock_2.progress") == [("lake", "FF/1")]


def test_a_name_that_is_another_in_duckdb_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake(tmp_path)
    small = relation("public", "users", {"id": "int4", "ID": "int4"}, key=("id",))
    large = relation("public", "Users", id="int4", key=("id",))
    for number in range(2):
        at = 0x1000 * number + 0x100
        lake.deliver(
            changes(small, [("insert", {"id": number})], lsn=at), changes(large, [("insert", {"id": number})], lsn=at)
        )
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "Column ID of public.users is called ID_2 in DuckDB, which does not tell capitals apart in names.",
        "Table public.Users is called public.Users_2 in DuckDB, which does not tell capitals apart in names.",
    ]
