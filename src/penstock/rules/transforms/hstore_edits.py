"""Edits within hstore."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock.changes import Column
from penstock.config.mistakes import mistake
from penstock.rules.transforms.contract import Example, cannot_change
from penstock.rules.transforms.documents import MISSING, Documents, Edit
from penstock.rules.transforms.fit import not_of

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
