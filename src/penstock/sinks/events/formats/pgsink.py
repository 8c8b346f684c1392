"""``format: pgsink``, the Schema and Modification messages of pgsink, for consumers that were written for those.

::

    {"timestamp":"2019-10-04T16:05:55.123456Z","sequence":1,"namespace":"public","name":"example",
     "before":null,"after":{"id":"1","msg":"hello world"}}

All values are Postgres's text, whatever Avro type the Schema gives for them: that is how pgsink sends a bigint.
A truncate, which pgsink does not know, is a Modification with neither ``before`` nor ``after``; messages of
``pg_logical_emit_message`` belong to no table, so there is no Modification for them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.changes.batch import MESSAGES, Column, Relation
from penstock.sinks.events.format import EventFormat, Position
from penstock.sinks.events.formats.json import Transactions, append_new_row, append_old_row, number_text, timestamp_text
from penstock.sinks.events.json_text import Line, quoted_name
from penstock.sinks.events.values import Shape, TextValues

_AVRO_TYPES = {"bool": "boolean", "int2": "int", "int4": "int", "int8": "long", "float4": "float", "float8": "double"}


class PgsinkFormat(EventFormat):
    def __init__(self) -> None:
        self._values = TextValues()

    def carries(self, relation: Relation) -> bool:
        return relation != MESSAGES

    def lines(self, shape: Shape) -> pa.Array:
        relation = shape.changes.relation
        line = Line().text('{"timestamp":"').values(Transactions(shape.changes).timestamp())
        line.text('","sequence":').values(number_text(shape.changes.sequence))
        line.text(f',"namespace":{quoted_name(relation.schema)},"name":{quoted_name(relation.table)},"before":')
        append_old_row(line, shape, self._values)
        line.text(',"after":')
        append_new_row(line, shape, self._values)
        return line.text("}").build()

    def schema_line(self, relation: Relation, first: Position) -> str:
        record = {
            "namespace": relation.qualified_name, "type": "record", "name": "value",
            "fields": [_avro_field(column) for column in relation.columns],
        }  # fmt: skip
        timestamp = timestamp_text(np.array([first.commit_time], np.int64))[0].as_py()
        return json.dumps({"timestamp": timestamp, "schema": record}, ensure_ascii=False, separators=(",", ":"))


def _avro_field(column: Column) -> dict[str, Any]:
    return {"name": column.name, "type": [_AVRO_TYPES.get(column.base, "string"), "null"], "default": None}
