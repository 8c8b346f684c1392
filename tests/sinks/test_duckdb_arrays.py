"""Array columns of a DuckDB file: lists, until an array comes that is none. Then the column is text, and nothing stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lsn import LSN
from penstock.sinks.contract import Merged
from penstock.sinks.duckdb.file import DuckDBFile
from penstock.sinks.duckdb.tables import Tables
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.settings import UnrepresentableSettings
from penstock.testing.change_batches import changes, column, relation
from tests.sinks.duckdb_files import Lake
from tests.sinks.test_duckdb_imports import Copy

# As Postgres writes them: NULL, empty, one dimension.
LISTS: dict[str, list[str | None]] = {
    "int4": [None, "{}", "{1,NULL,-3}"],
    "text": [None, "{}", r'{a,"b c","d,e","f\"g","h\\i","",NULL,"NULL","{}"}'],
    "bool": [None, "{}", "{t,NULL,f}"],
    "float8": [None, "{}", "{1,0.1,-0,1e+20,1e-05,NaN,Infinity}"],
    "numeric(10,2)": [None, "{}", "{1.50,NULL,-0.01}"],
    "date": [None, "{}", "{2024-02-29,0001-01-01}"],
    "timestamp": [None, "{}", '{"2024-02-29 12:00:00","2024-02-29 12:00:00.5"}'],
    "timestamptz": [None, "{}", '{"2024-02-29 12:00:00.000001+00",NULL}'],
    "uuid": [None, "{}", "{00000000-0000-0000-0000-000000000001}"],
    "bytea": [None, "{}", r'{"\\x00ff",NULL}'],
    "interval": [None, "{}", '{"1 year 2 mons -3 days","-1 days",04:05:06.5,00:00:00}'],
}
NO_LISTS = {
    "int4": "{{1,2},{3,4}}", "text": '{{a,"b c"}}', "bool": "[0:1]={t,f}", "float8": "{{0.1}}", "numeric(10,2)": "{{1.50}}",
    "date": "{infinity}", "timestamp": '{"0044-03-15 12:00:00 BC"}', "timestamptz": "{-infinity}",
    "uuid": "[-1:-1]={00000000-0000-0000-0000-000000000001}", "bytea": r'{{"\\x00"}}', "interval": '{{"1 day"}}',
}  # fmt: skip


@pytest.mark.parametrize("element", LISTS)
def test_an_array_column_is_text_from_the_first_array_that_is_no_list(tmp_path: Path, element: str) -> None:
    lake, table = Lake(tmp_path), relation("public", "t", id="int8", v=f"{element}[]", key=("id",))
    lists = LISTS[element]
    numbers = range(len(lists))
    lake.deliver(changes(table, [("insert", {"id": n, "v": lists[n]}) for n in numbers]))
    assert lake.rows("select typeof(v) from public.t limit 1")[0][0].endswith("[]")
    lake.deliver(changes(table, [("insert", {"id": 10, "v": NO_LISTS[element]})], lsn=0x1001))
    # Batches without such an array do not know of it, and bring lists.
    lake.deliver(changes(table, [("insert", {"id": 20 + n, "v": lists[n]}) for n in numbers], lsn=0x2001))
    rows = lake.rows("select v from public.t order by id")
    assert [value for (value,) in rows] == [*lists, NO_LISTS[element], *lists]
    assert lake.rows("select distinct typeof(v) from public.t") == [("VARCHAR",)]


def test_all_of_a_batch_finds_its_rows_in_a_column_that_becomes_text(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    keyed = relation("public", "keyed", k="int4[]", v="int4", key=("k",))
    bag = relation("public", "bag", v="int4[]", identity="f")
    lake.deliver(
        changes(keyed, [("insert", {"k": "{1}", "v": 1}), ("insert", {"k": "{2}", "v": 2})]),
        changes(bag, [("insert", {"v": "{1}"}), ("insert", {"v": "{1}"}), ("insert", {"v": "{2}"})], lsn=0x101),
    )
    lake.deliver(
        changes(keyed, [("insert", {"k": "{{3}}", "v": 3})], lsn=0x1001),
        changes(bag, [("insert", {"v": "{{3}}"})], lsn=0x1002),
    )
    lake.deliver(
        changes(keyed, [("update", {"k": "{1}", "v": 10}), ("delete", None, {"k": "{2}"})], lsn=0x2001),
        changes(bag, [("delete", None, {"v": "{1}"}), ("delete", None, {"v": "{{3}}"})], lsn=0x2002),
    )
    assert sorted(lake.rows("from public.keyed")) == [("{1}", 10), ("{{3}}", 3)]
    assert sorted(lake.rows("from public.bag")) == [("{1}",), ("{2}",)]


def test_a_new_column_whose_default_is_no_list_is_text(tmp_path: Path) -> None:
    lake, table = Lake(tmp_path), relation("public", "t", id="int8", key=("id",))
    lake.deliver(changes(table, [("insert", {"id": 1})]))
    file = DuckDBFile(lake.path, "lake", 1 << 30)
    with file.transaction() as connection:
        tables = Tables(connection, Owner(lake.sink.pipeline, "lake"), UnrepresentableSettings())
        assert tables.add_column(table.oid, column("v", "int4[]"), "{{1,2}}")
        assert tables.add_column(table.oid, column("w", "int4[]"), "{1,2}")
    assert lake.rows("select v, w from public.t") == [("{{1,2}}", [1, 2])]


def test_an_import_begins_with_lists_again_and_becomes_text_by_itself(tmp_path: Path) -> None:
    lake, grids = Lake(tmp_path), relation("public", "grids", {"id": "int4", "v": "int4[]"}, key=("id",), oid=16400)
    lake.deliver(changes(grids, [("insert", {"id": 1, "v": "{{1}}"})]))
    Copy(lake, grids, job=1).begin((1, "{1}"), (2, "{}")).end()
    assert lake.rows("select v from public.grids order by id") == [([1],), ([],)]
    copy = Copy(lake, grids, job=2).begin((1, "{1}"))
    copy.part("rows", changes(grids, [("read", {"id": 2, "v": "{{2}}"})]), number=2)
    copy.part("rows", changes(grids, [("read", {"id": 3, "v": "{3}"})]), number=3)
    copy.replay(changes(grids, [("update", {"id": 1, "v": "{7}"})], lsn=0x50), upto=0x60).end()
    assert lake.rows("select v from public.grids order by id") == [("{7}",), ("{{2}}",), ("{3}",)]
    lake.deliver(changes(grids, [("insert", {"id": 4, "v": "{4}"})], lsn=0x1001))
    assert lake.rows("select v from public.grids where id = 4") == [("{4}",)]


@pytest.mark.parametrize(("first", "second"), [("{1}", "{{2}}"), ("{{1}}", "{2}")])
def test_merged_tables_share_a_column_whichever_of_them_has_arrays_that_are_no_lists(
    tmp_path: Path, first: str, second: str
) -> None:
    lake = Lake(tmp_path)
    grids = relation(
        "public", "grids", {"id": "int4", "v": "int4[]", "origin": "text"}, key=("id", "origin"), oid=16400
    )
    for job, (origin, value) in enumerate({"a": first, "b": second}.items(), start=1):
        copy = Copy(lake, grids, job)
        merged = Merged(100 + job, ("origin", origin))
        copy.part("begin", merged=merged)
        copy.part("rows", changes(grids, [("read", {"id": 1, "v": value, "origin": origin})]), number=1, merged=merged)
        copy.part("end", upto=LSN(0x100), merged=merged)
    assert lake.rows("select origin, v from public.grids order by 1") == [("a", first), ("b", second)]


def test_the_other_columns_keep_their_types_and_a_warning_says_what_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(tmp_path)
    table = relation("public", "t", id="int8", v="int4[]", w="int4[]", day="date", key=("id",))
    row = {"id": 1, "v": "{1}", "w": "{1}", "day": "2024-01-01"}
    lake.deliver(changes(table, [("insert", row)]))
    lake.deliver(changes(table, [("insert", {**row, "id": 2, "v": "{{1}}"})], lsn=0x1001))
    assert lake.rows("select typeof(v), typeof(w), typeof(day) from public.t limit 1") == [
        ("VARCHAR", "INTEGER[]", "DATE")
    ]
    assert "Column v of public.t holds arrays that are no list in DuckDB" in caplog.text


def test_what_is_unrepresentable_is_text_or_null_where_the_config_says_so_and_nowhere_else(tmp_path: Path) -> None:
    lake = Lake(tmp_path, unrepresentable={"tables": {"days": {"closed": "text", "due": None}, "public.other": "text"}})
    days = relation("public", "days", id="int8", opened="date", closed="date", due="date", key=("id",))
    other = relation("public", "other", id="int8", day="date", key=("id",))
    lake.deliver(
        changes(days, [("insert", {"id": 1, "opened": "2024-01-01", "closed": "infinity", "due": "infinity"})]),
        changes(other, [("insert", {"id": 1, "day": "-infinity"})], lsn=0x101),
    )
    assert lake.rows("select opened::varchar, closed, due, typeof(due) from public.days") == [
        ("2024-01-01", "infinity", None, "DATE")
    ]
    assert lake.rows("select day from public.other") == [("-infinity",)]
