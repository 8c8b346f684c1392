"""Text put together from the value and the other columns of its row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from penstock.changes.batch import Column
from penstock.rules.transforms.contract import Example, Row, Transform
from penstock.rules.transforms.generator import not_text
from penstock.settings.mistakes import mistake, nearest, quoted

VALUE = "value"
_PART = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}|]+)(?P<steps>(?:\|[^{}|]*)*)\}|[{}]|[^{}]+")
_STEP = re.compile(r"(?P<name>[a-z]+)(?::(?P<count>[0-9]+))?")

Step = Callable[[pa.StringArray], pa.StringArray]


@dataclass(frozen=True)
class Variable:
    name: str
    steps: tuple[Step, ...]

    def of(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        found = pc.fill_null(values if self.name == VALUE else row.column(self.name), "")
        for step in self.steps:
            found = step(found)
        return found


class Text:
    """A template that has been read: plain text and variables in turn."""

    def __init__(self, template: str) -> None:
        self.parts = [_part(match) for match in _PART.finditer(template)]

    @property
    def columns(self) -> set[str]:
        return {part.name for part in self.parts if isinstance(part, Variable)} - {VALUE}

    def render(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        if not any(isinstance(part, Variable) for part in self.parts):
            return pa.repeat(pa.scalar("".join(str(part) for part in self.parts)), len(values))
        return pc.binary_join_element_wise(
            *(part.of(values, row) if isinstance(part, Variable) else part for part in self.parts), ""
        )


@lru_cache
def read(template: str) -> Text:
    return Text(template)


def _part(match: re.Match[str]) -> str | Variable:
    text = match[0]
    if match["name"] is not None:
        steps = match["steps"].split("|")[1:]
        return Variable(match["name"].strip(), tuple(_step(step.strip()) for step in steps))
    if text in ("{", "}"):
        raise mistake("a brace without its other half; write {column} for a variable, {{ or }} for a brace")
    return {"{{": "{", "}}": "}"}.get(text, text)


def _step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    found = match and (_PLAIN if match["count"] is None else _COUNTED).get(match["name"])
    if match is None or found is None:
        raise mistake(f"unknown step{quoted(text)} in the template; {nearest(text, [*_PLAIN, 'first:4', 'last:4'])}")
    return found(0 if match["count"] is None else int(match["count"]))


_PLAIN: dict[str, Callable[[int], Step]] = {
    "lower": lambda _: pc.utf8_lower,
    "upper": lambda _: pc.utf8_upper,
    "trim": lambda _: pc.utf8_trim_whitespace,
}
_COUNTED: dict[str, Callable[[int], Step]] = {
    "first": lambda count: lambda text: pc.utf8_slice_codeunits(text, 0, count),
    "last": lambda count: lambda text: pc.utf8_slice_codeunits(text, -count) if count else pa.array([""] * len(text)),
}


class Template(Transform):
    name: ClassVar = "template"
    summary: ClassVar = "Text with the value and other columns of the row as variables."
    fits: ClassVar = "text"
    takes_nulls = True
    examples: ClassVar = (
        Example({"template": "user {id}"}, "ada", "user 7", {"id": "7"}),
        Example({"template": "{first|first:1}. {value|upper}"}, "King", "A. KING", {"first": "Ada"}),
        Example({"template": "{{{value}}}"}, "x", "{x}"),
        Example({"template": "{value}{nick}"}, "x", "x", {"nick": None}),
    )

    template: str = Field(
        description="`{value}` is the value, `{column}` another column of the row as the source has it (NULL reads as empty"
        " text). Steps after a bar: `{name|lower}`, `upper`, `trim`, `first:3`, `last:4`. `{{` and `}}` are braces."
    )

    @field_validator("template")
    @classmethod
    def _readable(cls, template: str) -> str:
        read(template)
        return template

    def columns(self) -> set[str]:
        return read(self.template).columns

    def misfit(self, column: Column) -> str | None:
        return not_text(column)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return read(self.template).render(values, row)
