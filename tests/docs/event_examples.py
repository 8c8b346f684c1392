"""The changes that docs/events.md shows as events."""

from __future__ import annotations

from dataclasses import replace

from penstock.changes.batch import Relation
from penstock.lsn import LSN
from penstock.sinks.events import EventFormat, Position
from penstock.testing.change_batches import FIRST_COMMIT_TIME, UNCHANGED, changes, messages, relation

COMMIT = 0x16B3748
_NAMES = {"int8": "bigint"}  # as the source calls types, which is what `schema` events have


def _named_as_in_postgres(table: Relation) -> Relation:
    columns = (replace(column, type_name=_NAMES.get(column.type_name, column.type_name)) for column in table.columns)
    return replace(table, columns=tuple(columns))


EXAMPLE = _named_as_in_postgres(relation("public", "example", id="int8", msg="text", key=("id",)))
DOCUMENTS = _named_as_in_postgres(relation("public", "documents", id="int8", title="text", body="text", key=("id",)))
MOVED = changes(
    DOCUMENTS, [("update", {"id": 8, "title": "Penstock", "body": UNCHANGED}, {"id": 7})], lsn=COMMIT, sequence=2
)


def event_lines(event_format: EventFormat) -> list[str]:
    """Schema, insert, update of a key with an unchanged value, delete, truncate, message."""
    some = [("insert", {"id": 1, "msg": "hello world"}), ("delete", None, {"id": 1}), ("truncate",)]
    insert, delete, truncate = (
        changes(EXAMPLE, [row], lsn=COMMIT, sequence=sequence) for row, sequence in zip(some, (1, 3, 4), strict=True)
    )
    batches = [insert, MOVED, delete, truncate, messages([("audit", b"nightly run")], lsn=COMMIT, sequence=5)]
    lines = [line for batch in batches for line in event_format.encode(batch)["line"].to_pylist()]
    return [_schema_line(event_format, EXAMPLE), *lines]


def _schema_line(event_format: EventFormat, table: Relation) -> str:
    return event_format.schema_line(table, Position(LSN(COMMIT), 1, 731, FIRST_COMMIT_TIME))


if __name__ == "__main__":
    from penstock.sinks.events.formats.json import JsonFormat
    from penstock.sinks.events.formats.pgsink import PgsinkFormat

    print("\n".join([*event_lines(JsonFormat()), "", *event_lines(PgsinkFormat())]))
