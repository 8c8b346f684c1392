"""Arithmetic on numbers as Postgres writes them, without losing a digit.

A number is taken apart into a whole number and a scale: 12.50 is 1250 with scale 2. Those of up to 18 digits are computed
as 64-bit integers, all of one scale together; longer ones and those with an exponent (floats) one by one with Python's
integers. NaN and the infinities are left as they are, as is everything that is no number.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Bools, Int64s
from penstock.rules.transforms.contract import flags, put

Wholes = npt.NDArray[Any]  # int64, or Python's integers as objects
Change = Callable[[Wholes, int, Int64s], tuple[Wholes, int]]
"""From whole numbers, their scale and the rows that they stand in, to others and theirs."""

_PLAIN = r"\A-?[0-9]+(\.[0-9]+)?\z"
_NUMBER = r"\A-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?\z"
_DIGITS = 16  # that leave room for what is computed with them in 64 bits


def rewritten(values: pa.StringArray, change: Change) -> pa.StringArray:
    """Every number of the column changed."""
    plain = flags(pc.match_substring_regex(values, _PLAIN)) & flags(pc.less_equal(pc.binary_length(values), _DIGITS))
    result = values
    for scale, rows in _by_scale(values, plain):
        wholes = pc.cast(pc.replace_substring(values.filter(pa.array(rows)), ".", ""), pa.int64()).to_numpy()
        changed, new_scale = change(wholes, scale, np.flatnonzero(rows))
        result = put(result, rows, written(changed, new_scale))
    others = ~plain & flags(pc.match_substring_regex(values, _NUMBER))
    return _one_by_one(result, values, others, change) if others.any() else result


def _by_scale(values: pa.StringArray, plain: Bools) -> list[tuple[int, Bools]]:
    point = pc.fill_null(pc.find_substring(values, "."), -1).to_numpy()
    length = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    scales = np.where(point < 0, 0, length - point - 1)
    return [(int(scale), plain & (scales == scale)) for scale in np.unique(scales[plain])]


def _one_by_one(result: pa.StringArray, values: pa.StringArray, rows: Bools, change: Change) -> pa.StringArray:
    changed = []
    for row in np.flatnonzero(rows):
        whole, scale = taken_apart(values[int(row)].as_py())
        wholes, new_scale = change(np.array([whole], object), scale, np.array([row]))
        changed.append(_written(int(wholes[0]), new_scale))
    return put(result, rows, pa.array(changed, pa.string()))


def taken_apart(number: str) -> tuple[int, int]:
    """The whole number and the scale of a number as text."""
    sign, digits, exponent = Decimal(number).as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    return (whole, -exponent) if isinstance(exponent, int) and exponent <= 0 else (whole * 10 ** int(exponent), 0)


def rescaled(wholes: Wholes, scale: int, to: int) -> Wholes:
    """The same numbers with more digits after the point."""
    result: Wholes = wholes * 10 ** (to - scale) if to != scale else wholes
    return result


def floor_to(wholes: Wholes, step: int) -> Wholes:
    result: Wholes = wholes // step * step
    return result


def truncated(wholes: Wholes, step: int) -> Wholes:
    """To a multiple of the step, towards zero."""
    result: Wholes = np.where(wholes < 0, -(-wholes // step), wholes // step) * step
    return result


def rounded(wholes: Wholes, step: int) -> Wholes:
    """To the nearest multiple of the step; a half goes away from zero, as Postgres has it for numeric."""
    nearest = (2 * abs(wholes) + step) // (2 * step) * step
    result: Wholes = np.where(wholes < 0, -nearest, nearest)
    return result


def written(wholes: Wholes, scale: int) -> pa.StringArray:
    """As text, with that many digits after the point."""
    if wholes.dtype == object:
        return pa.array([_written(int(whole), scale) for whole in wholes], pa.string())
    if scale == 0:
        return pc.cast(pa.array(wholes), pa.string())
    digits = pc.utf8_lpad(pc.cast(pa.array(np.abs(wholes)), pa.string()), scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(pa.array(wholes < 0), "-", "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, before, ""), after, ".")


def _written(whole: int, scale: int) -> str:
    digits = f"{abs(whole):0{scale + 1}}"
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if whole < 0 else text
