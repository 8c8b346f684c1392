from __future__ import annotations

import json

from penstock.lsn import LSN
from penstock.sinks.events import Position
from penstock.sinks.events.formats.pgsink import PgsinkFormat
from penstock.testing.change_batches import FIRST_COMMIT_TIME, UNCHANGED, changes, messages, relation

EXAMPLE = relation("public", "example", id="int8", msg="text", key=("id",))


def test_an_insert_is_a_modification_with_text_values() -> None:
    batch = changes(EXAMPLE, [("insert", {"id": 1, "msg": "hello world"})])
    assert PgsinkFormat().encode(batch)["line"].to_pylist() == [
        '{"timestamp":"2025-11-15T07:02:40.290389Z","sequence":1,"namespace":"public","name":"example",'
        '"before":null,"after":{"id":"1","msg":"hello world"}}'
    ]


def test_before_and_after_tell_the_operations_apart() -> None:
    rows = [
        ("update", {"id": 2, "msg": UNCHANGED}, {"id": 1}),
        ("delete", None, {"id": 2}),
        ("truncate",),
    ]
    events = [json.loads(line) for line in PgsinkFormat().encode(changes(EXAMPLE, rows))["line"].to_pylist()]
    assert [(event["before"], event["after"]) for event in events] == [
        ({"id": "1"}, {"id": "2"}),
        ({"id": "2"}, None),
        (None, None),
    ]


def test_a_schema_message_holds_an_avro_schema() -> None:
    kinds = ["bool", "int2", "int4", "int8", "float4", "float8", "numeric", "uuid", "int4[]"]
    table = relation("public", "kinds", {f"c{index}": kind for index, kind in enumerate(kinds)})
    message = json.loads(PgsinkFormat().schema_line(table, Position(LSN(1), 1, 1, FIRST_COMMIT_TIME)))
    assert message["timestamp"] == "2025-11-15T07:02:40.290389Z"
    assert {key: message["schema"][key] for key in ("namespace", "type", "name")} == {
        "namespace": "public.kinds",
        "type": "record",
        "name": "value",
    }
    avro = ["boolean", "int", "int", "long", "float", "double", "string", "string", "string"]
    assert message["schema"]["fields"] == [
        {"name": f"c{index}", "type": [kind, "null"], "default": None} for index, kind in enumerate(avro)
    ]


def test_a_message_of_no_table_is_no_modification() -> None:
    assert PgsinkFormat().encode(messages([("p", b"x")])).num_rows == 0
