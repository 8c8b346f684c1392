"""What edits of json and hstore documents have in common.

Edits within json and jsonb. Numbers keep every digit.

Edits within hstore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import pyarrow as pa
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from penstock.changes.batch import Column
from penstock.rules.transforms import parse_transform
from penstock.rules.transforms.contract import Example, Row, Transform, cannot_change, per_distinct
from penstock.rules.transforms.generator import JSON, not_of
from penstock.settings.base import Settings
from penstock.settings.mistakes import mistake, show_path


class Missing:
    """There is nothing at that place."""


MISSING = Missing()


def _inner(value: Any) -> Any:
    if isinstance(value, Transform):
        return value
    if not isinstance(value, Mapping):
        raise mistake("expected a transform; write it like {transform: mask, kind: email}")
    try:
        return parse_transform(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = show_path(first["loc"])
        raise mistake(f"{place}: {first['msg']}" if place else first["msg"]) from None


class Edit(Settings):
    operation: Literal["set", "delete"] = Field(description="What to do.")
    value: Any = Field(default=None, description="What to set.")
    transform: Annotated[SerializeAsAny[Transform], BeforeValidator(_inner)] | None = Field(
        default=None, description="Sets what this transform makes of what is there: `{transform: mask, kind: email}`."
    )
    missing: Literal["create", "skip"] = Field(
        default="create",
        description="What to do where nothing is there: `create` it (not with a transform), or `skip`.",
    )

    @model_validator(mode="after")
    def _with_something_to_set(self) -> Self:
        given = [name for name in ("value", "transform") if name in self.model_fields_set]
        if self.operation == "delete" and given:
            raise mistake(f"delete takes no {given[0]}; remove it")
        if self.operation == "set" and len(given) != 1:
            raise mistake("set needs a value or a transform; give one of them")
        return self


E = TypeVar("E", bound=Edit)


class Documents(Transform, Generic[E]):
    """Loops in Python: over the distinct documents, or over all of them where a transform works on what they hold."""

    operations: tuple[E, ...] = Field(description="Edits, one after the other; see below.")

    @field_validator("operations")
    @classmethod
    def _at_least_one(cls, operations: tuple[E, ...]) -> tuple[E, ...]:
        if not operations:
            raise mistake("there is nothing to do; write at least one operation")
        return operations

    @property
    def deterministic(self) -> bool:
        return all(edit.transform is None or edit.transform.deterministic for edit in self.operations)

    def columns(self) -> set[str]:
        inner = [edit.transform.columns() for edit in self.operations if edit.transform is not None]
        return super().columns().union(*inner)

    def prepare(self) -> None:
        for edit in self.operations:
            if edit.transform is not None:
                edit.transform.prepare()

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        if all(edit.transform is None for edit in self.operations):
            return per_distinct(values, lambda text: None if text is None else self._edited(text))
        documents = [None if text is None else self.read(text) for text in values.to_pylist()]
        for edit in self.operations:
            if edit.transform is None:
                documents = [None if document is None else self._done(document, edit) for document in documents]
            else:
                documents = self._transformed(documents, edit, edit.transform, row)
        return pa.array([None if document is None else self.write(document) for document in documents], pa.string())

    def _edited(self, text: str) -> str:
        document = self.read(text)
        for edit in self.operations:
            document = self._done(document, edit)
        return self.write(document)

    def _done(self, document: Any, edit: E) -> Any:
        if edit.operation == "delete":
            return self.without(document, edit)
        skipped = edit.missing == "skip" and self.get(document, edit) is MISSING
        return document if skipped else self.put(document, edit, deepcopy(edit.value))

    def _transformed(self, documents: list[Any], edit: E, transform: Transform, row: Row) -> list[Any]:
        there = [MISSING if document is None else self.get(document, edit) for document in documents]
        texts = pa.array([None if value is MISSING else self.as_text(value) for value in there], pa.string())
        changed = transform.apply(texts, row).to_pylist()
        return [
            document if was is MISSING else self.put(document, edit, self.from_text(text, was))
            for document, was, text in zip(documents, there, changed, strict=True)
        ]

    def read(self, text: str) -> Any:
        raise NotImplementedError

    def write(self, document: Any) -> str:
        raise NotImplementedError

    def get(self, document: Any, edit: E) -> Any:
        """What is there, or MISSING."""
        raise NotImplementedError

    def put(self, document: Any, edit: E, value: Any) -> Any:
        raise NotImplementedError

    def without(self, document: Any, edit: E) -> Any:
        raise NotImplementedError

    def as_text(self, value: Any) -> str | None:
        raise NotImplementedError

    def from_text(self, text: str | None, was: Any) -> Any:
        raise NotImplementedError


_STEP = re.compile(r"[^.\[\]]+|\[(-?[0-9]+)\]")
_PATH = re.compile(r"[^.\[\]]+(\.[^.\[\]]+|\[-?[0-9]+\])*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INDEX = re.compile(r"-?[0-9]+")


class Number(str):
    """A number as it was written."""


def _path(value: Any) -> Any:
    if isinstance(value, str) and _PATH.fullmatch(value):
        return tuple(match[1] or match[0] for match in _STEP.finditer(value))
    if isinstance(value, list | tuple) and value and all(isinstance(step, str | int) for step in value):
        return tuple(str(step) for step in value)
    raise mistake('expected a path; write it like address.lines[0], or as a list like ["address", "lines", 0]')


class JsonEdit(Edit):
    path: Annotated[tuple[str, ...], BeforeValidator(_path)] = Field(
        description="Where: `address.lines[0]`, or a list of steps, for keys with dots. A number counts in an array, from its"
        " end if negative."
    )


class Json(Documents[JsonEdit]):
    name: ClassVar = "json"
    summary: ClassVar = "Sets and deletes parts of a json document, or transforms them."
    fits: ClassVar = "json and jsonb"
    examples: ClassVar = (
        Example({"operations": [{"operation": "delete", "path": "ssn"}]}, '{"id": 1.50, "ssn": "078"}', '{"id": 1.50}'),
        Example(
            {"operations": [{"operation": "set", "path": "address.lines[0]", "value": "hidden"}]},
            '{"address": {"lines": ["12 Main St", "Apt 4"]}}',
            '{"address": {"lines": ["hidden", "Apt 4"]}}',
        ),
        Example(
            {
                "operations": [
                    {"operation": "set", "path": "email", "transform": {"transform": "mask", "kind": "email"}}
                ]
            },
            '{"email": "ada@example.com"}',
            '{"email": "a**@example.com"}',
        ),
        Example(
            {"operations": [{"operation": "set", "path": "a.b", "value": {"c": None}}]},
            "{}",
            '{"a": {"b": {"c": null}}}',
        ),
        Example(
            {"operations": [{"operation": "set", "path": "a", "value": 1, "missing": "skip"}]}, '{"b": 2}', '{"b": 2}'
        ),
    )

    def misfit(self, column: Column) -> str | None:
        return not_of(column, JSON, "a json or jsonb column")

    def read(self, text: str) -> Any:
        try:
            return json.loads(text, parse_float=Number, parse_int=Number)
        except (ValueError, RecursionError):
            raise cannot_change(self.name) from None

    def write(self, document: Any) -> str:
        return _written(document)

    def get(self, document: Any, edit: JsonEdit) -> Any:
        for step in edit.path:
            document = _at(document, step)
        return document

    def put(self, document: Any, edit: JsonEdit, value: Any) -> Any:
        return _put(document, edit.path, value)

    def without(self, document: Any, edit: JsonEdit) -> Any:
        *above, last = edit.path
        holder = document
        for step in above:
            holder = _at(holder, step)
        if _at(holder, last) is not MISSING:
            del holder[int(last) if isinstance(holder, list) else last]
        return document

    def as_text(self, value: Any) -> str | None:
        return value if isinstance(value, str) else None if value is None else _written(value)

    def from_text(self, text: str | None, was: Any) -> Any:
        """Numbers stay numbers and booleans booleans, if what became of them still is one."""
        if text is None:
            return None
        if isinstance(was, Number) and _NUMBER.fullmatch(text):
            return Number(text)
        if isinstance(was, bool) and text in ("t", "f", "true", "false"):
            return text.startswith("t")
        return text


def _at(document: Any, step: str) -> Any:
    if isinstance(document, dict):
        return document.get(step, MISSING)
    if isinstance(document, list) and _INDEX.fullmatch(step) and -len(document) <= int(step) < len(document):
        return document[int(step)]
    return MISSING


def _put(document: Any, path: tuple[str, ...], value: Any) -> Any:
    """What is on the way there and is no object is left as it is; an index behind an array's end appends to it."""
    step, *rest = path
    below = _at(document, step)
    changed = _put({} if below is MISSING else below, tuple(rest), value) if rest else value
    if isinstance(document, dict):
        document[step] = changed
    elif isinstance(document, list) and below is not MISSING:
        document[int(step)] = changed
    elif isinstance(document, list) and _INDEX.fullmatch(step) and int(step) >= 0:
        document.append(changed)
    return document


def _written(document: Any) -> str:
    """As Postgres writes jsonb."""
    if isinstance(document, Number):
        return str(document)
    if isinstance(document, dict):
        return "{" + ", ".join(f"{_text(key)}: {_written(value)}" for key, value in document.items()) + "}"
    if isinstance(document, list):
        return "[" + ", ".join(map(_written, document)) + "]"
    return _text(document)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PAIR = re.compile(rf"{_QUOTED}=>(?:NULL|{_QUOTED})(?:, |\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE = re.compile(r'(["\\])')


class HstoreEdit(Edit):
    key: str = Field(description="Which pair.")

    @field_validator("value")
    @classmethod
    def _text_or_null(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, str):
            raise mistake("a value of hstore is text or null; write it in quotes")
        return value


class Hstore(Documents[HstoreEdit]):
    name: ClassVar = "hstore"
    summary: ClassVar = "Sets and deletes pairs of an hstore, or transforms their values."
    fits: ClassVar = "hstore"
    examples: ClassVar = (
        Example({"operations": [{"operation": "delete", "key": "ssn"}]}, '"a"=>"1", "ssn"=>"078"', '"a"=>"1"'),
        Example({"operations": [{"operation": "set", "key": "a", "value": None}]}, '"a"=>"1"', '"a"=>NULL'),
        Example(
            {"operations": [{"operation": "set", "key": "b", "value": 'x"y'}]}, '"a"=>"1"', '"a"=>"1", "b"=>"x\\"y"'
        ),
        Example(
            {"operations": [{"operation": "set", "key": "name", "transform": {"transform": "mask"}}]},
            '"name"=>"Ada"',
            '"name"=>"***"',
        ),
    )

    def misfit(self, column: Column) -> str | None:
        return not_of(column, {"hstore"}, "an hstore column")

    def read(self, text: str) -> dict[str, str | None]:
        document, end = {}, 0
        for pair in _PAIR.finditer(text):
            if pair.start() != end:
                break
            document[_plain(pair[1])] = None if pair[2] is None else _plain(pair[2])
            end = pair.end()
        if end != len(text):
            raise cannot_change(self.name)
        return document

    def write(self, document: Any) -> str:
        return ", ".join(f"{_quoted(key)}=>{_quoted(value)}" for key, value in document.items())

    def get(self, document: Any, edit: HstoreEdit) -> Any:
        return document.get(edit.key, MISSING)

    def put(self, document: Any, edit: HstoreEdit, value: Any) -> Any:
        return document | {edit.key: value}

    def without(self, document: Any, edit: HstoreEdit) -> Any:
        return {key: value for key, value in document.items() if key != edit.key}

    def as_text(self, value: Any) -> str | None:
        return None if value is None else str(value)

    def from_text(self, text: str | None, was: Any) -> Any:
        return text


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else '"' + _TO_ESCAPE.sub(r"\\\1", text) + '"'
