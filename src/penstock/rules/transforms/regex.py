"""Replaces what a regular expression finds."""

from __future__ import annotations

from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from penstock.changes import Column
from penstock.config.mistakes import mistake
from penstock.rules.transforms.contract import Example, Row, Transform
from penstock.rules.transforms.fit import not_text


class Regex(Transform):
    name: ClassVar = "regex"
    summary: ClassVar = "Replaces what a regular expression finds."
    fits: ClassVar = "text"
    examples: ClassVar = (
        Example({"pattern": "[0-9]", "replace": "#"}, "call 555-0100", "call ###-####"),
        Example({"pattern": r"^(\w+)@(.*)$", "replace": r"\2"}, "ada@example.com", "example.com"),
        Example({"pattern": "(?i)bad", "replace": "good", "count": 1}, "Bad, bad", "good, bad"),
    )

    pattern: str = Field(description="In [RE2's syntax](https://github.com/google/re2/wiki/Syntax).")
    replace: str = Field(
        default="", description=r"What to put there; `\1` is the first group, `\0` all that was found."
    )
    count: int | None = Field(default=None, ge=1, description="How many finds to replace, from the left; default: all.")

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            self.change(pa.array([""]), _NO_ROW)
        except pa.ArrowInvalid:
            raise mistake(
                "the pattern is not a regular expression in RE2's syntax, or the replacement names a group that it has not;"
                " mend it (RE2 has no look-around and no back-references)"
            ) from None
        return self

    def misfit(self, column: Column) -> str | None:
        return not_text(column)

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return pc.replace_substring_regex(values, self.pattern, self.replace, max_replacements=self.count)


class _NoRow:
    def column(self, name: str) -> pa.Array:
        raise KeyError(name)

    def unchanged(self, name: str) -> None:
        return None


_NO_ROW = _NoRow()
