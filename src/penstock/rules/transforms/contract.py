"""What a transform is: settings that change one column, whole arrays at a time.

Values are Postgres's own text form, in and out. A transform knows neither table nor operation: whoever calls it passes
the column's values, of new rows or of old ones, and a way to see the other columns of the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from penstock.changes import Bools, Column
from penstock.config.mistakes import mistake, nearest, quoted
from penstock.config.settings import Settings
from penstock.errors import PenstockError, RuleError


class Row(Protocol):
    """The rows whose column is transformed, as the source has them."""

    def column(self, name: str) -> pa.Array:
        """Another column of the same rows, untransformed."""

    def unchanged(self, name: str) -> Bools | None:
        """Which rows came without that column's value (TOAST); None: none of them."""


@dataclass(frozen=True)
class Columns:
    """Rows that are at hand as arrays."""

    arrays: Mapping[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        return self.arrays[name]

    def unchanged(self, name: str) -> Bools | None:
        return None


@dataclass(frozen=True)
class Example:
    """One line of the documentation, and a test: these settings turn this value into that one."""

    settings: Mapping[str, Any]
    value: str | None
    result: str | None
    row: Mapping[str, str | None] = field(default_factory=dict)  # the other columns


class Transform(Settings):
    """Its fields are the parameters in the config file."""

    name: ClassVar[str]
    summary: ClassVar[str]
    fits: ClassVar[str]  # for which columns, in a few words for people
    examples: ClassVar[tuple[Example, ...]] = ()
    dynamic_parameters: ClassVar[tuple[str, ...]] = ()  # may come from another column
    takes_nulls: ClassVar[bool] = False  # can make a value out of nothing, so that `nulls: replace` means something

    nulls: Literal["keep", "replace"] = Field(
        default="keep", description="`replace`: NULL is taken as empty text and transformed like it."
    )
    dynamic: dict[str, str] = Field(
        default_factory=dict, description="`{parameter: column}`: the parameter's value is that column's, row by row."
    )

    @field_validator("dynamic")
    @classmethod
    def _known_parameters(cls, dynamic: dict[str, str]) -> dict[str, str]:
        for parameter in dynamic:
            if not cls.dynamic_parameters:
                raise mistake(f"{cls.name} takes no parameter from another column; remove it")
            if parameter not in cls.dynamic_parameters:
                remedy = nearest(parameter, cls.dynamic_parameters)
                raise mistake(f"parameter{quoted(parameter)} cannot come from another column; {remedy}")
        return dynamic

    @model_validator(mode="after")
    def _nulls_that_mean_something(self) -> Self:
        if self.nulls == "replace" and not self.takes_nulls:
            raise mistake(f"{self.name} makes nothing of NULL; remove nulls: replace")
        return self

    @property
    def deterministic(self) -> bool:
        """The same value becomes the same value, always and everywhere. What is not must not touch a key."""
        return True

    @property
    def keeps_uniqueness(self) -> bool:
        """Distinct values stay distinct (surely, or with 64 bits of a keyed hash between them)."""
        return False

    def columns(self) -> set[str]:
        """The other columns that it reads."""
        return set(self.dynamic.values())

    def misfit(self, column: Column) -> str | None:
        """Why it does not fit the column's type or length, in a plain sentence; None if it fits."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Loads what it needs; a ConfigError says what is not installed. Nobody has to call it before ``apply``."""

    def apply(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        """The transformed values. NULL stays NULL unless ``nulls`` says otherwise."""
        if not len(values):
            return values
        try:
            changed = self.change(pc.fill_null(values, "") if self.nulls == "replace" else values, row)
        except (PenstockError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  whatever it is, it may repeat a value, and hiding values is what transforms are for
            raise cannot_change(self.name) from None
        if self.nulls == "replace" or not values.null_count:
            return changed
        return pc.if_else(values.is_valid(), changed, pa.scalar(None, pa.string()))

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        """What the transform does, for all values at once. What it makes of a NULL is thrown away."""
        raise NotImplementedError

    def dynamic_column(self, parameter: str, row: Row) -> pa.StringArray | None:
        """The column that this parameter comes from, if it comes from one."""
        name = self.dynamic.get(parameter)
        return None if name is None else row.column(name)


def cannot_change(transform: str) -> RuleError:
    """Says nothing of the value."""
    return RuleError(
        f'the transform "{transform}" met a value that it cannot change',
        "Change the rule for that column, or mend the value in the source.",
    )


def per_distinct(values: pa.StringArray, function: Any) -> pa.StringArray:
    """A function of Python applied to each distinct value once, where no vectorised one exists."""
    encoded = values.dictionary_encode()
    changed = pa.array([function(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return changed.take(encoded.indices)


def where(rows: Bools, yes: pa.StringArray, no: pa.StringArray) -> pa.StringArray:
    """``yes`` in these rows, ``no`` in the others."""
    if rows.all():
        return yes
    return pc.if_else(pa.array(rows), yes, no) if rows.any() else no


def put(into: pa.StringArray, rows: Bools, values: pa.StringArray) -> pa.StringArray:
    """The array with these values, one for each of the marked rows, in their places."""
    return pc.replace_with_mask(into, pa.array(rows), values) if rows.any() else into


def flags(condition: pa.BooleanArray) -> Bools:
    """As NumPy has it; NULL is false."""
    filled: Bools = pc.fill_null(condition, False).to_numpy(zero_copy_only=False)
    return filled.astype(np.bool_)
