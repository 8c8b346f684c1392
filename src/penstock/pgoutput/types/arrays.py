"""Arrays of one dimension as Arrow lists. Arrow's lists have no lower bounds and no second dimension."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.changes import Column
from penstock.pgoutput.types.array_literals import Literals

# Arrays of boxes are the only built-in ones with a semicolon between the elements; they stay text.
_BOX, _BOX_ARRAY_OID = "box", 1020


def is_list(column: Column) -> bool:
    if column.base != "array" or column.element is None:
        return False
    return column.element != _BOX and column.type_oid != _BOX_ARRAY_OID


def element(column: Column) -> Column:
    """The column that the elements of an array column would make."""
    return replace(column, base=column.element or "other", element=None)


def lists(text: pa.StringArray, literals: Literals, values: pa.Array) -> pa.ListArray:
    """The lists of the rows, from the typed elements of all of them."""
    offsets = pa.array(literals.list_offsets)
    mask = text.is_null() if text.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(values.type), mask=mask)
