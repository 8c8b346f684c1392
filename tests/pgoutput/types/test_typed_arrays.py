from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.changes.batch import Column
from penstock.errors import DecodeError, UnrepresentableValue
from penstock.pgoutput.types import Unrepresentable, arrow_type, typed
from tests.pgoutput.types.postgres_text import NUMERIC_10_2, cast, column, numeric_modifier, steady, write_array


@pytest.mark.parametrize(
    ("base", "text", "expected"),
    [
        ("int4[]", "{1,-2,NULL}", [1, -2, None]),
        ("bool[]", "{t,f,NULL}", [True, False, None]),
        ("float8[]", "{1.5,-Infinity}", [1.5, float("-inf")]),
        ("text[]", '{a,"b c","",NULL,"NULL","null"}', ["a", "b c", "", None, "NULL", "null"]),
        ("text[]", r'{"a \"q\" b","\\","\\\\","\\\"",x}', ['a "q" b', "\\", "\\\\", '\\"', "x"]),
        ("text[]", r'{"\a","b",c}', ["a", "b", "c"]),
        ("text[]", '{"{1,2}","a,b","[2:3]={1,2}"}', ["{1,2}", "a,b", "[2:3]={1,2}"]),
        ("text[]", '{Grüße,"🐘 🐘"}', ["Grüße", "🐘 🐘"]),
        ("other[]", '{::1,"[1,3)"}', ["::1", "[1,3)"]),
        ("bytea[]", r'{"\\x00ff","\\x",NULL}', [b"\x00\xff", b"", None]),
        ("date[]", "{2024-01-01,NULL}", [date(2024, 1, 1), None]),
        ("time[]", "{12:34:56.7}", [time(12, 34, 56, 700000)]),
        ("timestamptz[]", '{"2024-01-01 00:00:00+00"}', [datetime(2024, 1, 1, tzinfo=UTC)]),
        ("interval[]", '{"1 mon 02:00:00",NULL}', [pa.MonthDayNano((1, 0, 7_200_000_000_000)), None]),
        ("jsonb[]", r'{"{\"a\": [1, 2]}",1}', ['{"a": [1, 2]}', "1"]),
        ("numeric[]", "{NaN,1.50}", ["NaN", "1.50"]),
    ],
)
def test_arrays_of_each_type_become_lists(base: str, text: str, expected: list[Any]) -> None:
    assert cast([None, text, "{}", text], column(base)) == [None, expected, [], expected]


def test_the_modifier_of_an_array_is_that_of_its_elements() -> None:
    amounts = Column("amount", 0, "numeric(10,2)[]", "array", numeric_modifier(10, 2), "numeric")
    assert arrow_type(amounts, "null") == pa.list_(arrow_type(NUMERIC_10_2, "null"))
    assert cast(["{1.50,NaN}", "{}"], amounts, "null") == [[Decimal("1.50"), None], []]


def test_a_column_of_empty_arrays_and_nulls_is_cast() -> None:
    assert cast(["{}", None, "{}"], column("int4[]")) == [[], None, []]


def test_arrays_of_boxes_stay_text_since_their_delimiter_is_a_semicolon() -> None:
    text = "{(2,2),(1,1);(4,4),(3,3)}"
    for boxes in (column("box[]"), Column("amount", 1020, "box[]", "array", -1, "other")):
        assert arrow_type(boxes, "error") == pa.string()
        assert cast([text], boxes) == [text]


NESTED = [
    "{{1,2},{3,4}}", "[2:3]={1,2}", "[0:0][-1:0]={{1,2}}", "{{{1}}}", '{{"a \\"{ b"},{NULL}}',
    "[-2147483648:-2147483648]={1}",
]  # fmt: skip


@pytest.mark.parametrize("value", NESTED)
def test_an_array_that_is_no_list_follows_the_policy(value: str) -> None:
    texts = column("text[]")
    assert cast(["{a}", value, None, "{b,c}"], texts, "null") == [["a"], None, None, ["b", "c"]]
    assert cast(["{a}", value, None], texts, "text") == ["{a}", value, None]
    with pytest.raises(UnrepresentableValue) as raised:
        cast(["{a}", value], texts, "error")
    assert f"holds {value!r}" in str(raised.value)
    assert "list<item: string>" in str(raised.value)


def test_an_element_that_does_not_fit_follows_the_policy_by_itself() -> None:
    text = "{2024-01-01,infinity}"
    assert cast([text, "{}"], column("date[]"), "null") == [[date(2024, 1, 1), None], []]
    assert cast([text], column("date[]"), "text") == [text]
    with pytest.raises(UnrepresentableValue, match="'infinity'"):
        cast([text], column("date[]"), "error")


MALFORMED = [
    "", "{", "}", "{}}", "{{}", "{,}", "{1,}", "{,1}", '{"a}', '{a"b"}', '{"a"b}', r"{\a}", "{1}{2}", "{}{}", "x{1}",
    "{1}x", "{ 1}", "{1 }", r'{"a\"}', "[1:2]{1}", '{"a""b"}', "{a\\}", "1", "[1:1]={1}}", '{"', "\\", '"', "{}\\",
]  # fmt: skip


@pytest.mark.parametrize("value", MALFORMED)
@pytest.mark.parametrize("policy", ["error", "null"])
def test_what_postgres_never_writes_is_refused_and_named(value: str, policy: Unrepresentable) -> None:
    for rows in ([value], ["{a}", None, value, '{"b c"}'], [value, "{a}"]):
        with pytest.raises(DecodeError) as raised:
            cast(rows, column("text[]"), policy)
        assert f"holds {value!r}" in str(raised.value)


def test_a_malformed_row_after_a_nested_one_is_still_refused() -> None:
    with pytest.raises(DecodeError, match=re.escape("holds '{1,}'")):
        cast(["{{1}}", "{1,}"], column("int4[]"), "null")


def test_a_bad_element_is_refused() -> None:
    with pytest.raises(DecodeError, match="holds 'x'"):
        cast(["{1,2}", "{x}"], column("int4[]"), "null")


def test_the_result_is_valid_arrow() -> None:
    result = typed(pa.array(['{"a b",NULL,c}', None, "{}", '{""}']), column("text[]"), "error")
    result.validate(full=True)
    assert result.type == pa.list_(pa.string())


TRICKY = st.text(alphabet='ab"\\{},; \tNUL=[]é🐘', max_size=6)
ELEMENT = st.none() | TRICKY | st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@steady
@given(st.lists(st.none() | st.lists(ELEMENT, max_size=5), max_size=6))
def test_any_arrays_of_text_come_back(rows: list[list[str | None] | None]) -> None:
    texts = [None if row is None else write_array(row) for row in rows]
    assert cast(texts, column("text[]")) == rows


@steady
@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5), max_size=6))
def test_any_arrays_of_numbers_come_back(rows: list[list[int | None] | None]) -> None:
    texts = [None if r is None else write_array([None if n is None else str(n) for n in r]) for r in rows]
    assert cast(texts, column("int8[]")) == rows


def parse_slowly(text: str) -> list[str | None] | None:
    """One character after the other; None for what is not a flat literal as Postgres writes it."""
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        return None
    if text == "{}":
        return []
    body, at, elements = text[1:-1] + ",", 0, list[str | None]()
    while at < len(body):
        if body[at] == '"':
            at, element = at + 1, ""
            while at < len(body) and body[at] != '"':
                at += body[at] == "\\"
                element += body[at : at + 1]
                at += 1
            at += 1
            elements.append(element)
            if body[at : at + 1] != ",":
                return None
        else:
            end = body.index(",", at)
            element = body[at:end]
            if not element or element != element.strip(" \t\n\v\f\r") or set(element) & set('"\\{}'):
                return None
            elements.append(None if element.upper() == "NULL" else element)
            at = end
        at += 1
    return elements


@steady
@given(
    st.lists(
        st.text(alphabet='{}{},,"\\a [=:1\x1f', max_size=9).map(lambda inner: f"{{{inner}}}"), min_size=1, max_size=4
    )
)
def test_scrambled_literals_are_taken_right_or_not_at_all(texts: list[str]) -> None:
    expected = [parse_slowly(text) for text in texts]
    if None not in expected:
        assert cast(texts, column("text[]")) == expected
    else:
        with pytest.raises((DecodeError, UnrepresentableValue)):
            cast(texts, column("text[]"))
