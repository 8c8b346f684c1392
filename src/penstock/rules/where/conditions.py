"""``where`` as the config file writes it: comparisons of a column with a value, combined by all, any and not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from penstock.settings.base import Settings
from penstock.settings.mistakes import mistake, nearest, quoted

Op = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "starts_with", "matches", "is_null"]
OPS: tuple[Op, ...] = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "starts_with", "matches", "is_null")

_HINT = "write it like {column: status, eq: active}"


class Condition(Settings):
    """What a row has to fulfil."""

    def comparisons(self) -> Iterator[tuple[tuple[str | int, ...], Comparison]]:
        """Every comparison in it, with the path to it from here."""
        raise NotImplementedError

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(comparison.column for _, comparison in self.comparisons())


def _condition(value: Any) -> Any:
    """One of the classes below, by the keys that are there."""
    if isinstance(value, Condition):
        return value
    if not isinstance(value, dict) or not value:
        raise mistake(f"expected a condition; {_HINT}")
    for combination in _COMBINATIONS:
        word = combination.word
        if word in value:
            if len(value) > 1:
                raise mistake(f'"{word}" stands alone; put what is beside it into its list')
            return combination.model_validate(value)
    return Comparison.model_validate(value)


AnyCondition = SerializeAsAny[Annotated[Condition, BeforeValidator(_condition)]]


def _some(value: Any) -> Any:
    if isinstance(value, list | tuple) and not value:
        raise mistake("is empty; write at least one condition")
    return value


class Combination(Condition):
    word: ClassVar[str]


class All(Combination):
    word = "all"
    parts: Annotated[tuple[AnyCondition, ...], BeforeValidator(_some)] = Field(alias="all")

    def comparisons(self) -> Iterator[tuple[tuple[str | int, ...], Comparison]]:
        yield from _below("all", self.parts)


class AnyOf(Combination):
    word = "any"
    parts: Annotated[tuple[AnyCondition, ...], BeforeValidator(_some)] = Field(alias="any")

    def comparisons(self) -> Iterator[tuple[tuple[str | int, ...], Comparison]]:
        yield from _below("any", self.parts)


class Not(Combination):
    word = "not"
    part: AnyCondition = Field(alias="not")

    def comparisons(self) -> Iterator[tuple[tuple[str | int, ...], Comparison]]:
        for path, comparison in self.part.comparisons():
            yield ("not", *path), comparison


_COMBINATIONS: tuple[type[Combination], ...] = (All, AnyOf, Not)


def _below(word: str, parts: tuple[Condition, ...]) -> Iterator[tuple[tuple[str | int, ...], Comparison]]:
    for index, part in enumerate(parts):
        for path, comparison in part.comparisons():
            yield (word, index, *path), comparison


def _operand(value: Any) -> Any:
    if value is None:
        raise mistake("nothing equals NULL; use is_null: true or is_null: false")
    if not isinstance(value, str | int | float | date):
        raise mistake("expected one value; write text in quotes, or use in: [a, b] for several")
    return value


def _pattern(pattern: str) -> str:
    """Arrow's engine is RE2, whose message repeats the pattern."""
    import pyarrow as pa
    import pyarrow.compute as pc  # which a config without patterns does without

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        raise mistake("not a regular expression that RE2 knows; it has no lookaround and no backreferences") from None
    return pattern


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise mistake("expected text; write it in quotes")
    return value


Operand = Annotated[Any, BeforeValidator(_operand)]
Text = Annotated[str, BeforeValidator(_text)]


class Comparison(Condition):
    """A column and exactly one operator. What the operand means is decided by the column's type."""

    column: str
    eq: Operand = None
    ne: Operand = None
    gt: Operand = None
    gte: Operand = None
    lt: Operand = None
    lte: Operand = None
    among: Annotated[tuple[Operand, ...], BeforeValidator(_some)] = Field(default=(), alias="in")
    contains: Text = ""
    starts_with: Text = ""
    matches: Annotated[str, BeforeValidator(lambda value: _pattern(_text(value)))] = ""
    is_null: bool = False

    @model_validator(mode="before")
    @classmethod
    def _one_operator(cls, data: Any) -> Any:
        if isinstance(data, dict):
            given = [op for op in OPS if op in data]
            strange = [key for key in data if key not in OPS and key != "column"]
            if "column" in data and not given and strange and isinstance(strange[0], str):
                raise mistake(f"unknown operator{quoted(strange[0])}; {nearest(strange[0], OPS)}")
            if len(given) > 1:
                raise mistake(f"one operator at a time; write {{all: [...]}} around {' and '.join(given)}")
            if not given and "column" in data:
                raise mistake(f"no operator; use one of {', '.join(OPS)}")
        return data

    @property
    def op(self) -> Op:
        given = {"in" if name == "among" else name for name in self.model_fields_set}
        return next(op for op in OPS if op in given)

    @property
    def operand(self) -> Any:
        return self.among if self.op == "in" else getattr(self, self.op)

    def comparisons(self) -> Iterator[tuple[tuple[str | int, ...], Comparison]]:
        yield (), self
