"""Edits within json and jsonb. Numbers keep every digit."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from penstock.changes import Column
from penstock.config.mistakes import mistake
from penstock.rules.transforms.contract import Example, cannot_change
from penstock.rules.transforms.documents import MISSING, Documents, Edit
from penstock.rules.transforms.fit import JSON, not_of

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
