from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.errors import UnrepresentableValue
from tests.end_to_end.mirrored import Mirrored

pytestmark = pytest.mark.spark

# Type, values as Postgres takes them, and what DuckDB shows of them as text.
EXTREMES: list[tuple[str, list[str], list[str]]] = [
    ("smallint", ["-32768", "32767"], ["-32768", "32767"]),
    ("integer", ["-2147483648", "2147483647"], ["-2147483648", "2147483647"]),
    ("bigint", ["-9223372036854775808", "9223372036854775807"], ["-9223372036854775808", "9223372036854775807"]),
    ("oid", ["0", "4294967295"], ["0", "4294967295"]),
    ("boolean", ["true", "false"], ["true", "false"]),
    ("numeric(38,10)", ["9999999999999999999999999999.9999999999", "-0.0000000001"],
     ["9999999999999999999999999999.9999999999", "-0.0000000001"]),
    ("numeric", ["NaN", "Infinity", "1e-300"], ["NaN", "Infinity", "0." + "0" * 299 + "1"]),
    ("real", ["3.4028235e38", "NaN", "-Infinity", "1e-45"], ["3.4028235e+38", "nan", "-inf", "1e-45"]),
    ("double precision", ["1.7976931348623157e308", "5e-324", "Infinity", "0.1"],
     ["1.7976931348623157e+308", "5e-324", "inf", "0.1"]),
    ("text", ["", " ", "a\tb\nc\\d\"e'f", "🐘" * 3], ["", " ", "a\tb\nc\\d\"e'f", "🐘" * 3]),
    ("varchar(3)", ["", "abc"], ["", "abc"]),
    ("char(5)", ["ab", ""], ["ab   ", "     "]),
    ("bytea", ["\\x", "\\x00ff5c"], ["", "\\x00\\xFF\\x5C"]),
    ("date", ["0001-01-01", "9999-12-31", "2024-02-29"], ["0001-01-01", "9999-12-31", "2024-02-29"]),
    ("time", ["00:00:00", "23:59:59.999999"], ["00:00:00", "23:59:59.999999"]),
    ("timestamp", ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 12:00:00.000001"],
     ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 12:00:00.000001"]),
    ("timestamptz", ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"],
     ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"]),
    ("interval", ["1 year 2 mons -3 days 04:05:06.7", "00:00:00"], ["1 year 2 months -3 days 04:05:06.7", "00:00:00"]),
    ("uuid", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
     ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    ("jsonb", ['{"a": [1, null, "x"]}', "null", '"text"'], ['{"a": [1, null, "x"]}', "null", '"text"']),
    ("inet", ["::1/128", "10.0.0.1/8"], ["::1", "10.0.0.1/8"]),
    ("int4range", ["empty", "[1,5)"], ["empty", "[1,5)"]),
    ("point", ["(1,-2.5)"], ["(1,-2.5)"]),
    ("tsvector", ["'a':1 'b':2"], ["'a':1 'b':2"]),
    ("bit varying", ["101", ""], ["101", ""]),
    ("money", ["-92233720368547758.08"], ["-$92,233,720,368,547,758.08"]),
    ("integer[]", ["{}", "{1,NULL,-3}"], ["[]", "[1, NULL, -3]"]),
    ("text[]", ['{"",NULL,"NULL","a,b"}'], ["['', NULL, 'NULL', 'a,b']"]),
    ("timestamptz[]", ["{2024-02-29 00:00:00+00}"], ["['2024-02-29 00:00:00+00']"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def mirrored(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirrored]:
    server = request.getfixturevalue("postgres18")
    pipeline = Mirrored(spark, server.create_database("extremes"), tmp_path_factory.mktemp("extremes"))
    tables = [f"create table t{n} (id int primary key, v {kind})" for n, (kind, _, _) in enumerate(EXTREMES)]
    pipeline.execute(*tables, "create table huge (id int primary key, v text, w int)")
    pipeline.init()
    for number, (_, values, _) in enumerate(EXTREMES):
        for place, value in enumerate([*values, None]):
            literal = "null" if value is None else "'" + value.replace("'", "''") + "'"
            pipeline.execute(f"insert into t{number} values ({place}, {literal})")
    pipeline.execute("insert into huge values (1, repeat('0123456789', 10000000), 1)", "update huge set w = 2")
    pipeline.sync()
    yield pipeline
    server.drop_database("extremes")


@pytest.mark.parametrize("number", range(len(EXTREMES)), ids=[kind for kind, _, _ in EXTREMES])
def test_extreme_values_of_every_type_arrive(mirrored: Mirrored, number: int) -> None:
    _, _, shown = EXTREMES[number]
    mirrored_values = [v for (v,) in mirrored.target(f"select v::varchar from t{number} order by id")]
    assert mirrored_values == [*shown, None]


def test_a_value_of_a_hundred_megabytes_arrives_whole(mirrored: Mirrored) -> None:
    ((length, digest, w),) = mirrored.target("select length(v), md5(v), w from huge")
    assert (length, w) == (100_000_000, 2)
    assert [(digest,)] == mirrored.source("select md5(v) from huge")
    insert, update = mirrored.events("huge")
    assert insert["after"]["v"] == "0123456789" * 10_000_000
    assert update["unchanged"] == ["v"]


ARRAYS = ["{1,2}", "{}", "{{1,2},{3,4}}", "[0:1]={1,2}", "{NULL,7}", "{{{1}}}"]


def test_arrays_of_any_shape_need_no_setting(spark: SparkSession, database: str, tmp_path: Path) -> None:
    mirrored = Mirrored(spark, database, tmp_path)
    mirrored.execute("create table grids (id int primary key, cells int[][], tags text[], day date)")
    mirrored.init()
    mirrored.execute("insert into grids values (100, '{1,2}', '{a,b}', '2024-01-01')")
    mirrored.sync()
    assert mirrored.target("select cells, tags from grids") == [([1, 2], ["a", "b"])]
    values = ", ".join(f"({n}, '{value}', '{{c}}', '2024-01-01')" for n, value in enumerate(ARRAYS))
    mirrored.execute(f"insert into grids values {values}")
    mirrored.sync()
    mirrored.execute("update grids set cells = '{9,NULL}' where id = 0", "delete from grids where id = 5")
    mirrored.sync()
    expected = ["{9,NULL}", *ARRAYS[1:5], "{1,2}"]
    assert mirrored.target("select cells from grids order by id") == [(value,) for value in expected]
    assert mirrored.target("select typeof(tags), typeof(day) from grids limit 1") == [("VARCHAR[]", "DATE")]


UNREPRESENTABLE = ["infinity", "2024-01-01 00:00:00", "290000-01-01 00:00:00"]


def test_a_value_that_the_sink_cannot_hold_stops_it_until_its_policy_says_otherwise(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    mirrored = Mirrored(spark, database, tmp_path)
    mirrored.execute("create table times (id int primary key, at timestamp)", "create table fine (id int primary key)")
    mirrored.init()
    values = ", ".join(f"({n}, '{value}')" for n, value in enumerate(UNREPRESENTABLE))
    mirrored.execute("insert into fine values (1)", f"insert into times values {values}")
    mirrored.capture()
    with pytest.raises(UnrepresentableValue, match=r"infinity.*|.*public\.times") as caught:
        mirrored.deliver()
    assert "times" in str(caught.value)
    assert len(mirrored.events("times")) == 3, "the other sink goes on"
    noted = mirrored.pipeline.state.sink("lake")
    assert noted is not None
    assert "Set `unrepresentable: {tables: {public.times: {at: text}}}` on the sink" in str(noted.error)
    mirrored.configure_lake(unrepresentable="null")
    mirrored.deliver()
    rows: list[tuple[Any, ...]] = mirrored.target('select id, "at"::varchar from times order by id')
    assert rows[0] == (0, None)
    assert rows[1] == (1, "2024-01-01 00:00:00")
    mirrored.execute("insert into times values (9, '-infinity')")
    mirrored.configure_lake(unrepresentable={"tables": {"times": {"at": "text"}}})
    mirrored.sync()
    assert mirrored.target('select id, "at" from times where id in (1, 9) order by id') == [
        (1, "2024-01-01 00:00:00"), (9, "-infinity"),
    ]  # fmt: skip
    assert mirrored.target("select count(*) from fine") == [(1,)]
