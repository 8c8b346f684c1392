"""A row of ``penstock.schema_log``, and what it says.

Rows of the schema log as they come with the stream: commands with their place among the changes of tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np

from penstock.changes.batch import INSERT, OWN_SCHEMA, ChangeBatch
from penstock.lsn import LSN
from penstock.schema import kinds
from penstock.schema.definitions import Definition, TypeDefinition, type_from_json
from penstock.schema.differences import Step, table_differences, type_differences
from penstock.schema.kinds import SchemaChange, TableChange


@dataclass(frozen=True)
class LoggedTable:
    """``rewrite``: why every row was written anew, if they were."""

    oid: int
    before: Definition | None
    after: Definition | None
    rewrite: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoggedType:
    """``tables``: oids of those with a column of the type, or of one that is made of it, such as its array; ``nested``: those
    among them that have one of the latter."""

    oid: int
    before: TypeDefinition | None
    after: TypeDefinition | None
    tables: tuple[int, ...] = ()
    nested: tuple[int, ...] = ()


@dataclass(frozen=True)
class SchemaLogRow:
    """One command. ``lsn`` is where it was run, ``statement`` all that the client sent with it in one go."""

    id: int
    at: datetime | str
    lsn: LSN
    xid: int
    role: str
    tag: str
    statement: str | None = None
    search_path: str | None = None
    objects: tuple[dict[str, Any], ...] = ()
    tables: tuple[LoggedTable, ...] = ()
    types: tuple[LoggedType, ...] = ()
    error: str | None = None

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> SchemaLogRow:
        """From values by column name, as psycopg gives them or as text, the way a stream has them."""
        return cls(
            int(row["id"]),
            row["at"],
            LSN.parse(str(row["lsn"])),
            int(row["xid"]),
            row["role"],
            row["tag"],
            row["statement"],
            row["search_path"],
            tuple(_json(row["objects"])),
            tuple(_table(entry) for entry in _json(row["tables"])),
            tuple(logged_type(entry) for entry in _json(row["types"])),
            row["error"],
        )


def changes(row: SchemaLogRow | Mapping[str, Any]) -> tuple[SchemaChange, ...]:
    """What the command changed, in an order in which it can be applied."""
    row = row if isinstance(row, SchemaLogRow) else SchemaLogRow.parse(row)
    found: list[tuple[tuple[int, int], SchemaChange]] = []
    depths = _depths(row.tables)
    for kind in row.types:
        found += [((step, 0), change) for step, change in type_differences(kind.before, kind.after)]
    for table in row.tables:
        depth = depths[table.oid]
        for step, change in table_differences(table.before, table.after):
            found.append(((step, -depth if step == Step.DROP_TABLES else depth), change))
        if table.rewrite and table.after is not None:
            found.append(((Step.SETTINGS, depth), kinds.RewriteTable(table.after.name, table.rewrite)))
    ordered = tuple(change for _, change in sorted(found, key=lambda item: item[0]))
    if ordered and row.error is None:
        return ordered
    return (*ordered, kinds.OtherCommand(row.tag, row.statement, row.objects, row.error, row.search_path))


def _depths(tables: tuple[LoggedTable, ...]) -> dict[int, int]:
    """How far below the top of its family a table is, as far as the row tells: parents are made before partitions."""
    parents: dict[int, set[int]] = {}
    for table in tables:
        definition = table.after or table.before
        if definition is not None:
            above = {parent.oid for parent in definition.settings.inherits}
            parents[table.oid] = above | ({definition.partition_of.oid} if definition.partition_of else set())

    def depth(oid: int) -> int:
        return max((1 + depth(parent) for parent in parents.get(oid, ()) if parent in parents), default=0)

    return {table.oid: depth(table.oid) for table in tables}


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str | bytes) else value or []


def _table(entry: Mapping[str, Any]) -> LoggedTable:
    before, after = (Definition.from_json(entry[when]) if entry[when] else None for when in ("before", "after"))
    return LoggedTable(entry["oid"], before, after, tuple(entry.get("rewrite") or ()))


def logged_type(entry: Mapping[str, Any]) -> LoggedType:
    before, after = (type_from_json(entry[when]) if entry[when] else None for when in ("before", "after"))
    tables, nested = (tuple(entry.get(name) or ()) for name in ("tables", "nested"))
    return LoggedType(entry["oid"], before, after, tables, nested)


SCHEMA_LOG = f"{OWN_SCHEMA}.schema_log"


@dataclass(frozen=True)
class LoggedCommand:
    """``at`` is its place: commit LSN and sequence, as changes of tables have them."""

    at: tuple[int, int]
    row: dict[str, str | None]  # by column, Postgres's text
    besides: frozenset[int] = frozenset()  # oids of tables to which it is nothing new
    instead: tuple[SchemaChange, ...] | None = None  # what rules make of it, under the target's names

    @cached_property
    def parsed(self) -> SchemaLogRow:
        return SchemaLogRow.parse(self.row)

    @cached_property
    def changes(self) -> tuple[SchemaChange, ...]:
        found = changes(self.parsed) if self.instead is None else self.instead
        if not self.besides:
            return found
        return tuple(one for one in found if not (isinstance(one, TableChange) and one.table.oid in self.besides))

    def later_than(self, known: Callable[[int], int | None]) -> LoggedCommand:
        """Without what it did to tables that are known as of a later place in the log: by oid, where that is."""
        tables = {one.table.oid for one in self.changes if isinstance(one, TableChange)}
        besides = frozenset(oid for oid in tables if (upto := known(oid)) is not None and self.at[0] < upto)
        return replace(self, besides=besides) if besides else self


def logged_commands(batches: Iterator[ChangeBatch]) -> list[LoggedCommand]:
    """Of changes of the schema log. They are few, and looked at one by one."""
    found = []
    for batch in batches:
        names = [column.name for column in batch.relation.columns]
        for row in np.flatnonzero(batch.op == INSERT).tolist():  # others may delete from it, to keep it short
            values = {name: column[row].as_py() for name, column in zip(names, batch.new, strict=True)}
            found.append(LoggedCommand((int(batch.commit_lsn[row]), int(batch.sequence[row])), values))
    return found
