from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from penstock.changelog.log import ChangeLog
from penstock.lsn import LSN
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import FIRST_COMMIT_TIME, UNCHANGED, relation
from tests.changelog.log_scripts import START, LogScript, write_log

pytestmark = pytest.mark.spark

Batches = list[list[Row]]


def segments(directory: Path, scripted: LogScript) -> ChangeLog:
    """A log with each transaction in a segment of its own."""
    ends = [at + 1 for at, message in enumerate(scripted.stream.messages) if message[25:26] == b"C"]
    return write_log(directory, scripted.stream.messages, 1 << 20, cuts=ends)


def inserts(*tables: int) -> LogScript:
    scripted = LogScript()
    for xid, table in enumerate(tables, 1):
        scripted.transaction([("insert", table, "")], xid)
    return scripted


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[[], DataStreamReader]:
    return lambda: spark.readStream.format("penstock").option("path", str(tmp_path / "log"))


def batches_of(frame: DataFrame, checkpoint: Path, collected: Batches) -> StreamingQuery:
    """Everything that is there now, batch by batch."""
    query = (
        frame.writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda rows, _number: collected.append(rows.collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_units_say_what_each_segment_holds_of_each_table(
    stream: Callable[[], DataStreamReader], tmp_path: Path
) -> None:
    scripted = LogScript()
    scripted.transaction([("insert", 0, ""), ("insert", 0, ""), ("insert", 1, ""), ("message", 0, "")], xid=1)
    log = segments(tmp_path / "log", scripted)
    collected: Batches = []
    batches_of(stream().load(), tmp_path / "checkpoint", collected)
    ((name,),) = [stretch.segments for stretch in log.contents().stretches]
    (rows,) = collected
    assert {(row.table, row.rows) for row in rows} == {("public.t0", 2), ("public.t1", 1), (".", 1)}
    assert {(row.segment, row.bucket, row.buckets) for row in rows} == {(str(name), 0, 1)}
    assert {(row.batch_start, row.batch_end) for row in rows} == {("0/0", str(scripted.stream.end))}


def test_a_batch_holds_no_more_than_its_size_and_a_restart_goes_on(
    stream: Callable[[], DataStreamReader], tmp_path: Path
) -> None:
    scripted = inserts(0, 0, 0)
    log = segments(tmp_path / "log", scripted)
    collected: Batches = []
    frame = stream().option("maxBytesPerBatch", 1).load()
    query = batches_of(frame, tmp_path / "checkpoint", collected)
    ends = [stretch.end for stretch in log.contents().stretches]
    assert len(ends) == 3
    assert [row.batch_end for rows in collected for row in rows] == [str(end) for end in ends]
    offsets = [progress["sources"][0]["endOffset"] for progress in query.recentProgress]
    assert [LSN.parse(json.loads(offset)["lsn"]) for offset in offsets] == ends

    scripted.transaction([("insert", 1, "")], xid=9)
    segments(tmp_path / "log", scripted)
    again: Batches = []
    batches_of(frame, tmp_path / "checkpoint", again)
    assert [(row.table, row.batch_start) for rows in again for row in rows] == [("public.t1", str(ends[-1]))]


def test_without_a_limit_one_batch_takes_all_but_never_crosses_a_schema_change(
    stream: Callable[[], DataStreamReader], tmp_path: Path
) -> None:
    scripted = inserts(0, 0)
    scripted.redefine(0)
    scripted.transaction([("insert", 0, "")], xid=3)
    scripted.transaction([("insert", 0, "")], xid=4)
    segments(tmp_path / "log", scripted)
    collected: Batches = []
    batches_of(stream().load(), tmp_path / "checkpoint", collected)
    assert [len(rows) for rows in collected] == [2, 2]


def test_a_stream_may_start_at_an_lsn(stream: Callable[[], DataStreamReader], tmp_path: Path) -> None:
    log = segments(tmp_path / "log", inserts(0, 1, 2))
    ends = [stretch.end for stretch in log.contents().stretches]
    collected: Batches = []
    batches_of(stream().option("startingLsn", str(ends[1])).load(), tmp_path / "checkpoint", collected)
    assert [row.table for rows in collected for row in rows] == ["public.t2"]


TYPES = {
    "id": "int8", "small": "int2", "flag": "bool", "price": "numeric(10,2)", "ratio": "float8", "name": "text",
    "day": "date", "at": "timestamptz", "code": "uuid", "raw": "bytea", "doc": "jsonb", "numbers": "int4[]",
    "Odd name": "varchar(9)",
}  # fmt: skip
GOODS = relation("public", "goods", TYPES, key=("id",), oid=5)
VALUES = {
    "id": "9223372036854775807", "small": "-32768", "flag": "t", "price": "-12345678.90", "ratio": "0.1", "name": "ünï",
    "day": "2024-02-29", "at": "2024-02-29 12:00:00.000001+00", "code": "00000000-0000-0000-0000-00000000000a",
    "raw": "\\x00ff", "doc": '{"a": [1]}', "numbers": "{1,NULL,-3}", "Odd name": "",
}  # fmt: skip


def goods_log(directory: Path) -> script.ScriptedStream:
    stream = script.ScriptedStream(START)
    key = ["9223372036854775807"]
    nothing = [None] * (len(TYPES) - 1)
    with stream.transaction(xid=7):
        stream.relation(GOODS)
        stream.insert(GOODS, list(VALUES.values()))
        stream.update(GOODS, [*key, *nothing[:4], UNCHANGED, *nothing[5:]])
        stream.delete(GOODS, [*key, *nothing])
        stream.truncate(GOODS)
    write_log(directory, stream.messages, 1 << 20, describe=script.described(GOODS))
    return stream


def test_the_typed_stream_of_a_table_has_its_columns_and_what_happened(
    stream: Callable[[], DataStreamReader], tmp_path: Path
) -> None:
    goods_log(tmp_path / "log")
    frame = stream().option("table", "goods").load()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("id", "bigint"), ("small", "smallint"), ("flag", "boolean"), ("price", "decimal(10,2)"), ("ratio", "double"),
        ("name", "string"), ("day", "date"), ("at", "timestamp"), ("code", "string"), ("raw", "binary"),
        ("doc", "string"), ("numbers", "array<int>"), ("Odd name", "string"), ("_op", "string"), ("_lsn", "bigint"),
        ("_sequence", "int"), ("_xid", "bigint"), ("_commit_time", "timestamp"), ("_unchanged", "array<string>"),
    ]  # fmt: skip
    collected: Batches = []
    texts = frame.selectExpr("*", "cast(price as string) as price_text", "unix_micros(`at`) as micros",
                             "unix_micros(_commit_time) as committed").drop("at", "_commit_time")  # fmt: skip
    batches_of(texts, tmp_path / "checkpoint", collected)
    (rows,) = collected
    insert, update, delete, truncate = (row.asDict() for row in rows)
    assert [row["_op"] for row in rows] == ["insert", "update", "delete", "truncate"]
    assert [row["_sequence"] for row in rows] == [1, 2, 3, 4]
    assert {(row["_lsn"], row["_xid"], row["committed"]) for row in rows} == {(START + 0x80, 7, FIRST_COMMIT_TIME)}
    assert {name: insert[name] for name in ("id", "small", "flag", "price_text", "ratio", "name", "doc", "numbers")} == {
        "id": 2**63 - 1, "small": -32768, "flag": True, "price_text": "-12345678.90", "ratio": 0.1, "name": "ünï",
        "doc": '{"a": [1]}', "numbers": [1, None, -3],
    }  # fmt: skip
    assert (str(insert["day"]), insert["micros"], bytes(insert["raw"])) == (
        "2024-02-29",
        1_709_208_000_000_001,
        b"\0\xff",
    )
    assert (insert["code"], insert["Odd name"], insert["_unchanged"]) == (VALUES["code"], "", None)
    assert (update["id"], update["name"], update["_unchanged"]) == (2**63 - 1, None, ["name"])
    assert (delete["id"], delete["name"]) == (2**63 - 1, None)
    assert truncate["id"] is None


def test_a_table_that_the_log_does_not_know_is_named(stream: Callable[[], DataStreamReader], tmp_path: Path) -> None:
    goods_log(tmp_path / "log")
    with pytest.raises(PySparkException, match=r"holds no change of table public\.godos"):
        stream().option("table", "godos").load()


def test_the_path_is_required(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match='option "path" is missing'):
        spark.readStream.format("penstock").load()


def test_a_value_that_spark_cannot_hold_stops_the_stream_or_goes_by_choice(
    stream: Callable[[], DataStreamReader], tmp_path: Path
) -> None:
    days = relation("public", "days", day="date", oid=6)
    scripted = script.ScriptedStream(START)
    with scripted.transaction():
        scripted.relation(days)
        scripted.insert(days, ["infinity"])
    write_log(tmp_path / "log", scripted.messages, 1 << 20, describe=script.described(days))
    seen: dict[str, Any] = {}
    for number, choice in enumerate(["null", "text", '{"day": "text"}']):
        collected: Batches = []
        frame = stream().option("table", "days").option("unrepresentable", choice).load()
        batches_of(frame, tmp_path / str(number), collected)
        seen[choice] = collected[0][0].day
    assert seen == {"null": None, "text": "infinity", '{"day": "text"}': "infinity"}
    with pytest.raises(PySparkException, match="use error, null or text, or name columns"):
        stream().option("table", "days").option("unrepresentable", "{day: txt}").load()
    with pytest.raises(PySparkException, match=r"infinity.*option unrepresentable = .*day.*text"):
        batches_of(stream().option("table", "days").load(), tmp_path / "error", [])
