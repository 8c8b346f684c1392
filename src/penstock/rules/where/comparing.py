"""A column of Postgres text compared with a value, by the column's type. Vectorised; NULL gives NULL.

Each kind of type tries the cast that ``pgoutput.types`` would make, which is fast, and turns to ``digits`` and ``days`` (text
kernels, exact for everything that Postgres can write) where a value has no place in Arrow's type: infinity, NaN, years
before Christ, numbers of more than 38 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Bools, Column
from penstock.errors import DecodeError
from penstock.pgoutput.types.numbers import precision_and_scale
from penstock.pgoutput.types.registry import FAMILIES
from penstock.rules.where import operands
from penstock.rules.where.operands import UnfitOperand, compared_days, compared_digits

Ordering = Literal["eq", "ne", "gt", "gte", "lt", "lte"]
ORDERINGS: tuple[Ordering, ...] = get_args(Ordering)
_KERNELS = {
    "eq": pc.equal, "ne": pc.not_equal, "gt": pc.greater, "gte": pc.greater_equal, "lt": pc.less, "lte": pc.less_equal,
}  # fmt: skip
_SIGNS: dict[Ordering, Callable[[Any], Bools]] = {
    "eq": lambda sign: sign == 0, "ne": lambda sign: sign != 0, "gt": lambda sign: sign > 0,
    "gte": lambda sign: sign >= 0, "lt": lambda sign: sign < 0, "lte": lambda sign: sign <= 0,
}  # fmt: skip


class Kind:
    """One kind of type. ``read`` takes the operand as the config has it, once; ``compare`` a column's text, per batch."""

    ordered = True

    def read(self, operand: Any, column: Column) -> Any:
        """Raises UnfitOperand."""
        raise NotImplementedError

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        raise NotImplementedError

    def one_of(self, text: pa.Array, values: Sequence[Any], column: Column) -> pa.Array:
        found = self.compare(text, "eq", values[0], column)
        for value in values[1:]:
            found = pc.or_(found, self.compare(text, "eq", value, column))
        return found


class Texts(Kind):
    """Compared by code point, which for UTF-8 is the order of the bytes."""

    def read(self, operand: Any, column: Column) -> Any:
        return operands.text(operand)

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        return _KERNELS[op](text, pa.scalar(value, pa.string()))

    def one_of(self, text: pa.Array, values: Sequence[Any], column: Column) -> pa.Array:
        found = pc.is_in(text, value_set=pa.array(values, pa.string()))
        return pc.if_else(pc.is_valid(text), found, pa.scalar(None, pa.bool_())) if text.null_count else found


class PaddedTexts(Texts):
    """character(n): what it is padded with does not count."""

    def read(self, operand: Any, column: Column) -> Any:
        return operands.text(operand).rstrip(" ")

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        return super().compare(unpadded(text), op, value, column)

    def one_of(self, text: pa.Array, values: Sequence[Any], column: Column) -> pa.Array:
        return super().one_of(unpadded(text), values, column)


class OpaqueTexts(Texts):
    """Types whose text says nothing about their order."""

    ordered = False


class UniqueIds(Texts):
    def read(self, operand: Any, column: Column) -> Any:
        return operands.unique_id(operand)


class Booleans(Texts):
    """``f`` comes before ``t``, as text and as truth."""

    def read(self, operand: Any, column: Column) -> Any:
        return operands.truth(operand)


class TimesOfDay(Texts):
    """hh:mm:ss and fractions without trailing zeros: the order of the text is theirs."""

    def read(self, operand: Any, column: Column) -> Any:
        return operands.time_of_day(operand)


class Integers(Kind):
    def read(self, operand: Any, column: Column) -> Any:
        value = operands.number(operand)
        if not value.is_finite():
            raise UnfitOperand("expected a number")
        return value

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        values = cast(text, column)
        below = math.floor(value)
        lowest, highest = _range(values.type)
        if (fixed := _beyond(op, below, below == value, lowest, highest)) is not None:
            return _constant(text, fixed)
        return _KERNELS[_on_floor(op, below == value)](values, pa.scalar(below, values.type))


class Floats(Kind):
    """As in Postgres, NaN equals itself and is above everything. The operand is rounded to the column's precision."""

    def read(self, operand: Any, column: Column) -> Any:
        value = operands.number(operand)
        rounded = float(value) if column.base == "float8" else float(np.float32(_in_range(value)))
        if value.is_finite() and math.isinf(rounded):
            raise UnfitOperand("expected a number within the column's range")
        return rounded

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        values = cast(text, column)
        nan = pc.is_nan(values)
        if math.isnan(value):
            return _among_nans(op, text, nan)
        found = _KERNELS[op](values, pa.scalar(value, values.type))
        return pc.or_(found, nan) if op in ("gt", "gte") else found


class Numerics(Kind):
    """Exact, whatever the number of digits."""

    scale_without_limits = 18

    def read(self, operand: Any, column: Column) -> Any:
        return operands.number(operand)

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        precision, scale = precision_and_scale(column.modifier) or (38, self.scale_without_limits)
        values = _decimals(text, column, pa.decimal128(precision, scale)) if value.is_finite() else None
        if values is None:
            sign, known = compared_digits(text, value)
            _refuse_strangers(text, known, column)
            return pa.array(_SIGNS[op](sign), mask=_nulls(text))
        below = math.floor(Fraction(value) * 10**scale)
        whole, limit = Fraction(below, 10**scale) == Fraction(value), 10**precision - 1
        if (fixed := _beyond(op, below, whole, -limit, limit)) is not None:
            return _constant(text, fixed)
        bound = Decimal(below).scaleb(-scale, Context(prec=100))
        return _KERNELS[_on_floor(op, whole)](values, pa.scalar(bound, values.type))


class Moments(Kind):
    """date, timestamp, timestamptz."""

    def read(self, operand: Any, column: Column) -> Any:
        written = operands.moment(operand, column.base)
        if not compared_days(pa.array([written]), written)[1].all():
            raise UnfitOperand("expected a day that the calendar has")
        return written

    def compare(self, text: pa.Array, op: Ordering, value: Any, column: Column) -> pa.Array:
        family = FAMILIES[column.base]
        bound = family.ordinary(pa.array([value]), column.modifier)
        values = None if bound is None else family.ordinary(text, column.modifier)
        if bound is not None and values is not None:
            return _KERNELS[op](values, bound[0])
        sign, known = compared_days(text, value)
        _refuse_strangers(text, known, column)
        return pa.array(_SIGNS[op](sign), mask=_nulls(text))


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("text", "varchar", "name", "char", "enum"), Texts()),
    **dict.fromkeys(("int2", "int4", "int8", "oid"), Integers()),
    **dict.fromkeys(("float4", "float8"), Floats()),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), Moments()),
    "bpchar": PaddedTexts(),
    "bool": Booleans(),
    "uuid": UniqueIds(),
    "numeric": Numerics(),
    "time": TimesOfDay(),
}
_OPAQUE = OpaqueTexts()


def kind_of(column: Column) -> Kind:
    return _KINDS.get(column.base, _OPAQUE)


def unpadded(text: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(text, " ")


def cast(text: pa.Array, column: Column) -> pa.Array:
    """Typed values. The error names no value: it may be one that a rule was to hide."""
    family = FAMILIES[column.base]
    values = family.ordinary(text, column.modifier)
    if values is not None:
        return values
    try:
        return family.careful(text, column.modifier)
    except pa.ArrowInvalid:
        raise _stranger(column) from None


def _decimals(text: pa.Array, column: Column, target: pa.DataType) -> pa.Array | None:
    if precision_and_scale(column.modifier) is not None:
        return FAMILIES["numeric"].ordinary(text, column.modifier)
    try:
        return pc.cast(text, target)
    except pa.ArrowInvalid:
        return None


def _on_floor(op: Ordering, whole: bool) -> Ordering:
    """Compared with a number between two that the type has, the lower of these stands for it."""
    if whole:
        return op
    return {"gt": "gt", "gte": "gt", "lt": "lte", "lte": "lte", "eq": "eq", "ne": "ne"}[op]  # type: ignore[return-value]


def _beyond(op: Ordering, below: int, whole: bool, lowest: int, highest: int) -> bool | None:
    """The outcome for every value, where the type has no value near the operand; None: it has to be compared."""
    if op in ("eq", "ne") and not whole:
        return op == "ne"
    if below < lowest:
        return op in ("gt", "gte", "ne")
    if below > highest:
        return op in ("lt", "lte", "ne")
    return None


def _range(integers: pa.DataType) -> tuple[int, int]:
    half = 1 << (integers.bit_width - 1)
    return -half, half - 1


def _constant(text: pa.Array, outcome: bool) -> pa.Array:
    return pa.array(np.full(len(text), outcome), mask=_nulls(text))


def _nulls(text: pa.Array) -> Bools | None:
    if not text.null_count:
        return None
    nulls: Bools = pc.is_null(text).to_numpy(zero_copy_only=False)
    return nulls


def _among_nans(op: Ordering, text: pa.Array, nan: pa.Array) -> pa.Array:
    if op in ("eq", "gte"):
        return nan
    return pc.invert(nan) if op in ("ne", "lt") else _constant(text, op == "lte")


def _in_range(value: Decimal) -> float:
    number = float(value)
    if value.is_finite() and abs(number) > float(np.finfo(np.float32).max):
        raise UnfitOperand("expected a number within the column's range")
    return number


def _refuse_strangers(text: pa.Array, known: Bools, column: Column) -> None:
    if not (known | pc.is_null(text).to_numpy(zero_copy_only=False)).all():
        raise _stranger(column)


def _stranger(column: Column) -> DecodeError:
    return DecodeError(
        f'Column "{column.name}" ({column.type_name}) holds a value that is not how Postgres writes that type, and a filter '
        "compares it.",
        "If an earlier rule changes the column, let it write values of the column's type.",
    )
