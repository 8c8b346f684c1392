"""Postgres array literals (``{1,NULL,"a b"}``) as lists of their elements' text."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import Bools, Column
from penstock.pgoutput.types import typed
from penstock.sinks.events.json_text import as_mask


def array_elements(text: pa.Array, column: Column) -> tuple[Bools, pa.ListArray]:
    """Which rows are arrays of one dimension, and the elements of just those rows, as text.

    The others (more dimensions, bounds of their own) have no list of elements that would say all that the text says.
    """
    as_text = replace(column, element="text", modifier=-1)
    lists = typed(text.cast(pa.string()), as_text, "null")
    parsed = as_mask(pc.is_valid(lists))
    return parsed, lists.filter(pa.array(parsed)) if not parsed.all() else lists
