"""Sinks of events: their state is what a reader has after applying all events in order."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any, ClassVar

from penstock.changes.batch import Relation
from penstock.sinks.contract import Sink
from penstock.sinks.events import FormatName
from penstock.sinks.file.sink import FileSettings, FileSink
from penstock.sinks.stdout import StdoutSettings, StdoutSink
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


class FileUnderTest(EventSinkUnderTest):
    name: ClassVar[str] = "file"
    keeps_progress: ClassVar[bool] = True

    def new_sink(self) -> Sink[Any]:
        return FileSink(FileSettings(name="out", format=self.format, path=self.directory / "events"))

    def lines(self) -> list[bytes]:
        files = sorted((self.directory / "events").glob("*.jsonl"))
        return [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]


class StdoutUnderTest(EventSinkUnderTest):
    """Standard output goes to memory while the sink is in use."""

    name: ClassVar[str] = "stdout"
    keeps_progress: ClassVar[bool] = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._original = sys.stdout
        self._printed = io.BytesIO()

    def new_sink(self) -> Sink[Any]:
        sys.stdout = io.TextIOWrapper(self._printed, write_through=True)
        return StdoutSink(StdoutSettings(name="out", format=self.format))

    def lines(self) -> list[bytes]:
        return self._printed.getvalue().split(b"\n")[:-1]

    def close(self) -> None:
        super().close()
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.buffer is self._printed:
            sys.stdout.detach()  # so that the memory outlives it
        sys.stdout = self._original
