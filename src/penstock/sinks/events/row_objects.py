"""The rows of a change as JSON objects: key, old row, new row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import DELETE, OLD_KEY, OLD_NONE, Bools, Column
from penstock.sinks.events.json_text import LARGE, Line, comma_separated, constant, quoted_name
from penstock.sinks.events.shapes import Shape
from penstock.sinks.events.values import Values

_ABSENT = pa.scalar(None, LARGE)


def append_key(line: Line, shape: Shape, values: Values) -> None:
    """Adds the key that the row has after the change; a deleted row's is the one that it had."""
    changes = shape.changes
    if not changes.relation.key or not (shape.has_new_row or shape.op == DELETE):
        line.text("null")
        return
    columns = []
    for index in changes.relation.key_indexes:
        text = changes.new[index] if shape.has_new_row else changes.old[index]
        if shape.has_new_row and index in changes.unchanged:
            # A key long enough for TOAST: Postgres sends it with the old row instead.
            text = pc.if_else(pa.array(changes.unchanged[index]), changes.old[index], text)
        columns.append((changes.relation.columns[index], text))
    _append_object(line, columns, values)


def append_old_row(line: Line, shape: Shape, values: Values) -> None:
    """Adds what Postgres sent of the old row: nothing, the identity's columns, or all."""
    if shape.old_kind == OLD_NONE:
        line.text("null")
        return
    columns = zip(shape.changes.relation.columns, shape.changes.old, strict=True)
    sent = [(column, text) for column, text in columns if column.in_identity or shape.old_kind != OLD_KEY]
    _append_object(line, sent, values)


def append_new_row(line: Line, shape: Shape, values: Values) -> None:
    """Adds the new row, without the columns whose TOAST value was not sent."""
    if not shape.has_new_row:
        line.text("null")
        return
    columns = list(zip(shape.changes.relation.columns, shape.changes.new, strict=True))
    if not shape.partial:
        _append_object(line, columns, values)
        return
    members = [
        _member(column, values.encode(text, column), shape.changes.unchanged.get(index))
        for index, (column, text) in enumerate(columns)
    ]
    line.text("{").values(comma_separated(members)).text("}")


def append_unchanged_names(line: Line, shape: Shape) -> None:
    """Adds the names of the columns whose TOAST value was not sent, separated by commas."""
    columns = shape.changes.relation.columns
    names = [
        pc.if_else(pa.array(mask), constant(quoted_name(columns[index].name)), _ABSENT)
        for index, mask in sorted(shape.changes.unchanged.items())
    ]
    line.values(comma_separated(names))


def _append_object(line: Line, columns: list[tuple[Column, pa.Array]], values: Values) -> None:
    line.text("{")
    for index, (column, text) in enumerate(columns):
        line.text(f"{',' if index else ''}{quoted_name(column.name)}:")
        values.append(line, text, column)
    line.text("}")


def _member(column: Column, encoded: pa.Array, unchanged: Bools | None) -> pa.Array:
    present = Line().text(f"{quoted_name(column.name)}:").values(encoded).build()
    return present if unchanged is None else pc.if_else(pa.array(unchanged), _ABSENT, present)
