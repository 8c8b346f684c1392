"""Source against target, row by row, as text: what Postgres holds, what DuckDB holds, and what the events replay to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from psycopg import sql

from penstock.testing.conditions import wait_until
from tests.recovery.workload import Table

Row = tuple[str | None, ...]
Rows = Counter[Row]  # how often each row is there: tables without a key may hold it many times


def source_rows(connection: psycopg.Connection, table: Table) -> Rows:
    columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in table.columns)
    query = sql.SQL("select {} from {}").format(columns, table.identifier)
    return Counter(tuple(map(canonical, row)) for row in connection.execute(query))


def replica_rows(connection: psycopg.Connection, table: Table) -> Rows:
    """As of the source; a table to which nothing ever happened may not be there."""
    there = connection.execute("select to_regclass(%s)", [table.identifier.as_string(connection)]).fetchone()
    return source_rows(connection, table) if there and there[0] else Counter()


def duckdb_rows(path: Path, tables: Sequence[Table]) -> dict[Table, Rows]:
    """Waits for the moment between two commits, when nobody has the file locked."""
    connection = wait_until(lambda: _open(path), what=f"{path} to be readable")
    with connection:
        listed = "select source_schema, source_table, target_table, columns from penstock.tables"
        names = {
            (schema, table): (target, json.loads(columns))
            for schema, table, target, columns in connection.execute(listed).fetchall()
        }
        return {
            table: _rows_of(connection, table, *names.get((table.schema, table.name), ("", {}))) for table in tables
        }


def _open(path: Path) -> duckdb.DuckDBPyConnection | None:
    """None while somebody writes to it: another process, or a sink of this one, which has it attached by another name."""
    try:
        return duckdb.connect(str(path), read_only=True)
    except (duckdb.IOException, duckdb.ResourceInUseException):
        return None


def _rows_of(
    connection: duckdb.DuckDBPyConnection, table: Table, target: str, columns: Mapping[str, list[str]]
) -> Rows:
    if not target:
        return Counter()  # nothing ever happened to that table
    listed = ", ".join(f"cast({_quoted(columns[name][0])} as varchar)" for name in table.columns)
    query = f"select {listed} from {_quoted(table.schema)}.{_quoted(target)}"
    return Counter(tuple(map(canonical, row)) for row in connection.execute(query).fetchall())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def canonical(value: object) -> str | None:
    """JSON may be spaced in many ways; everything else is Postgres's text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not value.startswith("{"):
        return value
    if isinstance(value, str):
        value = json.loads(value)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else str(value)


class Replay:
    """The events of a ``file`` sink, applied in order to empty tables."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._tables = {(table.schema, table.name): table for table in tables}
        self._rows: dict[Table, dict[Any, Row]] = {table: {} for table in self._tables.values()}
        self._read: set[str] = set()
        self._copies = 0
        self.seen: dict[tuple[str, int, str], str] = {}  # (lsn, sequence, table) -> op
        self.faults: list[str] = []
        self._last = (0, 0)
        self._changed: dict[Table, int] = {}

    def read(self, directory: Path) -> None:
        """What was not read yet, up to where the directory's own record goes."""
        delivered = json.loads((directory / ".progress.json").read_bytes())["lsn"]
        until = _number(delivered) if delivered else 0
        for path in sorted(directory.glob("*.jsonl")):
            if path.name not in self._read and int(path.stem.split("-")[1], 16) <= until:
                self._read.add(path.name)
                with path.open() as lines:
                    for line in lines:
                        self._apply(json.loads(line))

    def place_of(self, table: Table, row: Row) -> int | None:
        """The commit of the last change of a table that now has this row."""
        return self._changed.get(table) if row in self._rows[table].values() else None

    def rows(self, table: Table) -> Rows:
        return Counter(self._rows[table].values())

    def _apply(self, event: dict[str, Any]) -> None:
        table = self._tables.get((event.get("schema", ""), event.get("table", "")))
        if event["op"] in ("schema", "message") or table is None:
            return
        place = (event["lsn"], event["sequence"], str(table))
        if place in self.seen:
            self.faults.append(f"{event['op']} at {place} is there twice")
        self.seen[place] = event["op"]
        position = (_number(event["lsn"]), event["sequence"])
        if position < self._last:
            self.faults.append(f"{event['op']} at {place} comes after {self._last}")
        self._last = position
        self._changed[table] = position[0]
        getattr(self, f"_{event['op']}")(table, event)

    def _insert(self, table: Table, event: dict[str, Any]) -> None:
        self._put(table, _row(table, event["after"], None))

    def _update(self, table: Table, event: dict[str, Any]) -> None:
        before = self._take(table, event["before"] or event["key"], event)
        self._put(table, _row(table, event["after"], before))

    def _delete(self, table: Table, event: dict[str, Any]) -> None:
        self._take(table, event["before"] or event["key"], event)

    def _truncate(self, table: Table, event: dict[str, Any]) -> None:
        self._rows[table].clear()

    def _put(self, table: Table, row: Row) -> None:
        key: Any = tuple(row[table.columns.index(name)] for name in table.key)
        if not table.key:
            self._copies += 1
            key = self._copies
        elif key in self._rows[table]:
            self.faults.append(f"{table} has {key} already")
        self._rows[table][key] = row

    def _take(self, table: Table, old: dict[str, Any], event: dict[str, Any]) -> Row | None:
        rows = self._rows[table]
        if table.key:
            key: Any = tuple(canonical(old[name]) for name in table.key)
        else:
            wanted = _row(table, old, None)
            key = next((copy for copy, row in rows.items() if row == wanted), None)
        if key not in rows:
            self.faults.append(f"{event['op']} at {event['lsn']}/{event['sequence']}: {table} has no {key}")
        return rows.pop(key, None)


def _row(table: Table, values: Mapping[str, Any], before: Row | None) -> Row:
    """An unchanged value out of line is absent: then the row had it before."""
    return tuple(
        canonical(values[name]) if name in values else (before[index] if before else "?")
        for index, name in enumerate(table.columns)
    )


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) | int(low, 16)


_OPS = {b"I": "insert", b"U": "update", b"D": "delete", b"T": "truncate"}


class Witness:
    """A second slot on the same publication: an independent record of every change that was committed."""

    def __init__(self, url: str, publication: str) -> None:
        self._url, self._publication = url, publication
        self._names: dict[int, str] = {}
        self.seen: dict[tuple[str, int, str], str] = {}
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select pg_create_logical_replication_slot('witness', 'pgoutput')")

    def read(self) -> None:
        """A server that died may tell some of it again; that changes nothing here."""
        query = (
            "select data from pg_logical_slot_get_binary_changes('witness', null, null, "
            "'proto_version', '1', 'publication_names', %s)"
        )
        lsn, sequence = "", 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            for (data,) in connection.execute(query, [self._publication]):
                kind = data[:1]
                if kind == b"B":
                    lsn, sequence = f"{int.from_bytes(data[1:5]):X}/{int.from_bytes(data[5:9]):X}", 0
                elif kind == b"R":
                    schema, table = data[5:].split(b"\0")[:2]
                    self._names[int.from_bytes(data[1:5])] = f"{schema.decode()}.{table.decode()}"
                elif kind in _OPS:
                    sequence += 1
                    for oid in _relations(data):
                        self.seen[lsn, sequence, self._names[oid]] = _OPS[kind]


def _relations(data: bytes) -> list[int]:
    if data[:1] != b"T":
        return [int.from_bytes(data[1:5])]
    count = int.from_bytes(data[1:5])
    return [int.from_bytes(data[6 + 4 * index : 10 + 4 * index]) for index in range(count)]


def differences(kind: str, table: Table, source: Rows, target: Rows) -> list[str]:
    if source == target:
        return []
    lacking, extra = list((source - target).items()), list((target - source).items())
    return [
        f"{kind}: {table} lacks {sum(n for _, n in lacking)} rows and has {sum(n for _, n in extra)} that the source has "
        f"not; lacking {_shown(lacking)}; extra {_shown(extra)}"
    ]


def _shown(rows: list[tuple[Row, int]]) -> str:
    some = [f"{count}x({', '.join(str(value)[:40] for value in row)})" for row, count in rows[:3]]
    return "; ".join(some) or "none"
