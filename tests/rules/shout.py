"""A transform for tests that need one and do not care which: text in capitals, ``?`` where NULL is to be replaced."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Column
from penstock.rules.transforms.contract import Row
from penstock.settings.base import Settings


class Shout(Settings):
    nulls: Literal["keep", "replace"] = "keep"
    beside: str | None = None  # another column, whose value is put behind
    keeps_uniqueness: bool = True
    deterministic: bool = True

    def columns(self) -> set[str]:
        return {self.beside} if self.beside else set()

    def misfit(self, column: Column) -> str | None:
        return None if column.base in ("text", "varchar") else "only text can be shouted"

    def apply(self, values: pa.Array, row: Row) -> pa.Array:
        loud = pc.utf8_upper(pc.fill_null(values, "?"))
        if self.beside is None:
            return loud
        return pc.binary_join_element_wise(loud, pc.fill_null(row.column(self.beside), ""), "")
