"""Which rows pass a filter: against plain Python row by row, and against Postgres itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock.changes.batch import Relation
from penstock.errors import DecodeError
from penstock.rules.where.filters import KNOWN, NOT_SENT, STORED_APART, Values, compiled_filter
from penstock.rules.where.operands import UnfitOperand
from penstock.testing.change_batches import relation
from tests.rules.conditions import condition, holds

steady = settings(max_examples=200, derandomize=True, deadline=None)

TYPES = {
    "n": "int4", "big": "int8", "amount": "numeric(10,2)", "free": "numeric", "ratio": "float8", "name": "text",
    "code": "bpchar(5)", "done": "bool", "day": "date", "at": "timestamp", "when": "timestamptz", "ref": "uuid",
}  # fmt: skip
TABLE = relation("public", "everything", TYPES)
IDS = [
    "00000000-0000-0000-0000-000000000001",
    "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
    "ffffffff-0000-0000-0000-000000000000",
]
TEXTS = ["", "a", "A", "ä", "ab", "z", "€", "😀", "a b", "10", "9", "line\nend"]


def _fixed(digits: int) -> st.SearchStrategy[str]:
    return st.decimals(-1000, 1000, places=digits).map(lambda number: f"{number:f}")


VALUES: dict[str, st.SearchStrategy[str]] = {
    "n": st.integers(-(2**31), 2**31 - 1).map(str) | st.integers(-3, 3).map(str),
    "big": st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(-3, 3).map(str),
    "amount": _fixed(2) | st.just("NaN"),
    "free": st.sampled_from(["0", "1", "-1", "1.5", "1.50", "10", "9", "-0.5", "NaN", "Infinity", "-Infinity",
                             "123456789012345678901234567890123456789012", f"0.{'0' * 40}1"]) | _fixed(3),
    "ratio": st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    "name": st.sampled_from(TEXTS),
    "code": st.sampled_from(["a", "b", "ab", "é"]).map(lambda text: text.ljust(5)),
    "done": st.sampled_from(["t", "f"]),
    "day": st.dates().map(str) | st.sampled_from(["infinity", "-infinity"]),
    "at": st.datetimes().map(lambda at: at.isoformat(" ")) | st.sampled_from(["infinity", "-infinity"]),
    "when": st.datetimes().map(lambda at: at.isoformat(" ") + "+00") | st.sampled_from(["infinity", "-infinity"]),
    "ref": st.sampled_from(IDS).map(str.lower),
}  # fmt: skip
OPERANDS: dict[str, st.SearchStrategy[Any]] = {
    **VALUES,
    "n": st.integers(-(2**33), 2**33) | st.integers(-3, 3) | st.sampled_from(["2.5", 0.5, -0.5, "1e3"]),
    "big": st.integers(-(2**65), 2**65) | st.integers(-3, 3),
    "amount": _fixed(2) | _fixed(4) | st.sampled_from(["NaN", "Infinity", "99999999999"]),
    "done": st.booleans(),
    "code": st.sampled_from(["a", "b", "ab", "é", "a  "]),
    "ref": st.sampled_from(IDS),
}
PATTERNS = ["", "a", "^a", "b$", "[0-9]+", "é|ä"]


@st.composite
def comparisons(draw: st.DrawFn) -> dict[str, Any]:
    column = draw(st.sampled_from(list(TYPES)))
    op = draw(
        st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "starts_with", "matches", "is_null"])
    )
    if op == "is_null":
        return {"column": column, op: draw(st.booleans())}
    if op in ("contains", "starts_with"):
        return {"column": column, op: draw(st.sampled_from(["", "a", "1", "ä", "-"]))}
    if op == "matches":
        return {"column": column, op: draw(st.sampled_from(PATTERNS))}
    operand = OPERANDS[column]
    return {"column": column, op: draw(st.lists(operand, min_size=1, max_size=3) if op == "in" else operand)}


def combinations(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(parts, min_size=1, max_size=3)
    return (
        st.builds(lambda p: {"all": p}, several)
        | st.builds(lambda p: {"any": p}, several)
        | st.builds(lambda p: {"not": p}, parts)
    )


conditions = st.recursive(comparisons(), combinations, max_leaves=5)
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}), min_size=1, max_size=6
)


def columns_of(table: Relation, some: Sequence[Mapping[str, str | None]]) -> dict[int, Values]:
    return {
        index: Values(pa.array([row[column.name] for row in some], pa.string()))
        for index, column in enumerate(table.columns)
    }


@settings(steady, max_examples=600)
@given(conditions, rows)
def test_a_filter_passes_just_the_rows_for_which_plain_python_says_true(
    where: Any, some: list[dict[str, str | None]]
) -> None:
    wanted = condition(where)
    passed = compiled_filter(wanted, TABLE).passes(columns_of(TABLE, some))
    assert passed.tolist() == [holds(wanted, row, TYPES) is True for row in some]


@settings(steady, max_examples=400)
@given(conditions, rows, st.data())
def test_what_is_possible_contains_what_is_so_and_nothing_is_lost_of_what_is_known(
    where: Any, some: list[dict[str, str | None]], data: st.DataObject
) -> None:
    """Whatever is hidden, the outcome is among the possible ones; with nothing hidden it is the only one."""
    compiled = compiled_filter(condition(where), TABLE)
    columns = columns_of(TABLE, some)
    passed = compiled.passes(columns)
    marks = st.lists(st.sampled_from([KNOWN, NOT_SENT]), min_size=len(some), max_size=len(some))
    hidden = {index: np.array(data.draw(marks), np.uint8) for index in compiled.columns}
    seen = {
        index: Values(pc.if_else(pa.array(mark != KNOWN), pa.scalar(None, pa.string()), columns[index].text), mark)
        for index, mark in hidden.items()
    }
    may_pass, may_fail = compiled.possible(seen)
    assert (may_pass | ~passed).all()
    assert (may_fail | passed).all()
    nothing_hidden = ~np.logical_or.reduce([hidden[index] != KNOWN for index in hidden])
    assert (may_pass[nothing_hidden] == passed[nothing_hidden]).all()
    assert (may_fail[nothing_hidden] == ~passed[nothing_hidden]).all()


def passes(types: str, text: str | None, **operator: Any) -> bool:
    table = relation("public", "t", {"c": types})
    where = condition({"column": "c", **{"in" if op == "among" else op: value for op, value in operator.items()}})
    return bool(compiled_filter(where, table).passes({0: Values(pa.array([text], pa.string()))})[0])


AWKWARD: dict[str, list[str]] = {
    "numeric": ["NaN", "Infinity", "-Infinity", "0", "-1", "1", "0.1", "0.10", "1e40", "-1e40", "9", "10", "-9.99", "1e-30",
                "99999999999999999999999999999999999999.9", "99999999999999999999999999999999999999.8"],
    "numeric(38,2)": ["0", "-1", "999999999999999999999999999999999999.99", "-999999999999999999999999999999999999.99", "NaN"],
    "float8": ["NaN", "Infinity", "-Infinity", "0", "-0", "1e300", "-1e300", "0.1", "5e-324"],
    "date": ["infinity", "-infinity", "4713-01-01 BC", "0044-03-15 BC", "0044-04-01 BC", "0043-01-01 BC", "0001-12-31 BC",
             "0001-01-01", "2000-02-29", "0005-02-28 BC", "0005-02-29 BC", "9999-12-31", "10000-01-01", "5874897-12-31"],
    "timestamp": ["infinity", "-infinity", "4713-01-01 00:00:00 BC", "0001-12-31 23:59:59.999999 BC", "0001-01-01 00:00:00",
                  "2024-01-01 00:00:00", "2024-01-01 00:00:00.5", "2024-01-01 00:00:00.49", "294276-12-31 23:59:59.999999",
                  "294250-01-01 00:00:00", "12024-01-01 00:00:01"],
    "timestamptz": ["infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "2024-01-01 00:00:00+00", "2024-01-01 00:00:00.1+00",
                    "294276-12-31 23:59:59+00"],
    "time": ["00:00:00", "24:00:00", "18:30:00", "18:30:00.5", "18:29:59.999999"],
    "uuid": IDS,
    "int8": ["9223372036854775807", "-9223372036854775808", "0", "9", "10"],
    "int2": ["32767", "-32768", "0"],
    "oid": ["4294967295", "0", "2147483648"],
    "bool": ["true", "false"],
}  # fmt: skip


@pytest.mark.parametrize("declared", AWKWARD)
def test_awkward_values_compare_as_they_do_in_postgres(declared: str, database: str) -> None:
    """Every value with every other, by every operator: the server decides."""
    with psycopg.connect(database, options="-c timezone=UTC -c datestyle=ISO") as server:
        for op, symbol in {"eq": "=", "ne": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}.items():
            query = sql.SQL("select a::text, b, a {} b::{} from unnest(%s::{}[]) a, unnest(%s::text[]) b").format(
                sql.SQL(symbol), sql.SQL(declared), sql.SQL(declared)
            )
            for text, operand, expected in server.execute(query, [AWKWARD[declared]] * 2).fetchall():
                shown = {"true": "t", "false": "f"}.get(text, text)
                assert passes(declared, shown, **{op: operand}) is expected, (text, op, operand)


@pytest.mark.parametrize(
    ("types", "text", "operator", "expected"),
    [
        ("int4", "7", {"eq": "7.0"}, True),
        ("int4", "7", {"among": [6, "7"]}, True),
        ("int4", None, {"ne": 1}, False),
        ("int4", None, {"among": [1]}, False),
        ("numeric(10,2)", "10.50", {"eq": 10.5}, True),
        ("numeric(10,2)", "10.50", {"gt": "10.499"}, True),
        ("text", "10", {"eq": 10}, True),
        ("text", "9", {"gt": "10"}, True),
        ("text", "ä", {"gt": "z"}, True),
        ("timestamptz", "2024-06-01 12:00:00+00", {"eq": "2024-06-01 14:00:00+02"}, True),
        ("timestamptz", "2024-06-01 12:00:00+00", {"eq": "2024-06-01T12:00:00Z"}, True),
        ("timestamp", "2024-06-01 12:00:00", {"lt": "2024-06-02"}, True),
        ("date", "2024-06-01", {"gte": "2024-06-01"}, True),
        ("date", "2024-06-01", {"eq": date(2024, 6, 1)}, True),
        ("timestamp", "2024-06-01 12:00:00", {"eq": datetime(2024, 6, 1, 12)}, True),
        (
            "timestamptz",
            "2024-06-01 12:00:00.5+00",
            {"eq": datetime.fromisoformat("2024-06-01T14:00:00.5+02:00")},
            True,
        ),
        ("numeric", "NaN", {"eq": float("nan")}, True),
        ("float4", "0.1", {"eq": 0.1}, True),
        ("jsonb", '{"a": 1}', {"contains": '"a"'}, True),
        ("int4[]", "{1,2}", {"eq": "{1,2}"}, True),
        ("int4", "1999", {"starts_with": "19"}, True),
        ("enum", "sad", {"eq": "sad"}, True),
        ("bool", "t", {"eq": True}, True),
        ("bool", "f", {"eq": "no"}, True),
    ],
)
def test_values_as_people_write_them(types: str, text: str | None, operator: dict[str, Any], expected: bool) -> None:
    assert passes(types, text, **operator) is expected


@pytest.mark.parametrize(
    ("types", "operator"),
    [
        ("int4", {"eq": "seven"}), ("int4", {"gt": True}), ("int4", {"eq": "NaN"}), ("numeric", {"lt": "1,5"}),
        ("date", {"eq": "2024-02-30"}), ("date", {"eq": "2024-01-01 10:00:00"}), ("timestamp", {"gt": "2024-01-01 10:00+02"}),
        ("timestamptz", {"gt": "yesterday"}), ("bool", {"eq": "perhaps"}), ("uuid", {"eq": "1"}), ("jsonb", {"gt": "a"}),
        ("int4[]", {"lte": "{1}"}), ("text", {"eq": 1.5}), ("float4", {"lt": 1e39}), ("time", {"eq": "25:00:00"}),
    ],
)  # fmt: skip
def test_an_operand_that_is_not_of_the_columns_type_is_refused_without_repeating_it(
    types: str, operator: dict[str, Any]
) -> None:
    with pytest.raises(UnfitOperand) as refusal:
        passes(types, None, **operator)
    (operand,) = operator.values()
    assert len(str(operand)) == 1 or str(operand) not in str(refusal.value).replace("write it like", "")


def test_a_value_that_is_not_of_its_type_is_an_error_that_does_not_show_it() -> None:
    for types in ("int4", "numeric", "date"):
        with pytest.raises(DecodeError) as error:
            passes(types, "s3cret", gt=1 if types != "date" else "2024-01-01")
        assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("operator", "outcome"),
    [
        ({"eq": "short"}, (False, True)), ({"ne": "short"}, (True, False)), ({"in": ["a", "b"]}, (False, True)),
        ({"is_null": True}, (False, True)), ({"is_null": False}, (True, False)), ({"eq": "x" * 21}, (True, True)),
        ({"eq": "ünïcödé"}, (True, True)), ({"contains": "a"}, (True, True)), ({"gt": "a"}, (True, True)),
    ],
)  # fmt: skip
def test_of_a_value_that_is_stored_apart_it_is_known_that_it_is_long_and_not_null(
    operator: dict[str, Any], outcome: tuple[bool, bool]
) -> None:
    table = relation("public", "t", {"c": "text"})
    compiled = compiled_filter(condition({"column": "c", **operator}), table)
    unseen = {0: Values(pa.array([None], pa.string()), np.array([STORED_APART], np.uint8))}
    may_pass, may_fail = compiled.possible(unseen)
    assert (bool(may_pass[0]), bool(may_fail[0])) == outcome


def test_an_empty_column_is_no_trouble() -> None:
    for name, kind in TYPES.items():
        operand = {"bool": "t", "uuid": IDS[0]}.get(kind, "2024-01-01" if kind[:4] in ("date", "time") else "1")
        compiled = compiled_filter(condition({"column": name, "eq": operand}), TABLE)
        assert compiled.passes({compiled.columns[0]: Values(pa.array([], pa.string()))}).tolist() == []
