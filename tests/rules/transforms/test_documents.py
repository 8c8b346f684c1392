"""Edits of json and hstore, held against edits of Python's own dictionaries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RuleError
from tests.rules.transforms.settings import documents, steady
from tests.rules.transforms.test_registry import messages
from tests.rules.transforms.transformed import applied, transform


def edited(document: str, *operations: dict[str, Any]) -> str:
    (result,) = applied(transform("json", operations=list(operations)), [document])
    assert result is not None
    return result


def setting(path: object, value: object, **more: object) -> dict[str, Any]:
    return {"operation": "set", "path": path, "value": value, **more}


def deleting(path: object) -> dict[str, Any]:
    return {"operation": "delete", "path": path}


@steady
@given(st.dictionaries(st.text(max_size=3), documents, max_size=4), st.text(min_size=1, max_size=3), documents)
def test_a_key_is_set_and_deleted_and_the_rest_stays(document: dict[str, Any], key: str, value: Any) -> None:
    text = json.dumps(document)
    assert json.loads(edited(text, setting([key], value))) == {**document, key: value}
    without = {other: item for other, item in document.items() if other != key}
    assert json.loads(edited(text, deleting([key]))) == without
    assert json.loads(edited(text, setting([key], value), deleting([key]))) == without


@pytest.mark.parametrize(
    "number", ["1.50", "0.1", "1e400", "-0", "123456789012345678901234567890.123456789012345678901234567890", "1E-7"]
)
def test_numbers_keep_every_digit(number: str) -> None:
    assert edited(f'{{"n": {number}, "x": 1}}', deleting("x")) == f'{{"n": {number}}}'


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ('{"a": [1, 2, 3]}', setting("a[-1]", 9), '{"a": [1, 2, 9]}'),
        ('{"a": [1, 2, 3]}', setting("a.1", 9), '{"a": [1, 9, 3]}'),
        ('{"a": [1, 2, 3]}', setting("a[7]", 9), '{"a": [1, 2, 3, 9]}'),
        ('{"a": [1, 2, 3]}', setting("a[-7]", 9), '{"a": [1, 2, 3]}'),
        ('{"a": [1, 2, 3]}', setting("a.b", 9), '{"a": [1, 2, 3]}'),
        ('{"a": [1, 2, 3]}', deleting("a[0]"), '{"a": [2, 3]}'),
        ('{"a": [1, 2, 3]}', deleting("a[3]"), '{"a": [1, 2, 3]}'),
        ('{"a": 1}', setting("a.b", 9), '{"a": 1}'),
        ('{"a": 1}', deleting("a.b.c"), '{"a": 1}'),
        ('{"a.b": 1}', setting(["a.b"], 9), '{"a.b": 9}'),
        ('{"0": 1}', setting("0", 9), '{"0": 9}'),
        ("[1, 2]", setting([0], None), "[null, 2]"),
        ('"text"', setting("a", 1), '"text"'),
        ("null", deleting("a"), "null"),
        ('{"a": null}', setting("a", 1, missing="skip"), '{"a": 1}'),
        ('{"ü\\u0000": "\\ud83d\\ude00\\n"}', setting("a", "é"), '{"ü\\u0000": "😀\\n", "a": "é"}'),
    ],
)
def test_where_a_path_leads(document: str, operation: dict[str, Any], expected: str) -> None:
    assert edited(document, operation) == expected


def test_a_value_that_is_set_into_one_document_is_not_seen_in_another() -> None:
    edits = transform("json", operations=[setting("a", {"b": 1}), setting("a.c", 2), setting("n", [])])
    other = transform("json", operations=[setting("a", {"b": 1}), deleting("a.b")])
    assert applied(edits, ["{}", '{"x": 1}']) == [
        '{"a": {"b": 1, "c": 2}, "n": []}',
        '{"x": 1, "a": {"b": 1, "c": 2}, "n": []}',
    ]
    assert applied(other, ["{}", '{"x": 1}']) == ['{"a": {}}', '{"x": 1, "a": {}}']
    appended = transform("json", operations=[setting("n", []), setting("n[9]", 1)])
    assert applied(appended, ["{}", '{"x": 1}']) == ['{"n": [1]}', '{"x": 1, "n": [1]}']


def test_a_transform_works_on_what_is_there() -> None:
    operation = {"operation": "set", "path": "p.n", "transform": {"transform": "template", "template": "{value}-{id}"}}
    edits = transform("json", operations=[operation])
    assert edits.columns() == {"id"}
    values = ['{"p": {"n": "x"}}', '{"p": {}}', None, '{"p": {"n": null}}', '{"p": {"n": [1, 2.0]}}']
    assert applied(edits, values, {"id": list("12345")}) == [
        '{"p": {"n": "x-1"}}', '{"p": {}}', None, '{"p": {"n": null}}', '{"p": {"n": "[1, 2.0]-5"}}',
    ]  # fmt: skip


def test_what_a_transform_makes_of_a_number_or_a_boolean_stays_one_if_it_can() -> None:
    rounded = {"operation": "set", "path": "n", "transform": {"transform": "round", "digits": 1}}
    masked = {"operation": "set", "path": "n", "transform": {"transform": "mask"}}
    flipped = {"operation": "set", "path": "b", "transform": {"transform": "literal", "value": False}}
    assert edited('{"n": 2.25}', rounded) == '{"n": 2.3}'
    assert edited('{"n": 2.25}', masked) == '{"n": "****"}'
    assert edited('{"b": true}', flipped) == '{"b": false}'


def test_an_edit_by_chance_is_not_deterministic() -> None:
    inner = {"transform": "uuid", "generator": "random"}
    assert not transform("json", operations=[{"operation": "set", "path": "a", "transform": inner}]).deterministic
    assert transform("json", operations=[setting("a", 1)]).deterministic


@pytest.mark.parametrize("document", ['{"secret": ', "secret", "[" * 100_000 + "]" * 100_000])
def test_a_document_that_cannot_be_read_is_not_repeated(document: str) -> None:
    with pytest.raises(RuleError) as caught:
        edited(document, setting("a", 1))
    assert "secret" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_no_edits_are_a_mistake() -> None:
    assert messages({"transform": "json", "operations": []}) == ["there is nothing to do; write at least one operation"]


def test_mistakes_of_edits_are_named() -> None:
    def first(**operation: object) -> str:
        return messages({"transform": "json", "operations": [operation]})[0]

    assert first(operation="set", path="a") == "set needs a value or a transform; give one of them"
    assert first(operation="delete", path="a", value=1) == "delete takes no value; remove it"
    assert "write it like address.lines[0]" in first(operation="delete", path="a..b")
    assert "write it like address.lines[0]" in first(operation="delete", path=[])
    assert "did you mean" in first(operation="set", path="a", transform={"transform": "maks"})
    assert first(operation="set", path="a", transform={"transform": "mask", "kind": "x"}).startswith("kind: ")
    assert "expected a transform" in first(operation="set", path="a", transform="mask")


pairs = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    st.none() | st.text(max_size=5),
    max_size=4,
)


def hstore(document: dict[str, str | None]) -> str:
    def quoted(text: str | None) -> str:
        return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return ", ".join(f"{quoted(key)}=>{quoted(value)}" for key, value in document.items())


@steady
@given(pairs, st.text(max_size=5), st.none() | st.text(max_size=5))
def test_a_pair_is_set_and_deleted_and_the_rest_stays(
    document: dict[str, str | None], key: str, value: str | None
) -> None:
    put = transform("hstore", operations=[{"operation": "set", "key": key, "value": value}])
    drop = transform("hstore", operations=[{"operation": "delete", "key": key}])
    assert applied(put, [hstore(document)]) == [hstore({**document, key: value})]
    assert applied(drop, [hstore(document)]) == [
        hstore({other: item for other, item in document.items() if other != key})
    ]


def test_a_pair_that_is_not_there_is_skipped_if_so_asked() -> None:
    edit = {"operation": "set", "key": "b", "value": "2", "missing": "skip"}
    assert applied(transform("hstore", operations=[edit]), ['"a"=>"1"', '"b"=>NULL']) == ['"a"=>"1"', '"b"=>"2"']


@pytest.mark.parametrize("value", ["secret", '"a"=>"secret', '"a"=>"1" secret', '"a"=>"1","secret"=>"2"'])
def test_what_is_no_hstore_is_not_repeated(value: str) -> None:
    with pytest.raises(RuleError) as caught:
        applied(transform("hstore", operations=[{"operation": "delete", "key": "a"}]), [value])
    assert "secret" not in repr(caught.value)


def test_a_value_of_hstore_is_text() -> None:
    settings = {"transform": "hstore", "operations": [{"operation": "set", "key": "a", "value": 1}]}
    assert messages(settings) == ["a value of hstore is text or null; write it in quotes"]
