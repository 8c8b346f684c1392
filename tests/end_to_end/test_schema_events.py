"""Tables that are altered while they are written to, as sinks of events tell it: every change under its own definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.imports.pipeline_with_imports import PipelineWithImports

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE orders (id int PRIMARY KEY, note text, amount int, price numeric(8,2));
INSERT INTO orders SELECT n, 'note ' || n, n, n FROM generate_series(1, 20) n;
"""
# Each with rows in the same transaction, before and after.
FIRST_RUN = [
    "ALTER TABLE orders ADD COLUMN how mood DEFAULT 'sad'",
    "ALTER TABLE orders ALTER COLUMN amount TYPE bigint",
    "ALTER TABLE orders RENAME COLUMN note TO remark",
]
SECOND_RUN = [
    "ALTER TABLE orders DROP COLUMN remark",
    "ALTER TABLE orders ALTER COLUMN price TYPE double precision",
    "ALTER TABLE orders ADD COLUMN paid boolean; ALTER TABLE orders DROP COLUMN paid",
    "ALTER TABLE orders RENAME TO sales",
]
PGSINK = "  - {name: messages, type: file, path: messages, format: pgsink}\n"


def alter(pipeline: PipelineWithImports, statements: list[str], first: int) -> None:
    table = "orders"
    for number, statement in enumerate(statements, first):
        after = "sales" if "sales" in statement else table
        rows = "INSERT INTO {} (id, amount) VALUES ({}, 1); UPDATE {} SET amount = amount + 1 WHERE id = {}"
        pipeline.execute(
            f"BEGIN; {rows.format(table, 100 * number, table, number)}; {statement}; "
            f"{rows.format(after, 100 * number + 1, after, number)}; COMMIT"
        )
        table = after


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]


def definitions(events: list[dict[str, Any]]) -> list[tuple[str, dict[str, str]]]:
    """Those that were told, in order; every change has the columns of the last one of its table."""
    told: list[tuple[str, dict[str, str]]] = []
    for event in events:
        if event["op"] == "schema":
            told.append((event["table"], {column["name"]: column["type"] for column in event["columns"]}))
        elif event["after"] is not None and event["op"] != "message":
            assert list(event["after"]) == list(dict(told)[event["table"]])
    return told


def avro(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, str]]]:
    told: list[tuple[str, dict[str, str]]] = []
    for message in messages:
        if "schema" in message:
            record = message["schema"]
            told.append((record["namespace"], {field["name"]: field["type"][0] for field in record["fields"]}))
        elif message["after"] is not None:
            assert list(message["after"]) == list(dict(told)[f"{message['namespace']}.{message['name']}"])
    return told


def test_every_change_comes_after_the_definition_that_it_has_across_a_restart(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = PipelineWithImports(database, tmp_path / "p", sinks=PGSINK)
    pipeline.execute(TABLES)
    with pipeline.running(spark):
        pipeline.await_streaming()
        alter(pipeline, FIRST_RUN, 1)
        pipeline.await_arrival(240)
    with pipeline.running(spark):
        alter(pipeline, SECOND_RUN, 11)
        pipeline.await_arrival(240)
    begin = {"id": "integer", "note": "text", "amount": "integer", "price": "numeric(8,2)"}
    mood = {**begin, "how": "public.mood"}
    large = {**mood, "amount": "bigint"}
    renamed = {"id": "integer", "remark": "text", "amount": "bigint", "price": "numeric(8,2)", "how": "public.mood"}
    dropped = {name: type_ for name, type_ in renamed.items() if name != "remark"}
    real = {**dropped, "price": "double precision"}
    shapes = [begin, mood, large, renamed, dropped, real]
    assert definitions(lines(tmp_path / "p" / "events")) == [*(("orders", shape) for shape in shapes), ("sales", real)]
    types = {"integer": "int", "bigint": "long", "double precision": "double"}
    expected = [{name: types.get(type_, "string") for name, type_ in shape.items()} for shape in shapes]
    assert avro(lines(tmp_path / "p" / "messages")) == [
        *(("public.orders", shape) for shape in expected), ("public.sales", expected[-1]),
    ]  # fmt: skip
