"""Imports into a DuckDB file: the table that is filled, its name, and what it takes the place of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.duckdb import imports as duckdb_imports
from penstock.sinks.duckdb.changes import apply_to_shadow
from penstock.sinks.mirror.records import Records
from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake

A, B = 16400, 16390

Rows = list[tuple[int, str]]


def table(name: str, oid: int = A, *, schema: str = "public", **more: str) -> Relation:
    return relation(schema, name, {"id": "int4", "v": "text", **more}, key=("id",), oid=oid)


def inserts(of: Relation, *rows: tuple[int, str], lsn: int) -> ChangeBatch:
    return changes(of, [("insert", {"id": id, "v": v}) for id, v in rows], lsn=lsn)


class Copy:
    """An import into a lake."""

    def __init__(self, lake: Lake, of: Relation, job: int = 1) -> None:
        self.lake, self.of, self.job = lake, of, job

    def part(self, phase: Any, *some: ChangeBatch, **members: Any) -> None:
        batch = Batch(-1, LSN(0), LSN(0), str(self.lake.path.parent), ImportPart(self.job, self.of, phase, **members))
        self.lake.sink.commit(batch, [self.lake.sink.write(batch, iter(some))])

    def begin(self, *rows: tuple[int, str]) -> Copy:
        self.part("begin")
        self.part("rows", changes(self.of, [("read", {"id": id, "v": v}) for id, v in rows]), number=1)
        return self

    def replay(self, *some: ChangeBatch, upto: int) -> Copy:
        self.part("changes", *some, upto=LSN(upto))
        return self

    def end(self, upto: int = 0x100) -> None:
        self.part("end", upto=LSN(upto))


def items(lake: Lake, name: str = "public.items") -> list[tuple[Any, ...]]:
    return lake.rows(f"select id, v from {name} order by all")


def tables(lake: Lake) -> list[str]:
    query = "select schema_name || '.' || table_name from duckdb_tables() where schema_name <> 'penstock' order by 1"
    return [name for (name,) in lake.rows(query)]


def test_the_table_is_filled_beside_its_place_and_then_put_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    copy = Copy(lake, table("items"), job=12).begin((1, "a"))
    assert tables(lake) == ["public.items__import_12"]
    copy.end()
    assert tables(lake) == ["public.items"]
    assert lake.rows("select source_schema, source_table, target_table, oid from penstock.tables") == [
        ("public", "items", "items", A)
    ]
    assert (
        lake.rows("select * from penstock.imports_under_way") == lake.rows("select * from penstock.import_parts") == []
    )


def test_a_file_that_was_not_closed_has_it_all_the_same(tmp_path: Path) -> None:
    """DuckDB's log, not its file, holds the drop, the rename and the rows; replaying it comes to the same."""
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    copy = Copy(lake, table("items", more="text"), job=2)
    copy.begin(*((id, "new") for id in range(3000)))
    copy.replay(changes(copy.of, [("delete", None, {"id": 5}), ("update", {"id": 6, "v": "x"})], lsn=0x50), upto=0x60)
    copy.end()
    assert Path(f"{lake.path}.wal").exists()
    assert lake.rows("select v, count(*) from public.items group by all order by all") == [("new", 2998), ("x", 1)]
    lake.sink.close()
    assert lake.rows("select v, count(*) from public.items group by all order by all") == [("new", 2998), ("x", 1)]


def _put_nowhere(records: Records, *_: object) -> None:
    records._execute("INSERT INTO penstock_target.penstock.nowhere VALUES (1)", [])


def test_an_end_that_fails_leaves_the_table_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    copy = Copy(lake, table("items")).begin((1, "new"))
    with monkeypatch.context() as patch:
        patch.setattr(Records, "put_imports", _put_nowhere)
        with pytest.raises(SinkRefused):
            copy.end()
    assert items(lake) == [(1, "old")]
    copy.end()
    assert items(lake) == [(1, "new")]


def test_the_stream_does_not_touch_what_is_being_filled(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    copy = Copy(lake, table("items")).begin((1, "new"))
    lake.deliver(changes(table("items", more="text"), [("truncate",), ("insert", {"id": 9, "v": "old"})], lsn=0x1100))
    assert items(lake) == [(9, "old")]
    assert lake.rows("from public.items__import_1") == [(1, "new")]
    copy.end()
    assert items(lake) == [(1, "new")]


def test_a_source_table_called_like_the_one_that_is_being_filled_stays_apart(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    copy = Copy(lake, table("items")).begin((1, "new"))
    lake.deliver(inserts(table("Items__Import_1", B), (7, "other"), lsn=0x100))
    copy.end()
    assert tables(lake) == ["public.Items__Import_1_2", "public.items"]
    assert (items(lake), items(lake, 'public."Items__Import_1_2"')) == ([(1, "new")], [(7, "other")])


def test_a_table_of_somebody_else_is_not_used_for_filling(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.execute("create table main.x (i int); create schema public; create table public.ITEMS__import_1 (i int)")
    Copy(lake, table("items")).begin((1, "a")).end()
    assert tables(lake) == ["main.x", "public.ITEMS__import_1", "public.items"]


@pytest.mark.parametrize(
    "theirs", ["create table public.Items as select 42 as id", "create view public.items as select 42"]
)
def test_a_table_of_somebody_else_is_never_replaced(tmp_path: Path, theirs: str) -> None:
    lake = Lake(tmp_path)
    lake.execute(f"create schema public; {theirs}")
    with pytest.raises(SinkRefused, match="did not come from the source") as refused:
        Copy(lake, table("items")).begin()
    assert "ove it away" in (refused.value.advice or "")
    assert lake.rows("from public.items") == [(42,)]


def test_a_table_of_somebody_else_that_came_meanwhile_is_never_replaced(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    copy = Copy(lake, table("items")).begin((1, "a"))
    lake.execute("create table public.items as select 42 as id")
    with pytest.raises(SinkRefused, match=r"public\.items that did not come from the source"):
        copy.end()
    lake.execute("alter table public.items rename to mine")
    copy.end()
    assert (items(lake), lake.rows("from public.mine")) == ([(1, "a")], [(42,)])


def test_a_table_that_was_created_again_is_replaced_by_the_import_of_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "old"), lsn=0x100))
    Copy(lake, table("items", B)).begin((2, "new")).end()
    aside = f"public.items__before_{A}"
    assert (tables(lake), items(lake), items(lake, aside)) == (["public.items", aside], [(2, "new")], [(1, "old")])
    assert ["another table in the source" in record.message for record in caplog.records] == [True]
    lake.deliver(changes(table("items", B), [("delete", None, {"id": 2})], lsn=0x1100))
    assert items(lake) == []


def test_a_table_made_anew_keeps_its_name_while_the_stream_still_tells_of_the_former_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "old"), lsn=0x100))
    Copy(lake, table("items", B)).begin((2, "new")).end(0x2800)
    lake.deliver(inserts(table("items", A), (3, "late"), lsn=0x1100))
    aside = f"public.items__before_{A}"
    assert (items(lake), items(lake, aside)) == ([(2, "new")], [(1, "old"), (3, "late")])
    lake.deliver(inserts(table("items_old", A), (4, "later"), lsn=0x2100))
    lake.deliver(inserts(table("items", B), (5, "more"), lsn=0x3100))
    assert tables(lake) == ["public.items", "public.items_old"]
    assert (items(lake), len(items(lake, "public.items_old"))) == ([(2, "new"), (5, "more")], 3)


def test_a_table_that_was_renamed_before_its_import_leaves_nothing_under_the_old_name(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    Copy(lake, table("goods")).begin((1, "new")).end()
    assert (tables(lake), items(lake, "public.goods")) == (["public.goods"], [(1, "new")])


@pytest.mark.parametrize("schema", ["public", "shop"])
def test_a_table_that_is_renamed_while_it_is_copied_comes_under_its_new_name(tmp_path: Path, schema: str) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    renamed = table("goods", schema=schema)
    copy = Copy(lake, table("items")).begin((1, "a"), (2, "b"))
    copy.replay(
        inserts(renamed, (4, "d"), lsn=0x70),
        changes(table("items"), [("delete", None, {"id": 1}), ("insert", {"id": 3, "v": "c"})], lsn=0x60),
        upto=0x80,
    )
    copy.part("rows", changes(table("items"), [("read", {"id": 2, "v": "B"})]), number=2, replaces=True)
    copy.end()
    assert (tables(lake), items(lake, f"{schema}.goods")) == ([f"{schema}.goods"], [(2, "B"), (3, "c"), (4, "d")])
    lake.deliver(changes(renamed, [("delete", None, {"id": 2})], lsn=0x1100))
    assert items(lake, f"{schema}.goods") == [(3, "c"), (4, "d")]


def test_two_tables_that_change_places_are_imported_to_their_places(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items", A), (1, "a"), lsn=0x100), inserts(table("spare", B), (2, "b"), lsn=0x110))
    Copy(lake, table("items", B), job=1).begin((2, "b")).end()
    Copy(lake, table("spare", A), job=2).begin((1, "a")).end()
    assert (tables(lake), items(lake), items(lake, "public.spare")) == (
        ["public.items", "public.spare"], [(2, "b")], [(1, "a")],
    )  # fmt: skip


def test_names_that_differ_in_capitals_only_are_two_tables(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake(tmp_path)
    small, large = Copy(lake, table("items", A), job=1), Copy(lake, table("Items", B), job=2)
    small.begin((1, "small"))
    large.begin((1, "large"))
    small.end()
    large.end()
    Copy(lake, table("Items", B), job=3).begin((2, "large")).end()
    assert (items(lake), items(lake, 'public."Items_2"')) == ([(1, "small")], [(2, "large")])
    assert [record.message for record in caplog.records] == [
        "Table public.Items is called public.Items_2 in DuckDB, which does not tell capitals apart in names."
    ]


def test_columns_that_come_and_go_while_the_table_is_copied_do_so_in_its_new_place_only(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    copy = Copy(lake, table("items")).begin((1, "1"), (2, "2"))
    wider = relation("public", "items", id="int4", v="int8", more="text", key=("id",), oid=A)
    copy.replay(changes(wider, [("update", {"id": 2, "v": 22, "more": "x"})], lsn=0x60), upto=0x70)
    narrow = relation("public", "items", id="int4", more="text", key=("id",), oid=A)
    copy.replay(changes(narrow, [("insert", {"id": 3, "more": "y"})], lsn=0x80), upto=0x90)
    assert items(lake) == [(1, "old")]
    copy.end()
    assert lake.rows("from public.items order by id") == [(1, None), (2, "x"), (3, "y")]


def test_a_table_without_columns_is_imported_as_nothing_until_it_has_some(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bare = relation("public", "bare", oid=A)
    copy = Copy(lake, bare)
    copy.part("begin")
    copy.part("rows", changes(bare, [("read", {}), ("read", {})]), number=1)
    copy.end()
    assert lake.rows("select oid, job, lsn from penstock.imports") == [(A, 1, "0/100")]
    grown = Copy(lake, bare, job=2)
    grown.part("begin")
    wider = relation("public", "bare", id="int4", key=("id",), oid=A)
    grown.replay(changes(wider, [("insert", {"id": 1})], lsn=0x60), upto=0x70).end()
    assert lake.rows("from public.bare") == [(1,)]


def test_the_table_of_an_abandoned_import_leaves_the_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    Copy(lake, table("items"), job=1).begin((1, "a"))
    Copy(lake, table("items"), job=2).begin((2, "b"))
    assert tables(lake) == ["public.items__import_2"]
    lake.sink.subscription = "another"
    Copy(lake, table("goods", B), job=1).begin((3, "c"))
    assert tables(lake) == ["public.goods__import_1"]


def test_a_file_that_was_replaced_while_a_table_was_copied_is_noticed(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.deliver(inserts(table("items"), (1, "old"), lsn=0x100))
    copy = Copy(lake, table("items")).begin((1, "a"))
    lake.sink.close()
    lake.path.unlink()
    with pytest.raises(SinkUnavailable, match="it was replaced or set back while we were running"):
        copy.end()


def test_a_file_that_only_imports_filled_belongs_to_its_source(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.sink.origin = "7301"
    copy = Copy(lake, table("items")).begin((1, "a"))
    for ended in (False, True):
        if ended:
            copy.end()
        stranger = lake.named("lake")
        stranger.origin = "9999"
        with pytest.raises(SinkRefused, match="7301"):
            stranger.prepare()
    again = lake.named("lake")
    again.origin = "7301"
    assert again.prepare() is None


def test_rows_are_cast_as_in_the_stream(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    typed = relation(
        "public", "typed", id="int4", price="numeric(10,2)", tags="text[]", extra="jsonb", key=("id",), oid=A
    )
    row = {"id": 1, "price": "12.50", "tags": "{a,b}", "extra": '{"x": 1}'}
    copy = Copy(lake, typed)
    copy.part("begin")
    copy.part("rows", changes(typed, [("read", row)]), number=1)
    copy.end()
    with duckdb.connect(lake.path, read_only=True) as connection:
        found = connection.execute(
            "select typeof(price), price::varchar, tags, extra->>'x' from public.typed"
        ).fetchall()
    assert found == [("DECIMAL(10,2)", "12.50", ["a", "b"], "1")]


def test_a_batch_is_committed_while_a_part_of_an_import_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that moves the position on: the import's transaction began before, and still sees the old one."""
    lake = Lake(tmp_path)
    orders = table("orders", B)
    lake.deliver(inserts(orders, (1, "before"), lsn=0x10))
    copy = Copy(lake, table("items"))
    seen: list[bool] = []

    def with_a_batch_meanwhile(*arguments: Any) -> None:
        apply_to_shadow(*arguments)
        if not seen:
            seen.append(True)
            lake.deliver(inserts(orders, (2, "meanwhile"), lsn=0x1010))

    monkeypatch.setattr(duckdb_imports, "apply_to_shadow", with_a_batch_meanwhile)
    copy.begin((1, "a"), (2, "b"))
    copy.end()
    assert (items(lake), items(lake, "public.orders")) == ([(1, "a"), (2, "b")], [(1, "before"), (2, "meanwhile")])
    lake.deliver(inserts(orders, (3, "after"), lsn=0x2010))
    assert items(lake, "public.orders")[-1] == (3, "after")


def test_a_file_is_made_ready_before_two_threads_write_to_it(tmp_path: Path) -> None:
    """Two transactions that make the same table at once conflict."""
    lake = Lake(tmp_path)
    lake.sink.prepare()
    assert {"imports", "import_parts", "imports_under_way", "progress", "tables"} == {
        name for (name,) in lake.rows("select table_name from duckdb_tables() where schema_name = 'penstock'")
    }


def test_an_insert_with_the_key_of_a_row_that_an_import_kept_replaces_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path, existing_rows="keep")
    lake.execute("create schema public; create table public.items (id int, v text, note text)")
    lake.execute("insert into public.items values (1, 'theirs', 'a'), (2, 'theirs', 'b')")
    Copy(lake, table("items")).begin((2, "ours")).end()
    lake.deliver(inserts(table("items"), (1, "new"), (3, "new"), lsn=0x300))
    assert lake.rows("select id, v, note from public.items order by id") == [
        (1, "new", "a"), (2, "ours", "b"), (3, "new", None),
    ]  # fmt: skip
