"""The events of a ``file`` sink with imports in it, applied in order, as a consumer would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.recovery.comparison import Row, Rows, canonical
from tests.recovery.workload import Table


class ImportReplay:
    """By key: ``read`` and ``insert`` put a row in the place of the one that is there, a delete may find nothing.

    Without a key: every ``read`` and ``insert`` adds a row, and what an update or delete is about must be there.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self._tables = {(table.schema, table.name): table for table in tables}
        self._rows: dict[Table, dict[Any, Row]] = {table: {} for table in self._tables.values()}
        self._copies = 0
        self._missing: dict[Table, list[str]] = {}

    def read(self, directory: Path) -> None:
        for path in sorted(directory.glob("*.jsonl")):
            with path.open() as lines:
                for line in lines:
                    self._apply(json.loads(line))

    @property
    def faults(self) -> list[str]:
        return [fault for faults in self._missing.values() for fault in faults]

    def rows(self, table: Table) -> Rows:
        return Counter(self._rows[table].values())

    def _apply(self, event: dict[str, Any]) -> None:
        table = self._tables.get((event.get("schema", ""), event.get("table", "")))
        if event["op"] in ("schema", "message") or table is None:
            return
        rows = self._rows[table]
        if event["op"] == "truncate":
            rows.clear()
            self._missing.pop(
                table, None
            )  # of a table that is truncated while it is copied, nothing before that is copied
            return
        before = self._take(table, event)
        if event["op"] != "delete":
            after = event["after"]
            row = tuple(
                canonical(after[name]) if name in after else self._kept(table, event, before, index)
                for index, name in enumerate(table.columns)
            )
            rows[self._key(table, row)] = row

    def _take(self, table: Table, event: dict[str, Any]) -> Row | None:
        if event["op"] in ("insert", "read"):
            return None
        rows, old = self._rows[table], event["before"] or event["key"]
        if table.key:
            return rows.pop(tuple(canonical(old[name]) for name in table.key), None)
        wanted = tuple(canonical(old[name]) for name in table.columns)
        found = next((copy for copy, row in rows.items() if row == wanted), None)
        if found is None:
            fault = f"{event['op']} at {event['lsn']}/{event['sequence']}: {table} has no {wanted}"
            self._missing.setdefault(table, []).append(fault[:200])
        return rows.pop(found, None)

    def _kept(self, table: Table, event: dict[str, Any], before: Row | None, index: int) -> str | None:
        """A row that is not there will be deleted by a later event; if not, its value gives it away."""
        return before[index] if before is not None else f"not sent with {event['lsn']}"

    def _key(self, table: Table, row: Row) -> Any:
        if table.key:
            return tuple(row[table.columns.index(name)] for name in table.key)
        self._copies += 1
        return self._copies
