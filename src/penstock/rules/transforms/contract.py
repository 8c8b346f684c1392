"""What a transform is: settings that change one column, whole arrays at a time.

Values are Postgres's own text form, in and out. A transform knows neither table nor operation: whoever calls it passes
the column's values, of new rows or of old ones, and a way to see the other columns of the same rows.

Libraries that only some transforms need: loaded when such a transform is used.

The two sides of changes, new values and old ones, as transforms read them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from penstock.changes.batch import OLD_FULL, Bools, ChangeBatch, Column, Relation
from penstock.errors import ConfigError, PenstockError, RuleError
from penstock.settings.base import Settings
from penstock.settings.mistakes import mistake, nearest, quoted


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


_INSTALL = 'pip install "penstock[rules]"'


def load(module: str, transform: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise ConfigError(f'transform "{transform}" needs "{missing}"; {_INSTALL}') from error


def check_version(package: str, wanted: str, transform: str) -> None:
    """For libraries whose data become part of what is written: another version would write something else."""
    try:
        found = version(package)
    except PackageNotFoundError as error:
        raise ConfigError(f'transform "{transform}" needs "{package}"; {_INSTALL}') from error
    if found != wanted:
        raise ConfigError(
            f'transform "{transform}" draws from the lists of {package} {wanted}, and {found} is installed: '
            f"it would draw other values than before; {_INSTALL}"
        )


@dataclass(frozen=True)
class Side:
    """New or old values of a batch. What a transform may read besides its own column: the rule's input, in the same rows.

    A value that was not sent again is taken from the old row where that was sent whole.
    """

    relation: Relation
    side: Sequence[pa.Array]
    old: Sequence[pa.Array] | None
    old_kind: Any
    masks: Mapping[int, Bools]

    def _index(self, name: str) -> int:
        return next(index for index, column in enumerate(self.relation.columns) if column.name == name)

    def column(self, name: str) -> pa.Array:
        index = self._index(name)
        mask = self.masks.get(index)
        if mask is None or self.old is None:
            return self.side[index]
        return pc.if_else(pa.array(mask & (self.old_kind == OLD_FULL)), self.old[index], self.side[index])

    def unchanged(self, name: str) -> Bools | None:
        """Where the value is not known; None: nowhere."""
        mask = self.masks.get(self._index(name))
        return None if mask is None else mask & (self.old_kind != OLD_FULL)


def new_side(batch: ChangeBatch) -> Side:
    return Side(batch.relation, batch.new, batch.old if batch.unchanged else None, batch.old_kind, batch.unchanged)


def old_side(batch: ChangeBatch) -> Side:
    return Side(batch.relation, batch.old, None, batch.old_kind, {})
