"""Sinks of events: their state is what a reader has after applying all events in order."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

from penstock.changes.batch import Relation
from penstock.sinks.events import FormatName
from tests.contracts.sink_under_test import Row, SinkUnderTest


def replayed(events: list[dict[str, Any]], relation: Relation) -> list[Row]:
    """The table's rows after these events, as docs/events.md tells readers to apply them."""
    rows: list[dict[str, Any]] = []
    for event in events:
        if (event.get("schema"), event.get("table")) != (relation.schema, relation.table):
            continue
        if event["op"] == "truncate":
            rows.clear()
        elif event["op"] in ("insert", "read"):
            _take(rows, event["key"])
            rows.append(event["after"])
        elif event["op"] == "update":
            before, present = _take(rows, _identity_before(event)), _take(rows, event["key"])
            kept = present if before is None else before
            if kept is not None or "unchanged" not in event:
                rows.append({**(kept or {}), **event["after"]})
        elif event["op"] == "delete":
            _take(rows, _identity_before(event))
    columns = [column.name for column in relation.columns]
    return [{name: _text(row.get(name)) for name in columns} for row in rows]


def _identity_before(event: dict[str, Any]) -> dict[str, Any] | None:
    """The key that the row had, or all of the row where there is no key."""
    before: dict[str, Any] | None = event["before"]
    key: dict[str, Any] | None = event["key"]
    if before is None or key is None:
        return key if before is None else before
    return {name: before[name] for name in key}


def _take(rows: list[dict[str, Any]], identity: dict[str, Any] | None) -> dict[str, Any] | None:
    """One row that has these values, removed; None if there is no such row."""
    if identity is None:
        return None
    for index, row in enumerate(rows):
        if all(row[name] == value for name, value in identity.items()):
            return rows.pop(index)
    return None


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "t" if value else "f"
    return None if value is None else str(value)


class EventSinkUnderTest(SinkUnderTest):
    keeps_messages: ClassVar[bool] = True
    format: FormatName = "json"  # the suite applies events of this one; another is for tests that read them themselves

    def lines(self) -> list[bytes]:
        raise NotImplementedError

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def rows(self, relation: Relation) -> list[Row]:
        return replayed(self.events(), relation)

    def messages(self) -> list[tuple[str, bytes]]:
        found = [event for event in self.events() if event["op"] == "message"]
        return [(event["prefix"], base64.b64decode(event["content"])) for event in found]
