"""Rows of the schema log as they come with the stream: commands with their place among the changes of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.changes import INSERT, OWN_SCHEMA, ChangeBatch
from penstock.schema_changes.kinds import SchemaChange, TableChange
from penstock.schema_changes.row import SchemaLogRow, changes

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
