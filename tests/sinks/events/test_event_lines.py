from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.changes.batch import ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.sinks.events import EVENTS, Position
from penstock.sinks.events import values as shapes
from penstock.sinks.events.formats.json import JsonFormat
from penstock.sinks.events.values import Numeric
from penstock.testing.change_batches import FIRST_COMMIT_TIME, UNCHANGED, changes, messages, relation
from tests.sinks.events.properties import ANY_TEXT, steady
from tests.sinks.events.reference_encoder import event, parsed

FLOATS = st.sampled_from(["NaN", "Infinity", "-Infinity", "-0", "1e+20", "1.5e-07", "0.1"]) | st.floats(
    allow_nan=False, allow_infinity=False
).map(repr)
NUMERICS = st.sampled_from(["NaN", "Infinity", "-Infinity", "0.50"]) | st.decimals(
    allow_nan=False, allow_infinity=False, places=2
).map(lambda number: f"{number:f}")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=5,
)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "text": ANY_TEXT,
    "int8": st.integers(-(2**63), 2**63 - 1).map(str),
    "float8": FLOATS,
    "numeric": NUMERICS,
    "bool": st.sampled_from(["t", "f"]),
    "json": st.builds(lambda value, indent: json.dumps(value, indent=indent), JSON, st.sampled_from([None, 1])),
    "bytea": st.binary(max_size=20).map(lambda data: "\\x" + data.hex()),
    "timestamptz": st.just("2026-11-15 07:02:40.290389+00"),
}
KEYED = relation("pub lic", 'odd "name" 🐘', {f"a {kind}": kind for kind in VALUES}, key=("a int8", "a text"))
FULL = relation("public", "whole", {f"a {kind}": kind for kind in VALUES}, identity="f")


@st.composite
def rows(draw: st.DrawFn, table: Relation, toast: bool = False) -> dict[str, Any]:
    def strategy(base: str) -> st.SearchStrategy[Any]:
        values: st.SearchStrategy[Any] = st.none() | VALUES[base]
        return values | st.just(UNCHANGED) if toast else values

    return {column.name: draw(strategy(column.base)) for column in table.columns}


@st.composite
def batches(draw: st.DrawFn) -> ChangeBatch:
    table = draw(st.sampled_from([KEYED, FULL]))
    old = (
        rows(table) if table.identity == "f" else st.fixed_dictionaries({"a int8": VALUES["int8"], "a text": ANY_TEXT})
    )
    change = st.one_of(
        st.tuples(st.sampled_from(["insert", "read"]), rows(table)),
        st.tuples(st.just("update"), rows(table, toast=True), st.none() | old),
        st.tuples(st.just("delete"), st.none(), old),
        st.just(("truncate",)),
    )
    some = draw(st.lists(change, min_size=1, max_size=6))
    lsns = sorted(draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(some), max_size=len(some))))
    time = draw(st.integers(0, 4_000_000_000_000_000))
    return changes(table, some, lsn=lsns, xid=draw(st.integers(0, 2**32 - 1)), commit_time=time)


@steady
@given(batches(), st.sampled_from(["string", "number"]))
def test_every_line_says_what_the_change_by_change_encoder_says(batch: ChangeBatch, numeric: Numeric) -> None:
    lines = JsonFormat(numeric).encode(batch)["line"].to_pylist()
    expected = [event(batch, row, numeric) for row in range(len(batch))]
    assert [parsed(line) for line in lines] == expected
    assert [list(parsed(line)) for line in lines] == [list(each) for each in expected]
    assert not any("\n" in line or "\r" in line for line in lines)


@steady
@given(st.lists(st.none() | ANY_TEXT, min_size=1, max_size=8))
@example(["".join(map(chr, range(0x21))), '"', "\\", '\\"', "\\n", "", None, "\u2028\x7f\x80\U0010ffff"])
def test_any_text_survives(values: list[str | None]) -> None:
    table = relation("public", "texts", t="text")
    lines = JsonFormat().encode(changes(table, [("insert", {"t": value}) for value in values]))["line"]
    assert [json.loads(line)["after"]["t"] for line in lines.to_pylist()] == values


@steady
@given(ANY_TEXT.filter(bool), ANY_TEXT, ANY_TEXT)
def test_any_names_survive(column: str, schema: str, table: str) -> None:
    odd = relation(schema, table, {column: "int4"}, key=(column,))
    batch = changes(odd, [("insert", {column: 1}), ("update", {column: UNCHANGED}, {column: 1})])
    inserted, updated = (json.loads(line) for line in JsonFormat().encode(batch)["line"].to_pylist())
    assert (inserted["schema"], inserted["table"], inserted["after"]) == (schema, table, {column: 1})
    assert (updated["key"], updated["after"], updated["unchanged"]) == ({column: 1}, {}, [column])


def test_the_example_of_the_documentation_comes_out_as_it_is_written_there() -> None:
    example_table = relation("public", "example", id="int8", msg="text", key=("id",))
    batch = changes(
        example_table, [("insert", {"id": 1, "msg": "hello world"})], lsn=LSN.parse("0/16B3748"),
        commit_time=1_794_726_160_290_389,
    )  # fmt: skip
    assert JsonFormat().encode(batch)["line"].to_pylist() == [
        '{"op":"insert","schema":"public","table":"example","key":{"id":1},"before":null,'
        '"after":{"id":1,"msg":"hello world"},"lsn":"0/16B3748","sequence":1,"xid":731,'
        '"timestamp":"2026-11-15T07:02:40.290389Z"}'
    ]


def test_the_names_of_unchanged_columns_follow_the_new_row() -> None:
    table = relation("public", "t", id="int8", a="text", b="text", key=("id",))
    batch = changes(table, [("update", {"id": 1, "a": UNCHANGED, "b": None}), ("update", {"id": 2, "b": UNCHANGED})])
    first, second = JsonFormat().encode(batch)["line"].to_pylist()
    assert '"after":{"id":1,"b":null},"unchanged":["a"],"lsn"' in first
    assert '"after":{"id":2,"a":null},"unchanged":["b"],"lsn"' in second


def test_a_message_is_an_event_without_a_table() -> None:
    line = JsonFormat().encode(messages([('my "prefix"', b"\x00\xff")], lsn=LSN(0x1_0000_0000)))["line"][0].as_py()
    assert line == (
        '{"op":"message","prefix":"my \\"prefix\\"","content":"AP8=","lsn":"1/0","sequence":1,"xid":731,'
        '"timestamp":"2025-11-15T07:02:40.290389Z"}'
    )


def test_a_table_without_columns_has_empty_rows() -> None:
    (line,) = JsonFormat().encode(changes(relation("public", "empty"), [("insert", {})]))["line"].to_pylist()
    assert '"key":null,"before":null,"after":{},"lsn"' in line


def test_a_schema_event_stands_one_before_the_first_change() -> None:
    table = relation("public", "t", id="int8", price="numeric(10,2)", key=("id",))
    line = JsonFormat().schema_line(table, Position(LSN(0x100), 4, 731, FIRST_COMMIT_TIME))
    assert line == (
        '{"op":"schema","schema":"public","table":"t","columns":[{"name":"id","type":"int8","key":true},'
        '{"name":"price","type":"numeric(10,2)","key":false}],"key":["id"],"lsn":"0/100","sequence":3,"xid":731,'
        '"timestamp":"2025-11-15T07:02:40.290389Z"}'
    )


def test_no_changes_are_no_events() -> None:
    table = JsonFormat().encode(changes(relation("public", "t", id="int8"), []))
    assert table.schema == EVENTS
    assert table.num_rows == 0


def test_a_large_batch_is_encoded_in_pieces_that_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = relation("public", "t", id="int8", t="text", key=("id",))
    rows = [("update", {"id": i, "t": UNCHANGED if i % 7 == 3 else f"text {i}"}) for i in range(25)]
    batch = changes(table, rows)
    whole = JsonFormat().encode(batch)
    monkeypatch.setattr(shapes, "MAX_ROWS", 4)
    pieces = JsonFormat().encode(batch)
    assert pieces["line"].num_chunks == 7
    assert pieces["line"].to_pylist() == whole["line"].to_pylist()


def test_rows_that_are_not_in_commit_order_are_put_in_order() -> None:
    table = relation("public", "t", id="int8")
    batch = changes(table, [("read", {"id": i}) for i in (1, 2, 3)], lsn=[30, 10, 10], sequence=[1, 2, 1])
    events = JsonFormat().encode(batch)
    assert [json.loads(line)["after"]["id"] for line in events["line"].to_pylist()] == [3, 2, 1]
    assert events["commit_lsn"].to_pylist() == [10, 10, 30]


def test_a_slice_of_a_larger_array_gives_only_its_own_rows() -> None:
    table = relation("public", "t", t="text", b="bytea")
    batch = changes(table, [("insert", {"t": '"', "b": "\\x01"}), ("insert", {"t": "\\", "b": "\\x03"})])
    around = pa.array(["a\nb", "c", None])
    sliced = [pa.concat_arrays([around, values, around]).slice(3, 2) for values in batch.new]
    lines = JsonFormat().encode(replace(batch, new=sliced))["line"].to_pylist()
    assert [json.loads(line)["after"] for line in lines] == [{"t": '"', "b": "AQ=="}, {"t": "\\", "b": "Aw=="}]
