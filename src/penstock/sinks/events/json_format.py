"""``format: json``, Penstock's own events.

::

    {"op":"insert","schema":"public","table":"example","key":{"id":1},"before":null,
     "after":{"id":1,"msg":"hello world"},"lsn":"0/16B3748","sequence":1,"xid":731,
     "timestamp":"2026-11-15T07:02:40.290389Z"}
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from penstock.changes import MESSAGE, MESSAGES, OP_NAMES, Relation
from penstock.sinks.events.format import EventFormat, Position
from penstock.sinks.events.json_text import Line, quoted_name
from penstock.sinks.events.row_objects import append_key, append_new_row, append_old_row, append_unchanged_names
from penstock.sinks.events.shapes import Shape
from penstock.sinks.events.transaction_text import Transactions, number_text, timestamp_text
from penstock.sinks.events.values import Numeric, Values


class JsonFormat(EventFormat):
    def __init__(self, numeric: Numeric = "string") -> None:
        self._values = Values(numeric)

    def lines(self, shape: Shape) -> pa.Array:
        line = Line().text(f'{{"op":{quoted_name(OP_NAMES[shape.op])},')
        if shape.op == MESSAGE:
            self._append_message(line, shape)
        else:
            self._append_change(line, shape)
        _append_transaction(line, shape)
        return line.build()

    def _append_message(self, line: Line, shape: Shape) -> None:
        for column, text in zip(MESSAGES.columns, shape.changes.new, strict=True):
            line.text(f"{quoted_name(column.name)}:")
            self._values.append(line, text, column)
            line.text(",")

    def _append_change(self, line: Line, shape: Shape) -> None:
        relation = shape.changes.relation
        line.text(f'"schema":{quoted_name(relation.schema)},"table":{quoted_name(relation.table)},"key":')
        append_key(line, shape, self._values)
        line.text(',"before":')
        append_old_row(line, shape, self._values)
        line.text(',"after":')
        append_new_row(line, shape, self._values)
        if shape.partial:
            line.text(',"unchanged":[')
            append_unchanged_names(line, shape)
            line.text("]")
        line.text(",")

    def schema_line(self, relation: Relation, first: Position) -> str:
        columns = [
            {"name": column.name, "type": column.type_name, "key": column.name in relation.key}
            for column in relation.columns
        ]
        event = {
            "op": "schema", "schema": relation.schema, "table": relation.table, "columns": columns,
            "key": list(relation.key), "lsn": str(first.commit_lsn), "sequence": max(0, first.sequence - 1),
            "xid": first.xid, "timestamp": timestamp_text(np.array([first.commit_time], np.int64))[0].as_py(),
        }  # fmt: skip
        return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _append_transaction(line: Line, shape: Shape) -> None:
    transactions = Transactions(shape.changes)
    line.text('"lsn":"').values(transactions.lsn())
    line.text('","sequence":').values(number_text(shape.changes.sequence))
    line.text(',"xid":').values(transactions.xid_and_timestamp()).text("}")
