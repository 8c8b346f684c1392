"""One of a few given values."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from penstock.changes import Column
from penstock.config.mistakes import mistake
from penstock.rules.transforms.contract import Example, Row
from penstock.rules.transforms.generator import Generator
from penstock.rules.transforms.keyed_hash import Draws
from penstock.rules.transforms.literal import LiteralText


def _texts(values: Any) -> Any:
    if not isinstance(values, list | tuple):
        return values
    return tuple(("t" if value else "f") if isinstance(value, bool) else value if value is None else str(value)
                 for value in values)  # fmt: skip


class Choice(Generator):
    name: ClassVar = "choice"
    summary: ClassVar = "One of a few given values."
    fits: ClassVar = "every type that the values are of"
    examples: ClassVar = (
        Example({"choices": ["red", "green", "blue"], "salt": "pepper"}, "mauve", "green"),
        Example({"choices": ["yes", "no"], "weights": [1, 0]}, "maybe", "yes"),
        Example({"choices": [None]}, "maybe", None),
    )

    choices: Annotated[tuple[str | None, ...], BeforeValidator(_texts)] = Field(
        description="The values; `null` may be one of them."
    )
    weights: tuple[float, ...] | None = Field(default=None, description="How likely each one is; default: all alike.")

    @model_validator(mode="after")
    def _as_many_weights(self) -> Self:
        if not self.choices:
            raise mistake("there is nothing to choose from; write at least one value")
        weights = self.weights
        if weights is not None and (
            len(weights) != len(self.choices) or min(weights) < 0 or not 0 < sum(weights) < np.inf
        ):
            raise mistake("weights needs a number for each choice, none below zero and not all zero; mend it")
        return self

    def misfit(self, column: Column) -> str | None:
        for choice in self.choices:
            wrong = None if choice is None else LiteralText(value=choice).misfit(column)
            if wrong is not None:
                return wrong.replace("the value is not", "one of the choices is not")
        return None

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        choices = pa.array(self.choices, pa.string())
        if self.weights is None:
            return choices.take(pa.array(draws.below(len(choices), 0)))
        ends = np.cumsum(self.weights) / sum(self.weights)
        place = (draws.number(0) >> np.uint64(11)).astype(np.float64) / (1 << 53)
        last = int(np.flatnonzero(self.weights)[-1])  # rounding of the sums must not reach a choice without weight
        return choices.take(pa.array(np.minimum(np.searchsorted(ends, place, side="right"), last)))
