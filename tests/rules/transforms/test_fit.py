"""What fits which column."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.changes.batch import Column
from penstock.rules.transforms import TRANSFORMS, transform_class
from tests.rules.transforms.transformed import column, transform

DAYS = {"min": "2000-01-01", "max": "2024-12-31"}
FITTING: list[tuple[str, dict[str, Any], list[str]]] = [
    ("regex", {"pattern": "a"}, ["text", "varchar(5)", "bpchar(3)", "name"]),
    ("mask", {}, ["text", "varchar(1)"]),
    ("mask", {"kind": "password"}, ["varchar(8)"]),
    ("hash", {}, ["text", "varchar(64)"]),
    ("hash", {"length": 10}, ["varchar(10)"]),
    ("encrypt", {"key_hex": "00" * 32}, ["text", "varchar(24)"]),
    ("literal", {"value": "7"}, ["text", "int2", "numeric(10,2)", "float8", "jsonb", "varchar(1)", "enum"]),
    ("literal", {"value": "2024-02-29"}, ["date", "text"]),
    ("literal", {"value": "{1,2}"}, ["int4[]"]),
    ("literal", {"value": "5a5b7a30-31d5-4d22-9a4f-0c1f4a6f2c11"}, ["uuid"]),
    ("null", {}, ["text", "int4", "jsonb", "int4[]", "other"]),
    ("template", {"template": "{value}"}, ["text"]),
    ("truncate", {"length": 3}, ["text"]),
    ("truncate", {"digits": 1}, ["int4", "numeric", "float8"]),
    ("truncate", {"unit": "hour"}, ["timestamp", "timestamptz"]),
    ("round", {"unit": "month"}, ["date", "timestamptz"]),
    ("bucket", {"size": "0.5"}, ["numeric", "numeric(10,1)", "float4"]),
    ("bucket", {"size": 10}, ["int8", "numeric(10,2)"]),
    ("noise", {"amount": 1}, ["int4", "numeric"]),
    ("noise", {"interval": "1d"}, ["date", "timestamp"]),
    ("shift_dates", {"days": 1}, ["date", "timestamptz"]),
    ("json", {"operations": [{"operation": "delete", "path": "a"}]}, ["json", "jsonb"]),
    ("string", {}, ["text", "varchar(100)"]),
    ("string", {"preserve_length": True}, ["varchar(1)"]),
    ("integer", {}, ["int4", "int8", "numeric", "numeric(12,2)", "text", "varchar(10)"]),
    ("float", {}, ["numeric", "float8", "numeric(6,2)"]),
    ("boolean", {}, ["bool"]),
    ("uuid", {}, ["uuid", "text", "varchar(36)"]),
    ("date", DAYS, ["date", "text"]),
    ("timestamp", DAYS, ["timestamp", "text", "varchar(19)"]),
    ("timestamp", {**DAYS, "zone": True}, ["timestamptz"]),
    ("unix_timestamp", DAYS, ["int4", "int8", "numeric", "text"]),
    ("choice", {"choices": [1, None]}, ["int2", "text"]),
    ("first_name", {}, ["text", "varchar(50)"]),
    ("full_name", {"max_length": 10}, ["varchar(10)"]),
    ("full_name", {"preserve_length": True}, ["varchar(3)"]),
    ("last_name", {}, ["text"]),
    ("email", {}, ["text", "varchar(100)"]),
    ("email", {"max_length": 20}, ["varchar(20)"]),
    ("phone", {}, ["text", "varchar(30)"]),
    ("phone", {"preserve_format": True}, ["varchar(3)"]),
    ("phone", {"prefix": "+1"}, ["varchar(10)"]),
    ("address", {}, ["text", "varchar(200)"]),
    ("company", {}, ["text"]),
]
MISFITS: list[tuple[str, dict[str, Any], str, str]] = [
    ("regex", {"pattern": "a"}, "int4", "it needs a text column, and the column is int4"),
    ("mask", {"kind": "password"}, "varchar(7)", "its results have up to 8 characters, and varchar(7) holds 7"),
    ("hash", {}, "varchar(63)", "its results have up to 64 characters, and varchar(63) holds 63; set a smaller length"),
    ("encrypt", {"key_hex": "00" * 32}, "varchar(23)", "24 characters"),
    ("literal", {"value": "x"}, "int4", "the value is not one of type int4"),
    ("literal", {"value": "40000"}, "int2", "the value is not one of type int2"),
    ("literal", {"value": "1.234"}, "numeric(10,2)", "the value is not one"),
    ("literal", {"value": "x"}, "jsonb", "the value is not one of type jsonb"),
    ("literal", {"value": "x"}, "uuid", "the value is not one of type uuid"),
    ("literal", {"value": "2024-02-30"}, "date", "the value is not one of type date"),
    ("literal", {"value": "toolong"}, "varchar(3)", "7 characters"),
    ("template", {"template": "{value}"}, "jsonb", "a text column"),
    ("truncate", {"length": 3}, "date", "a text column"),
    ("truncate", {"digits": 3}, "text", "it needs a number"),
    ("truncate", {"unit": "hour"}, "date", "a date has no hour"),
    ("round", {"unit": "month"}, "text", "a date or a timestamp"),
    ("bucket", {"size": "0.5"}, "int4", "begins between integers"),
    ("bucket", {"size": "0.25"}, "numeric(10,1)", "more digits than numeric(10,1) holds"),
    ("noise", {"amount": 1}, "date", "a number"),
    ("noise", {"amount": 1, "max": 40000}, "int2", "outside of int2"),
    ("shift_dates", {"days": 1}, "int4", "a date or a timestamp"),
    ("json", {"operations": [{"operation": "delete", "path": "a"}]}, "text", "a json or jsonb column"),
    ("hstore", {"operations": [{"operation": "delete", "key": "a"}]}, "jsonb", "an hstore column"),
    ("string", {}, "varchar(99)", "set max_length"),
    ("integer", {}, "int2", "int2 holds numbers from -32768 to 32767"),
    ("integer", {"max": 1000}, "numeric(4,2)", "more digits"),
    ("integer", {}, "date", "a number"),
    ("float", {}, "int4", "a numeric or float column"),
    ("float", {"precision": 3}, "numeric(10,2)", "more digits"),
    ("boolean", {}, "text", "a boolean column"),
    ("uuid", {}, "varchar(35)", "36 characters"),
    ("uuid", {}, "int4", "a uuid column"),
    ("date", DAYS, "timestamp", "a date column"),
    ("timestamp", DAYS, "timestamptz", "set zone: true"),
    ("timestamp", {**DAYS, "zone": True}, "timestamp", "set zone: false"),
    ("timestamp", DAYS, "date", "a timestamp"),
    ("unix_timestamp", DAYS, "int2", "int2 holds numbers"),
    ("unix_timestamp", {**DAYS, "unit": "millisecond"}, "int4", "int4 holds numbers"),
    ("choice", {"choices": ["1", "x"]}, "int4", "one of the choices is not one of type int4"),
    ("first_name", {}, "varchar(3)", "set max_length"),
    ("full_name", {"max_length": 11}, "varchar(10)", "11 characters"),
    ("email", {}, "varchar(12)", "set max_length"),
    ("phone", {}, "varchar(5)", "set max_length"),
    ("phone", {"prefix": "+1"}, "varchar(9)", "10 characters"),
    ("address", {}, "varchar(10)", "set max_length"),
    ("company", {}, "int4", "a text column"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "settings", "type_name"), [(name, settings, one) for name, settings, types in FITTING for one in types]
)
def test_it_fits(name: str, settings: dict[str, Any], type_name: str) -> None:
    assert transform(name, **settings).misfit(column(type_name)) is None


@pytest.mark.parametrize(("name", "settings", "type_name", "sentence"), MISFITS)
def test_it_does_not_fit_and_says_why(name: str, settings: dict[str, Any], type_name: str, sentence: str) -> None:
    assert sentence in str(transform(name, **settings).misfit(column(type_name)))


@pytest.mark.parametrize("name", sorted(set(TRANSFORMS) - {"null"}))
def test_arrays_are_for_literals_only(name: str) -> None:
    found = transform_class(name)
    misfits = [transform(name, **example.settings).misfit(column("int4[]")) for example in found.examples]
    assert None not in misfits or name == "choice"


def test_types_of_extensions_go_by_their_name() -> None:
    for type_name in ("citext", "public.citext", 'ext."citext"'):
        assert transform("mask").misfit(Column("c", 0, type_name, "other")) is None
    edit = transform("hstore", operations=[{"operation": "delete", "key": "a"}])
    assert edit.misfit(Column("c", 0, "public.hstore", "other")) is None
    assert transform("mask").misfit(Column("c", 0, "public.hstore", "other")) is not None
