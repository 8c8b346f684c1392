"""From a column of Postgres text to a typed Arrow column."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Column
from penstock.pgoutput.types import arrays
from penstock.pgoutput.types import family as refusals
from penstock.pgoutput.types.arrays import Literals
from penstock.pgoutput.types.family import Family, matches
from penstock.pgoutput.types.registry import FAMILIES

Unrepresentable = Literal["error", "null", "text"]


def arrow_type(column: Column, unrepresentable: Unrepresentable) -> pa.DataType:
    """The Arrow type that the column is given, whatever its values.

    With ``text``, every type that has values without a place in Arrow (infinity, NaN in a numeric, arrays of several
    dimensions) stays text, so that all its values arrive as Postgres wrote them.
    """
    if arrays.is_list(column):
        return (
            pa.string() if unrepresentable == "text" else pa.list_(arrow_type(arrays.element(column), unrepresentable))
        )
    family = FAMILIES.get(column.base)
    if family is None or (family.partial and unrepresentable == "text"):
        return pa.string()
    return family.arrow_type(column.modifier)


def typed(
    text: pa.StringArray, column: Column, unrepresentable: Unrepresentable, *, where: str = "", named: str = ""
) -> pa.Array:
    """Casts the text of a column into ``arrow_type``. NULL stays NULL.

    Raises UnrepresentableValue under the policy ``error``, and DecodeError for what Postgres would never write. In messages,
    ``where`` is the table, and ``named`` the target's type, if that is not Arrow's.
    """
    target = arrow_type(column, unrepresentable)
    if pa.types.is_string(target):
        return text
    if arrays.is_list(column):
        return _typed_lists(text, column, unrepresentable, where, named)
    family = FAMILIES[column.base]
    cast = family.ordinary(text, column.modifier)
    return _carefully(text, column, family, unrepresentable, where, named) if cast is None else cast


def _carefully(
    text: pa.StringArray, column: Column, family: Family, policy: Unrepresentable, where: str, named: str
) -> pa.Array:
    stranger = refusals.first(text, pc.invert(matches(text, family.written)))
    if stranger is not None:
        raise refusals.malformed(column, where, stranger)
    unfit = family.unrepresentable(text)
    if unfit is not None:
        text = without(text, unfit, column, policy, where, named)
    try:
        return family.careful(text, column.modifier)
    except pa.ArrowInvalid:
        impossible = refusals.first_refused(text, lambda part: family.careful(part, column.modifier))
        raise refusals.malformed(column, where, impossible) from None


def _typed_lists(text: pa.StringArray, column: Column, policy: Unrepresentable, where: str, named: str) -> pa.ListArray:
    literals = Literals(text)
    if not literals.all_flat:
        stranger = refusals.first(text, literals.malformed)
        if stranger is not None:
            raise refusals.malformed(column, where, stranger)
        text = without(text, literals.nested, column, policy, where, named)
        literals = Literals(text)
    values = typed(literals.elements, arrays.element(column), policy, where=where, named=named)
    return arrays.lists(text, literals, values)


def without(
    text: pa.StringArray, unfit: pa.BooleanArray, column: Column, policy: Unrepresentable, where: str, named: str = ""
) -> pa.StringArray:
    """The text with NULL for what is unfit, or the error that the policy asks for."""
    value = refusals.first(text, unfit)
    if value is None:
        return text
    if policy == "error":
        raise refusals.unrepresentable(column, where, value, named or str(arrow_type(column, policy)))
    return pc.if_else(unfit, pa.scalar(None, pa.string()), text)
