"""Schema changes of the source, followed in a DuckDB file, inside the transaction of the batch that they came with.

Columns that come, go or change their type are seen from the changes themselves (``duckdb_tables.py``). What those do not tell
is followed here, in its place among the changes of the table: new names of columns and of tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from penstock.schema_changes import kinds
from penstock.schema_changes.kinds import TableChange
from penstock.schema_changes.logged import LoggedCommand
from penstock.sinks.duckdb_staging import StagedChanges
from penstock.sinks.duckdb_tables import Tables

logger = logging.getLogger(__name__)


def follow(
    tables: Tables,
    commands: Sequence[LoggedCommand],
    staged: Sequence[StagedChanges],
    apply: Callable[[Sequence[StagedChanges]], None],
) -> None:
    """``apply`` applies changes of tables: those that came before a command first."""
    left = list(staged)
    for command in commands:
        for change in command.changes:
            if isinstance(change, kinds.RenameColumn | kinds.RenameTable | kinds.MoveTable):
                due = [some for some in left if some.relation.oid == change.table.oid and some.last_at < command.at]
                apply(due)
                left = [some for some in left if some not in due]
                _follow(tables, change)
    apply(left)


def _follow(tables: Tables, change: TableChange) -> None:
    table = change.table
    match change:
        case kinds.RenameColumn(before=before, after=after):
            done = tables.rename_column(table.oid, before, after)
        case kinds.RenameTable(after=name):
            done = tables.rename(table.oid, (table.schema, name))
        case kinds.MoveTable(after=schema):
            done = tables.rename(table.oid, (schema, table.table))
        case _:
            done = False
    if done:
        logger.info("%s of the file follows: %s.", table, type(change).__name__)
