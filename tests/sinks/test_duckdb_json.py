"""json with half a surrogate pair, which Postgres keeps as it was written and DuckDB's JSON refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import UnrepresentableValue
from penstock.sinks.duckdb.types import duckdb_values
from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake

NOTES = relation("public", "notes", id="int8", body="json", tags="json[]", key=("id",))
HALF = r'"\ud800"'


def deliver(lake: Lake, body: str, tags: str | None = None) -> None:
    lake.deliver(changes(NOTES, [("insert", {"id": 1, "body": body, "tags": tags})], lsn=1))


def test_the_error_names_table_column_and_setting(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with pytest.raises(UnrepresentableValue, match=r'Column "body" of public\.notes \(json\) holds') as refused:
        deliver(lake, HALF)
    assert "DuckDB's JSON cannot represent" in refused.value.message
    assert "unrepresentable: {tables: {public.notes: {body: text}}}" in str(refused.value.advice)


@pytest.mark.parametrize(("word", "kept"), [("text", HALF), ("null", None)])
def test_the_setting_decides_what_becomes_of_it(tmp_path: Path, word: str, kept: str | None) -> None:
    settings: Any = {"tables": {"notes": {"body": word}}}
    lake = Lake(tmp_path, unrepresentable=settings)
    deliver(lake, HALF)
    assert lake.rows("select body from public.notes") == [(kept,)]


def test_an_array_with_one_becomes_text_like_other_arrays_that_are_no_lists(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    written = r'{1,"\"\\ud800\""}'
    deliver(lake, "{}", written)
    assert lake.rows("select tags from public.notes") == [(written,)]


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        (r'"\ud83d\ude00"', True), (r'"\uD83D\uDE00"', True), (r'"\\ud800"', True), (r'"\u0000 \ud7ff"', True),
        (r'"\udc00"', False), (r'"\ud800\ud800"', False), (r'"\\\ud800"', False), (r'{"\ud800": 1}', False),
        (r'"\ud83d\ude00\ude00"', False), ("{\n}", True),
    ],
)  # fmt: skip
def test_whole_pairs_are_json_and_halves_are_not(written: str, taken: bool) -> None:
    values = duckdb_values(pa.array([None, written]), NOTES.columns[1], "null", "public.notes")
    assert values.to_pylist() == [None, written if taken else None]
