"""The same for every row: a value, or NULL."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
from pydantic import Field, field_validator

from penstock.changes import Column
from penstock.errors import PenstockError
from penstock.pgoutput.types import typed
from penstock.rules.transforms.contract import Example, Row, Transform
from penstock.rules.transforms.fit import JSON, TEXT, base_of, not_text, whole_range


class LiteralText(Transform):
    name: ClassVar = "literal"
    summary: ClassVar = "The same value in every row."
    fits: ClassVar = "every type that the value is one of"
    takes_nulls = True
    examples: ClassVar = (
        Example({"value": "redacted"}, "anything", "redacted"),
        Example({"value": 0}, "42", "0"),
        Example({"value": {"hidden": True}}, '{"a": 1}', '{"hidden": true}'),
        Example({"value": True, "nulls": "replace"}, None, "t"),
    )

    value: str = Field(description="As Postgres writes a value of the column's type. Write it in quotes, or plainly.")

    @field_validator("value", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "t" if value else "f"
        if isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        return str(value) if isinstance(value, int | float) else value

    def misfit(self, column: Column) -> str | None:
        if base_of(column) in TEXT:
            return not_text(column, len(self.value))
        wrong = f"the value is not one of type {column.type_name}"
        return None if _is_one(self.value, column) else wrong

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pa.repeat(pa.scalar(self.value), len(values))


class Null(Transform):
    name: ClassVar = "null"
    summary: ClassVar = "NULL in every row."
    fits: ClassVar = "every column that may be NULL"
    examples: ClassVar = (Example({}, "anything", None),)

    def misfit(self, column: Column) -> str | None:
        return None

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pa.nulls(len(values), pa.string())


def _is_one(value: str, column: Column) -> bool:
    base = base_of(column)
    limits = whole_range(column)
    try:
        if limits is not None:
            return limits[0] <= int(value) <= limits[1]
        if base in JSON:
            json.loads(value)
        elif base == "uuid":
            UUID(value)
        else:
            typed(pa.array([value]), column, "null")
    except (PenstockError, ValueError):
        return False
    return True
