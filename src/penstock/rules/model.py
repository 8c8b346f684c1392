"""``rules:`` of the config file. What they do: ``compiled.py``; what can be wrong with them: ``checks.py``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator
from pydantic import ValidationError as Invalid
from pydantic_core import InitErrorDetails

from penstock.config.mistakes import mistake, nearest, quoted
from penstock.config.settings import Section, Settings
from penstock.config.tables import TablePattern
from penstock.rules.conditions import AnyCondition
from penstock.rules.patterns import NAMES, placeholders, stars

Operation = Literal["insert", "update", "delete"]
OPERATIONS: tuple[Operation, ...] = ("insert", "update", "delete")

_COLUMN_HINT = "write it like {transform: mask}, {exclude: true} or {keep: true}"
_FUNCTION = re.compile(r"[\w.]+:\w+")


class Exclude(Settings):
    """The column does not go to the sinks."""

    exclude: Literal[True, "source"]


class Keep(Settings):
    """The column goes as it is: for ``coverage: strict``, which wants every column mentioned."""

    keep: Literal[True]


def _column_rule(value: Any) -> Any:
    if isinstance(value, Settings):
        return value
    if not isinstance(value, dict):
        raise mistake(f"expected what becomes of the column; {_COLUMN_HINT}")
    if "transform" in value:
        from penstock.rules.transforms import parse_transform  # fake data and ciphers: only for those who use them

        return parse_transform(value)
    for key, kind in (("exclude", Exclude), ("keep", Keep)):
        if key in value:
            return kind.model_validate(value)
    known = ("transform", "exclude", "keep")
    if len(value) == 1 and isinstance(key := next(iter(value)), str):
        raise mistake(f"unknown key{quoted(key)}; {nearest(key, known)}")
    raise mistake(f"says nothing about the column; {_COLUMN_HINT}")


ColumnRule = SerializeAsAny[Annotated[Any, BeforeValidator(_column_rule)]]


def _template(text: str) -> str:
    try:
        placeholders(text)
    except ValueError:
        raise mistake(
            "braces that are no placeholder; write {1}, {schema} or {table}, or {{ and }} for braces"
        ) from None
    return text


def _name(text: str) -> str:
    if not text:
        raise mistake("is empty; leave the key out to keep the name")
    return text


Template = Annotated[str, AfterValidator(_name), AfterValidator(_template)]
Name = Annotated[str, AfterValidator(_name)]


class Origin(Settings):
    """A column that says which table a row comes from, for tables that are merged into one."""

    column: Name
    value: Template = "{schema}.{table}"


class Rename(Section):
    to_schema: Template | None = Field(default=None, alias="schema")  # `schema` is a method of every pydantic model
    table: Template | None = None
    columns: dict[str, Name] = Field(default_factory=dict)
    origin: Origin | None = None
    truncate: Literal["stop", "ignore", "pass"] = "stop"

    @property
    def templates(self) -> dict[tuple[str, ...], str]:
        """By the path to them."""
        found: dict[tuple[str, ...], str | None] = {("schema",): self.to_schema, ("table",): self.table}
        if self.origin is not None:
            found["origin", "value"] = self.origin.value
        return {path: text for path, text in found.items() if text is not None}

    @model_validator(mode="after")
    def _distinct_columns(self) -> Self:
        names = [*self.columns.values(), *([self.origin.column] if self.origin else [])]
        for name in names:
            if names.count(name) > 1:
                raise mistake(f"two columns would be called{quoted(name)}; give each a name of its own")
        return self


def _some(value: Any) -> Any:
    if isinstance(value, list | tuple) and not value:
        raise mistake("is empty; write at least one, or leave the key out")
    return value


def _later(text: str) -> str:
    raise mistake("code in rules is not in this version yet; remove it")


def _function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise mistake("not a function; write it like package.module:function")
    return text


class RuleSettings(Section):
    tables: Annotated[tuple[TablePattern, ...], BeforeValidator(_some)]
    operations: Annotated[tuple[Operation, ...], BeforeValidator(_some)] = OPERATIONS
    where: AnyCondition | None = None
    columns: dict[str, ColumnRule] = Field(default_factory=dict)
    rename: Rename = Rename()
    sql: Annotated[str, AfterValidator(_later)] | None = None
    python: Annotated[str, AfterValidator(_function), AfterValidator(_later)] | None = None
    python_frame: Annotated[str, AfterValidator(_function), AfterValidator(_later)] | None = None
    allow_uniqueness_loss: bool = False
    coverage: Literal["relaxed", "strict"] = "relaxed"

    @model_validator(mode="after")
    def _known_placeholders(self) -> Self:
        """Every pattern has to catch what the templates ask for."""
        fewest = min(sum(stars(pattern)) for pattern in self.tables)
        known = {*NAMES, *map(str, range(1, fewest + 1))}
        problems = [
            InitErrorDetails(
                type=mistake(f"{{{name}}} stands for nothing; {_caught(fewest)}"), loc=("rename", *path), input=None
            )
            for path, template in self.rename.templates.items()
            for name in placeholders(template)
            if name not in known
        ]
        if problems:
            raise Invalid.from_exception_data("rule", problems)
        return self


def _caught(fewest: int) -> str:
    numbered = f", {{1}} to {{{fewest}}} for what each * caught" if fewest else "; a pattern without * catches nothing"
    return f"use {{schema}} or {{table}}{numbered}"
