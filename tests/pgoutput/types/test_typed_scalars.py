from __future__ import annotations

import math
import pickle
from datetime import date, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import DecodeError, UnrepresentableValue
from penstock.pgoutput.types import Unrepresentable, arrow_type, typed
from tests.pgoutput.types.postgres_text import NUMERIC_10_2, POLICIES, cast, column, numeric_modifier

ALWAYS_THE_SAME: list[tuple[str, pa.DataType]] = [
    ("bool", pa.bool_()), ("int2", pa.int16()), ("int4", pa.int32()), ("int8", pa.int64()), ("oid", pa.int64()),
    ("float4", pa.float32()), ("float8", pa.float64()), ("bytea", pa.binary()),
    *((base, pa.string()) for base in (
        "text", "varchar", "bpchar", "name", "char", "xml", "uuid", "json", "jsonb", "timetz", "enum", "other", "inet",
        "numeric",
    )),
]  # fmt: skip

TEXT_IF_ASKED: list[tuple[str, pa.DataType]] = [
    ("date", pa.date32()), ("time", pa.time64("us")), ("timestamp", pa.timestamp("us")),
    ("timestamptz", pa.timestamp("us", "UTC")), ("interval", pa.month_day_nano_interval()),
    ("int4[]", pa.list_(pa.int32())), ("text[]", pa.list_(pa.string())), ("other[]", pa.list_(pa.string())),
    ("enum[]", pa.list_(pa.string())), ("date[]", pa.list_(pa.date32())), ("bytea[]", pa.list_(pa.binary())),
]  # fmt: skip


@pytest.mark.parametrize(("base", "expected"), ALWAYS_THE_SAME)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_type_whose_values_all_fit_has_one_arrow_type(
    base: str, expected: pa.DataType, policy: Unrepresentable
) -> None:
    assert arrow_type(column(base), policy) == expected


@pytest.mark.parametrize(("base", "expected"), TEXT_IF_ASKED)
def test_a_type_with_unrepresentable_values_is_text_only_under_that_policy(base: str, expected: pa.DataType) -> None:
    assert [arrow_type(column(base), policy) for policy in POLICIES] == [expected, expected, pa.string()]


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (1, 0, pa.decimal128(1, 0)), (12, 2, pa.decimal128(12, 2)), (38, 38, pa.decimal128(38, 38)),
        (39, 0, pa.string()), (1000, 500, pa.string()), (5, -2, pa.string()), (3, 5, pa.string()),
    ],
)  # fmt: skip
def test_a_numeric_is_a_decimal_where_38_digits_hold_it(precision: int, scale: int, expected: pa.DataType) -> None:
    assert arrow_type(column("numeric", numeric_modifier(precision, scale)), "error") == expected


def test_a_numeric_with_limits_is_text_under_the_policy_text() -> None:
    assert arrow_type(NUMERIC_10_2, "text") == pa.string()


@pytest.mark.parametrize(
    ("base", "values"),
    [
        ("bool", {"t": True, "f": False}),
        ("int2", {"-32768": -32768, "0": 0, "32767": 32767}),
        ("int4", {"-2147483648": -2147483648, "7": 7, "2147483647": 2147483647}),
        ("int8", {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
        ("oid", {"0": 0, "4294967295": 4294967295}),
        ("float8", {"1.5": 1.5, "-0": -0.0, "1e+20": 1e20, "5e-324": 5e-324}),
        ("float8", {"1.7976931348623157e+308": 1.7976931348623157e308}),
        ("float8", {"Infinity": math.inf, "-Infinity": -math.inf, "2": 2.0}),
        ("float4", {"3.4028235e+38": float(np.finfo(np.float32).max), "0.1": 0.10000000149011612, "1e-45": 2.0**-149}),
        ("bytea", {"\\x": b"", "\\x00": b"\0", "\\xdeadbeef": b"\xde\xad\xbe\xef", "\\x5c78": b"\\x"}),
        ("date", {"2024-02-29": date(2024, 2, 29), "0001-01-01": date(1, 1, 1), "9999-12-31": date(9999, 12, 31)}),
        ("time", {"00:00:00": time(0), "23:59:59.999999": time(23, 59, 59, 999999)}),
        ("time", {"12:34:56.7": time(12, 34, 56, 700000)}),
        ("text", {"": "", " ": " ", "NULL": "NULL", "Grüße 🐘": "Grüße 🐘", "a\nb": "a\nb"}),
        ("uuid", {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}),
        ("jsonb", {'{"a": 1}': '{"a": 1}', "null": "null"}),
        ("numeric", {"NaN": "NaN", "1" * 60 + ".5": "1" * 60 + ".5"}),
        ("other", {"(1,2)": "(1,2)"}),
    ],
)  # fmt: skip
def test_values_of_each_type_are_cast_and_null_stays_null(base: str, values: dict[str, Any]) -> None:
    texts = [None, *values, None]
    assert cast(texts, column(base)) == [None, *values.values(), None]
    assert cast(list(values), column(base)) == list(values.values())


def test_numerics_with_limits_keep_every_digit() -> None:
    values = ["0.00", "-0.01", "99999999.99", "-99999999.99", None]
    expected = [None if v is None else Decimal(v) for v in values]
    assert cast(values, NUMERIC_10_2) == expected
    assert cast(["9" * 38], column("numeric", numeric_modifier(38, 0))) == [Decimal("9" * 38)]
    assert cast(["-0." + "9" * 38], column("numeric", numeric_modifier(38, 38))) == [Decimal("-0." + "9" * 38)]


def test_a_float_that_is_not_a_number_stays_one() -> None:
    assert [math.isnan(value) for value in cast(["NaN", "1"], column("float8"))] == [True, False]
    assert [math.isnan(value) for value in cast(["NaN", "Infinity"], column("float4"))] == [True, False]


def test_negative_zero_keeps_its_sign() -> None:
    assert math.copysign(1, cast(["-0"], column("float8"))[0]) == -1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_numeric_without_a_number_follows_the_policy(value: str) -> None:
    assert cast(["1.50", value, None], NUMERIC_10_2, "null") == [Decimal("1.50"), None, None]
    assert cast(["1.50", value, None], NUMERIC_10_2, "text") == ["1.50", value, None]
    with pytest.raises(UnrepresentableValue) as raised:
        cast(["1.50", value, None], NUMERIC_10_2, "error")
    for part in ("amount", "public.orders", "numeric", repr(value), "decimal128(10, 2)"):
        assert part in str(raised.value)


def test_midnight_at_the_end_of_the_day_follows_the_policy() -> None:
    assert cast(["24:00:00", "01:00:00"], column("time"), "null") == [None, time(1)]
    assert cast(["24:00:00", "01:00:00"], column("time"), "text") == ["24:00:00", "01:00:00"]
    with pytest.raises(UnrepresentableValue, match="24:00:00"):
        cast(["24:00:00"], column("time"), "error")


@pytest.mark.parametrize(
    ("base", "value"),
    [
        ("bool", "true"), ("bool", "T"), ("bool", ""), ("bool", "tf"), ("int4", "2147483648"), ("int4", "0x1F"),
        ("int4", "+1"), ("int4", "1.0"), ("int4", ""), ("int2", "-"), ("oid", "-1"), ("oid", "4294967296"),
        ("float8", "1e400"), ("float8", "inf"), ("float8", "nan"), ("float8", ""), ("float4", "1e39"),
        ("bytea", "abc"), ("bytea", "\\x0"), ("bytea", "\\xgg"), ("bytea", ""),
        ("bytea", "\\xAB"), ("bytea", "\\x00\\x00"),
        ("date", "2024-02-30"), ("date", "infinity!"), ("date", "20240101"), ("date", ""), ("date", "9999999-01-01"),
        ("time", "25:00:00"), ("time", "12:00"), ("time", "24:00:01"), ("time", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["error", "null"])
def test_what_postgres_never_writes_is_refused(base: str, value: str, policy: Unrepresentable) -> None:
    good = {"bool": "t", "bytea": "\\x00", "date": "2024-01-01", "time": "00:00:00"}.get(base, "1")
    with pytest.raises(DecodeError) as raised:
        cast([None, good, value, good], column(base), policy)
    assert f"holds {value!r}" in str(raised.value)


@pytest.mark.parametrize("value", ["100000000.00", "1.234", "1e5", "", "abc", "1.2.3"])
def test_a_numeric_that_its_own_type_could_not_hold_is_refused(value: str) -> None:
    with pytest.raises(DecodeError, match=r"public\.orders"):
        cast(["1.00", value], NUMERIC_10_2, "null")


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(DecodeError) as raised:
        cast(["9" * 100_000], column("int8"))
    assert "9" * 80 in str(raised.value)
    assert len(str(raised.value)) < 250


def test_the_message_does_without_a_table_and_survives_pickling() -> None:
    with pytest.raises(DecodeError) as raised:
        typed(pa.array(["x"]), column("int4"), "error")
    assert str(raised.value).startswith('Column "amount" (int4) holds')
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


EXAMPLES = {
    "bool": ["t", "f"], "int2": ["1", "-2"], "int8": ["10", "-200"], "oid": ["1", "23"], "float8": ["0.5", "Infinity"],
    "bytea": ["\\x", "\\x00ff"], "date": ["2024-01-01", "12345-01-01"], "time": ["00:00:00", "12:34:56.7"],
    "timestamp": ["2024-01-01 00:00:00", "1999-12-31 23:59:59.5"], "interval": ["00:00:00", "1 mon -2 days"],
    "timestamptz": ["2024-01-01 00:00:00+00", "1999-12-31 23:59:59.5+00"], "int4[]": ["{}", "{1,NULL}"],
    "text[]": ['{"a b",c}', '{"\\""}'], "text": ["", "a"],
}  # fmt: skip


@pytest.mark.parametrize("base", EXAMPLES)
@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_column_and_one_of_nulls_only_have_the_right_type(base: str, policy: Unrepresentable) -> None:
    for values in ([], [None], [None, None, None]):
        result = typed(pa.array(values, pa.string()), column(base), policy)
        assert result.type == arrow_type(column(base), policy)
        assert result.to_pylist() == values


@pytest.mark.parametrize("base", EXAMPLES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_slice_of_a_column_is_cast_like_a_column_of_its_own(base: str, policy: Unrepresentable) -> None:
    examples: list[list[str | None]] = [[*EXAMPLES[base]], [None, *EXAMPLES[base], None]]
    for values in examples:
        whole = pa.array(["no value of any type", None, *values, "neither"], pa.string())
        part = typed(whole[2:-1], column(base), policy)
        part.validate(full=True)
        assert part.equals(typed(pa.array(values, pa.string()), column(base), policy))


@pytest.mark.parametrize("base", EXAMPLES)
@pytest.mark.parametrize("policy", POLICIES)
def test_bytes_that_lie_in_the_slot_of_a_null_are_never_looked_at(base: str, policy: Unrepresentable) -> None:
    first, second = EXAMPLES[base]
    whole = pa.array([first, 'any "{thing', second], pa.string())
    dirty = pa.StringArray.from_buffers(3, whole.buffers()[1], whole.buffers()[2], pa.py_buffer(b"\x05"))
    result = typed(dirty, column(base), policy)
    result.validate(full=True)
    assert result.equals(typed(pa.array([first, None, second]), column(base), policy))
