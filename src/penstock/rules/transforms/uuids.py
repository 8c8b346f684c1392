"""Made-up UUIDs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.changes import Column
from penstock.rules.transforms.contract import Example, Row
from penstock.rules.transforms.digits import fixed_width, hexadecimal
from penstock.rules.transforms.fit import TEXT, not_of, not_text
from penstock.rules.transforms.generator import Generator
from penstock.rules.transforms.keyed_hash import Draws

_PLACES = [*range(8), *range(9, 13), *range(14, 18), *range(19, 23), *range(24, 36)]  # of the digits
_LENGTH = 36


class Uuid(Generator):
    """A UUID of version 4, or 8 ("custom") when it comes from the value: RFC 9562."""

    name: ClassVar = "uuid"
    summary: ClassVar = "A UUID: of version 8, which is for own ways to make one, by hash; of version 4 by chance."
    fits: ClassVar = "uuid, and text"
    examples: ClassVar = (
        Example({"salt": "pepper"}, "5a5b7a30-31d5-4d22-9a4f-0c1f4a6f2c11", "9f420347-1e82-8f14-9d89-779b63794f37"),
    )

    @property
    def keeps_uniqueness(self) -> bool:
        return self.deterministic

    def misfit(self, column: Column) -> str | None:
        return (
            not_text(column, _LENGTH) if not_of(column, TEXT, "") is None else not_of(column, {"uuid"}, "a uuid column")
        )

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        version = 0x8000 if self.deterministic else 0x4000
        high = (draws.number(0) & np.uint64(0xFFFF_FFFF_FFFF_0FFF)) | np.uint64(version)
        low = (draws.number(1) & np.uint64(0x3FFF_FFFF_FFFF_FFFF)) | np.uint64(0x8000_0000_0000_0000)
        characters = np.full((len(draws), _LENGTH), ord("-"), np.uint8)
        characters[:, _PLACES] = np.concatenate([hexadecimal(high), hexadecimal(low)], axis=1)
        return fixed_width(characters)
