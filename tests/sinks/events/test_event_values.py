from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DecodeError
from penstock.sinks.events.json_text import LARGE, base64_of_hex, comma_separated
from penstock.sinks.events.values import Numeric, TextValues, Values
from penstock.testing.change_batches import column
from tests.sinks.events.properties import POSTGRES_TEXT, steady


def encoded(declared: str, *values: str | None, numeric: Numeric = "string") -> list[str | None]:
    result: list[str | None] = Values(numeric).encode(pa.array(values, pa.string()), column("c", declared)).to_pylist()
    return result


def array_literal(elements: list[str | None]) -> str:
    def quoted(element: str) -> str:
        return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join("NULL" if element is None else quoted(element) for element in elements) + "}"


def test_integers_floats_booleans_and_json_are_native() -> None:
    assert encoded("int8", "9223372036854775807", "-1", None) == ["9223372036854775807", "-1", None]
    assert encoded("int2", "0") == ["0"]
    assert encoded("float8", "1e+300", "-0", "0.1") == ["1e+300", "-0", "0.1"]
    assert encoded("bool", "t", None, "f") == ["true", None, "false"]
    assert encoded("jsonb", '{"a": [1, null]}', "null", None) == ['{"a": [1, null]}', "null", None]


def test_a_float_that_json_has_no_number_for_is_a_string() -> None:
    assert encoded("float4", "NaN", "Infinity", "-Infinity", "1.5", None) == [
        '"NaN"', '"Infinity"', '"-Infinity"', "1.5", None,
    ]  # fmt: skip


def test_numeric_is_a_string_unless_asked_otherwise() -> None:
    assert encoded("numeric", "12.50", "NaN", None) == ['"12.50"', '"NaN"', None]
    assert encoded("numeric", "12.50", "NaN", None, numeric="number") == ["12.50", '"NaN"', None]


def test_json_over_several_lines_becomes_one_line() -> None:
    (folded,) = encoded("json", '{\r\n  "a":\n  "b\\n"\r}')
    assert folded is not None
    assert "\n" not in folded
    assert "\r" not in folded
    assert json.loads(folded) == {"a": "b\n"}


def test_what_a_rule_wrote_into_a_native_column_is_a_string() -> None:
    assert encoded("int4", "***", "7", "007", "2020-01-01", None) == ['"***"', "7", '"007"', '"2020-01-01"', None]
    assert encoded("bool", "yes", "t") == ['"yes"', "true"]
    assert encoded("bytea", "masked", "\\x01", "\\x0") == ['"masked"', '"AQ=="', '"\\\\x0"']


@steady
@given(st.lists(st.binary(max_size=40), min_size=1))
def test_bytea_is_base64(values: list[bytes]) -> None:
    hexed = pa.array(["\\x" + value.hex() for value in values], LARGE)
    assert base64_of_hex(hexed).to_pylist() == [base64.b64encode(value).decode() for value in values]


def test_a_null_bytea_is_apart_from_an_empty_one() -> None:
    assert encoded("bytea", None, "\\x", "\\xFF00ff") == [None, '""', '"/wD/"']


def test_arrays_are_arrays_of_what_their_elements_are() -> None:
    assert encoded("int4[]", "{1,NULL,-3}", "{}", None) == ["[1,null,-3]", "[]", None]
    assert encoded("float8[]", "{NaN,1.5}") == ['["NaN",1.5]']
    assert encoded("bool[]", "{t,f}") == ["[true,false]"]
    assert encoded("jsonb[]", r'{"{\"a\": 1}",NULL}') == ['[{"a": 1},null]']
    assert encoded("bytea[]", r'{"\\x01",NULL}') == ['["AQ==",null]']
    assert encoded("numeric[]", "{1.50}") == ['["1.50"]']
    assert encoded("numeric[]", "{1.50}", numeric="number") == ["[1.50]"]
    assert encoded("timestamptz[]", '{"2026-11-15 07:02:40+00"}') == ['["2026-11-15 07:02:40+00"]']


def test_an_array_that_is_no_plain_list_is_its_text() -> None:
    assert encoded("int4[]", "{{1,2},{3,4}}", "{5}", "[0:1]={6,7}", None) == [
        '"{{1,2},{3,4}}"', "[5]", '"[0:1]={6,7}"', None,
    ]  # fmt: skip
    assert encoded("text[]", '{{"a","b"}}') == [r'"{{\"a\",\"b\"}}"']


def test_an_array_of_boxes_is_its_text() -> None:
    assert encoded("box[]", "{(1,1),(0,0);(2,2),(1,1)}") == ['"{(1,1),(0,0);(2,2),(1,1)}"']


def test_an_array_that_postgres_would_not_write_is_an_error() -> None:
    with pytest.raises(DecodeError, match='"c"'):
        encoded("int4[]", "{1,2")


@steady
@given(st.lists(st.none() | st.lists(st.none() | POSTGRES_TEXT, max_size=4), min_size=1, max_size=6))
def test_any_text_survives_in_an_array(values: list[list[str | None] | None]) -> None:
    literals = [None if value is None else array_literal(value) for value in values]
    assert [None if line is None else json.loads(line) for line in encoded("text[]", *literals)] == values


def test_text_values_are_strings_whatever_the_type() -> None:
    text = pa.array(["1", None, '"'], pa.string())
    assert TextValues().encode(text, column("c", "int8")).to_pylist() == ['"1"', None, '"\\""']


def test_a_row_in_which_everything_is_absent_keeps_its_place() -> None:
    parts = [pa.array(["a", None, None], LARGE), pa.array([None, None, "b"], LARGE)]
    assert comma_separated(parts).to_pylist() == ["a", "", "b"]
    assert comma_separated([*parts, pa.array(["c", None, "c"], LARGE)]).to_pylist() == ["a,c", "", "b,c"]
