"""What all transforms have in common that make up a value instead of changing the one that was there."""

from __future__ import annotations

from typing import Literal, Self

import pyarrow as pa
from pydantic import Field, PrivateAttr, SecretStr

from penstock.rules.transforms.contract import Row, Transform
from penstock.rules.transforms.keyed_hash import Draws


class Generator(Transform):
    """Draws its values: by a keyed hash of the value that was there, or by chance.

    By hash, the same value and salt give the same result: in every table, batch, process and machine.
    """

    takes_nulls = True

    generator: Literal["deterministic", "random"] = Field(
        default="deterministic",
        description="`deterministic`: the same value and salt always give the same result. `random`: by chance.",
    )
    salt: SecretStr = Field(
        default=SecretStr(""), description="Secret. Without one, anybody can try which value gave a result."
    )
    _seed: int | None = PrivateAttr(None)

    @property
    def deterministic(self) -> bool:
        return self.generator == "deterministic"

    def seeded(self, seed: int) -> Self:
        """The same with chance that repeats itself, for tests."""
        copy = self.model_copy()
        copy._seed = seed
        return copy

    def draws(self, values: pa.StringArray) -> Draws:
        if self.generator == "random":
            return Draws.by_chance(len(values), self._seed)
        return Draws.of_values(values, self.salt.get_secret_value())

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        return self.generate(self.draws(values), values, row)

    def generate(self, draws: Draws, values: pa.StringArray, row: Row) -> pa.StringArray:
        raise NotImplementedError
