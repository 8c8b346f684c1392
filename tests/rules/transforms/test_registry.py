"""What holds for every transform: its examples, NULL, empty and sliced arrays, pickling, and what its errors say."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_core import PydanticCustomError

from penstock.rules.transforms import TRANSFORMS, parse_transform, transform_class
from penstock.rules.transforms.contract import Columns, Example, Transform
from tests.rules.transforms.transformed import applied, text, transform

EXAMPLES = [(name, example) for name in TRANSFORMS for example in transform_class(name).examples]


def made(name: str, example: Example) -> Transform:
    return transform(name, **example.settings)


def ids(parameter: object) -> str:
    return json.dumps(parameter.settings) if isinstance(parameter, Example) else str(parameter)


each_example = pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=ids)
each_name = pytest.mark.parametrize("name", TRANSFORMS)


@each_example
def test_the_examples_of_the_documentation_are_true(name: str, example: Example) -> None:
    row = {column: [value] for column, value in example.row.items()}
    assert applied(made(name, example), [example.value], row) == [example.result]


@each_example
def test_null_stays_null_unless_the_settings_say_otherwise(name: str, example: Example) -> None:
    row = {column: [value] * 3 for column, value in example.row.items()}
    changed = made(name, example)
    result = applied(changed, [None, example.value, None], row)
    if changed.nulls == "replace":
        assert None not in result
    else:
        assert [result[0], result[2]] == [None, None]
        assert result[1] == example.result


@each_example
def test_a_slice_of_an_array_gives_the_slice_of_the_result(name: str, example: Example) -> None:
    padded = text(["Äpfel", None, example.value, None, example.value, "z" * 40])
    row = {column: text([value, value]) for column, value in example.row.items()}
    whole = made(name, example).apply(text([example.value, None]), Columns(row)).to_pylist()
    around = {column: text([value] * 3) for column, value in example.row.items()}
    part = made(name, example).apply(padded.slice(2, 3), Columns(around)).to_pylist()
    assert (part[0], part[2]) == (whole[0], whole[0])


@each_example
def test_no_rows_and_only_nulls_are_nothing_special(name: str, example: Example) -> None:
    changed = made(name, example)
    assert applied(changed, [], {column: [] for column in example.row}) == []
    if changed.nulls == "keep":
        assert applied(changed, [None, None], {column: [None, None] for column in example.row}) == [None, None]


@each_example
def test_a_transform_that_was_pickled_does_the_same(name: str, example: Example) -> None:
    changed = made(name, example)
    row = {column: [value] for column, value in example.row.items()}
    applied(changed, [example.value], row)  # with whatever it remembers of that
    assert applied(pickle.loads(pickle.dumps(changed)), [example.value], row) == [example.result]


@each_name
def test_every_transform_is_documented_with_examples(name: str) -> None:
    found = transform_class(name)
    assert found.name == name
    assert found.summary
    assert found.fits
    assert found.examples
    assert {key: field.description for key, field in found.model_fields.items() if not field.description} == {}


@each_name
def test_no_setting_that_is_secret_is_shown(name: str) -> None:
    for example in transform_class(name).examples:
        changed = made(name, example)
        for key, value in changed:
            if isinstance(value, SecretStr) and value.get_secret_value():
                assert value.get_secret_value() not in repr(changed), key


def test_an_unknown_transform_names_the_nearest_one() -> None:
    with pytest.raises(PydanticCustomError, match='unknown transform "maks"; did you mean "mask"'):
        transform("maks")


def test_a_transform_without_a_name_is_a_mistake() -> None:
    with pytest.raises(PydanticCustomError, match="unknown transform"):
        parse_transform({"kind": "email"})


def test_null_may_be_written_without_quotes() -> None:
    assert parse_transform({"transform": None}).name == "null"


def messages(settings: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        parse_transform(settings)
    return [error["msg"] for error in caught.value.errors()]


def test_an_unknown_parameter_names_the_nearest_one() -> None:
    assert messages({"transform": "mask", "knid": "email"}) == ['unknown key "knid"; did you mean "kind"?']


def test_a_parameter_that_cannot_come_from_a_column_is_a_mistake() -> None:
    message = "mask takes no parameter from another column; remove it"
    assert messages({"transform": "mask", "dynamic": {"kind": "other"}}) == [message]


def test_nulls_are_replaced_only_by_transforms_that_can() -> None:
    message = "mask makes nothing of NULL; remove nulls: replace"
    assert messages({"transform": "mask", "nulls": "replace"}) == [message]


@pytest.mark.process
def test_the_registry_loads_no_transform_before_it_is_used() -> None:
    script = """
import sys, penstock.rules.transforms as registry
before = [name for name in sys.modules if name.startswith("penstock.rules.transforms.")]
registry.transform_class("mask")
print(before, "penstock.rules.transforms.mask" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[] True"
