"""Schema changes of the source, followed in a DuckDB file, inside the transaction of the batch that they came with.

The file has tables and columns, and neither keys nor constraints nor defaults: what concerns those is nothing to it. Enums are
text: a new label needs nothing, one that is renamed is so in every row. A change that the file has already is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from penstock.schema import kinds
from penstock.schema.kinds import SchemaChange, TableChange
from penstock.schema.log.row import LoggedCommand
from penstock.schema.words import in_words
from penstock.sinks.duckdb.tables import Tables
from penstock.sinks.duckdb.types import duckdb_type, is_exact
from penstock.sinks.mirror.schema_following import column_of, follow_in_table, in_their_place
from penstock.sinks.mirror.typed_staging import StagedChanges
from penstock.sinks.settings import UnrepresentableSettings

logger = logging.getLogger(__name__)


def follow(
    tables: Tables,
    on_drop: Literal["keep", "drop"],
    commands: Sequence[LoggedCommand],
    staged: Sequence[StagedChanges],
    apply: Callable[[Sequence[StagedChanges]], None],
) -> None:
    """``apply`` applies changes of tables: those that came before a command first."""
    for change in in_their_place(commands, staged, apply):
        if isinstance(change, TableChange):
            follow_in_table(_Columns(tables), change, on_drop, "file")
        elif isinstance(change, kinds.RenameEnumValue) and tables.rename_label(
            change.type.oid, change.before, change.after
        ):
            logger.info("The file follows: %s.", in_words(change))


def follows_exactly(change: SchemaChange, nested: bool, policies: UnrepresentableSettings) -> bool:
    """Whether rows have the source's values when the change is followed. The file has the text of composite values."""
    if isinstance(change, kinds.RenameEnumValue):
        return not nested
    if not isinstance(change, kinds.RetypeColumn):
        return not isinstance(change, kinds.AddAttribute | kinds.DropAttribute | kinds.RetypeAttribute)
    before, after = column_of(change.before), column_of(change.after)
    policy = policies.of(str(change.table), after.name)
    return is_exact(before, after, (duckdb_type(before, policy), duckdb_type(after, policy)))


class _Columns:
    """``FollowingTables``: the columns of the file's tables follow."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.has, self.rename, self.drop = tables.has, tables.rename, tables.drop

    def alter(self, change: TableChange) -> bool:
        tables = self._tables
        match change:
            case kinds.AddColumn(table=table, column=column) if column.generated is None:  # which may not be published
                return tables.add_column(table.oid, column_of(column), column.missing)
            case kinds.DropColumn(table=table, column=column):
                return tables.drop_column(table.oid, column.name)
            case kinds.RetypeColumn(table=table, before=before, after=after):
                return tables.retype_column(table.oid, column_of(before), column_of(after))
            case kinds.RenameColumn(table=table, before=former, after=name):
                return tables.rename_column(table.oid, former, name)
        return False
