"""A name in the source that passes from one table to another, and a table that passes from one name to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.changes.batch import ChangeBatch, Relation
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.sinks.duckdb_files import Lake

A, B = 16400, 16390  # the log has tables of a segment ordered by oid, so the later table may come first


def table(name: str, oid: int, *, schema: str = "public", **more: str) -> Relation:
    return relation(schema, name, {"id": "int4", "v": "text", **more}, key=("id",), oid=oid)


def inserts(of: Relation, *rows: tuple[int, str], lsn: int, sequence: int = 1) -> ChangeBatch:
    return changes(of, [("insert", {"id": id, "v": v}) for id, v in rows], lsn=lsn, sequence=sequence)


def items(lake: Lake, name: str = "public.items") -> list[tuple[Any, ...]]:
    return lake.rows(f"select id, v from {name} order by all")


def tables(lake: Lake) -> list[str]:
    query = "select schema_name || '.' || table_name from duckdb_tables() where schema_name <> 'penstock' order by 1"
    return [name for (name,) in lake.rows(query)]


def test_a_table_created_again_begins_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "old"), (2, "old"), lsn=0x100))
    assert not caplog.records
    lake.deliver(inserts(table("items", B), (1, "new"), lsn=0x1100))
    lake.deliver(inserts(table("items", B), (3, "new"), lsn=0x2100))
    assert items(lake) == [(1, "new"), (3, "new")]
    assert ["another table in the source" in record.message for record in caplog.records] == [True]


def test_a_table_created_again_may_have_other_columns(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "old"), lsn=0x100))
    other = relation("public", "items", {"key": "text", "v": "int4"}, key=("key",), oid=B)
    lake.deliver(changes(other, [("insert", {"key": "k", "v": 7})], lsn=0x1100))
    assert lake.rows("select key, v from public.items") == [("k", 7)]


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_table_swapped_in_by_rename_replaces_the_rows(tmp_path: Path, in_one_batch: bool) -> None:
    lake = Lake(tmp_path)
    first = inserts(table("items", A), (1, "old"), (2, "old"), (3, "old"), lsn=0x100)
    deleted = changes(table("items", A), [("delete", None, {"id": id}) for id in (1, 2)], lsn=0x1100, sequence=1)
    swapped = inserts(table("items", B), (1, "new"), (2, "new"), lsn=0x1100, sequence=3)
    if in_one_batch:
        lake.deliver()
        lake.deliver(first, swapped, deleted)
    else:
        lake.deliver(first)
        lake.deliver(swapped, deleted)
    assert items(lake) == [(1, "new"), (2, "new")]
    lake.deliver(changes(table("items", B), [("delete", None, {"id": 1})], lsn=0x2100))
    assert items(lake) == [(2, "new")]


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_table_swapped_in_brings_what_came_under_its_former_name(tmp_path: Path, in_one_batch: bool) -> None:
    lake = Lake(tmp_path)
    before = [
        inserts(table("items", A), (1, "old"), (9, "old"), lsn=0x100),
        inserts(table("items_new", B), (1, "loaded"), (2, "loaded"), lsn=0x200),
    ]
    update = {"id": 2, "v": UNCHANGED, "more": "x"}
    after = changes(table("items", B, more="text"), [("update", update), ("insert", {"id": 3})], lsn=0x300)
    if in_one_batch:
        lake.deliver(after, *before)
    else:
        lake.deliver(*before)
        after.commit_lsn[:] = 0x1300
        lake.deliver(after)
    assert lake.rows("select id, v, more from public.items order by id") == [
        (1, "loaded", None),
        (2, "loaded", "x"),
        (3, None, None),
    ]
    assert tables(lake) == ["public.items", f"public.items__before_{A}"]
    assert items(lake, f"public.items__before_{A}") == [(1, "old"), (9, "old")]


def test_a_table_that_went_aside_has_its_rows_when_it_shows_up_under_another_name(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "old"), lsn=0x100))
    lake.deliver(inserts(table("items", B), (1, "new"), lsn=0x1100))
    lake.deliver(inserts(table("items_old", A), (2, "more"), lsn=0x2100))
    assert tables(lake) == ["public.items", "public.items_old"]
    assert (items(lake), items(lake, "public.items_old")) == ([(1, "new")], [(1, "old"), (2, "more")])


def test_a_renamed_table_takes_its_rows_along_and_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "a"), lsn=0x100))
    lake.deliver(inserts(table("goods", A, schema="shop"), (2, "b"), lsn=0x1100))
    assert (tables(lake), items(lake, "shop.goods")) == (["shop.goods"], [(1, "a"), (2, "b")])
    lake.deliver(inserts(table("items", A), (3, "c"), lsn=0x2100))
    assert (tables(lake), items(lake)) == (["public.items"], [(1, "a"), (2, "b"), (3, "c")])


def test_a_new_table_under_a_name_that_was_left_begins_empty(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "a"), lsn=0x100))
    lake.deliver(inserts(table("items_old", A), (2, "b"), lsn=0x1100), inserts(table("items", B), (1, "c"), lsn=0x1200))
    assert (items(lake), items(lake, "public.items_old")) == ([(1, "c")], [(1, "a"), (2, "b")])


def test_a_truncate_of_the_table_that_comes_in_is_its_own(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "old"), lsn=0x100))
    rows: list[tuple[Any, ...]] = [("insert", {"id": 1}), ("truncate",), ("insert", {"id": 2, "v": "new"})]
    lake.deliver(changes(table("items", B), rows, lsn=0x1200), inserts(table("items", A), (5, "late"), lsn=0x1100))
    assert items(lake) == [(2, "new")]


def test_a_file_without_oids_is_taken_over_with_its_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "a"), lsn=0x100))
    lake.execute("alter table penstock.tables drop column oid")
    lake.deliver(inserts(table("items", A), (2, "b"), lsn=0x1100))
    assert items(lake) == [(1, "a"), (2, "b")]
    lake.deliver(inserts(table("items", B), (3, "c"), lsn=0x2100))
    assert items(lake) == [(3, "c")]
