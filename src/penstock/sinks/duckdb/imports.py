"""The tables that imports into a DuckDB file fill, before they take the target's place.

A shadow is called ``<table>__import_<job>`` and stands in the schema of the target, where DuckDB can rename it. No change of
the stream touches it: ``penstock.tables`` does not know it, ``penstock.imports_under_way`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb

from penstock.changes.batch import Relation
from penstock.sinks.contract import ImportPart
from penstock.sinks.duckdb.changes import apply_to_shadow
from penstock.sinks.duckdb.existing_rows import DeletedKeys
from penstock.sinks.duckdb.tables import Tables
from penstock.sinks.duckdb.target import NO_COLUMNS, Target, dump_columns, enums_of, load_columns
from penstock.sinks.mirror.imports import Shadow
from penstock.sinks.mirror.typed_staging import StagedChanges


class Shadows:
    """A ``ShadowStore``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Tables) -> None:
        self._connection, self._tables = connection, tables

    def create_shadow(self, part: ImportPart) -> Shadow:
        relation = part.relation
        target = self._tables.shadow(relation, part.job)
        source = relation.schema, relation.table
        return Shadow(part.job, part.oid, source, (target.schema, target.table), dump_columns(target))

    def fill(self, shadow: Shadow, part: ImportPart, staged: Sequence[StagedChanges]) -> Shadow:
        target = _target(shadow)

        def target_of(relation: Relation) -> Target:
            nonlocal target
            target = self._tables.fitted_shadow(relation, target)
            return target

        apply_to_shadow(self._connection, target_of, staged, part.settled)
        if part.phase == "changes" and self._tables.keeps_existing_rows:
            DeletedKeys(self._connection, target).note(target, staged)
        return replace(shadow, details=dump_columns(target))

    def put_in_place(self, shadow: Shadow, part: ImportPart) -> None:
        target, relation = _target(shadow), part.relation
        filled = replace(target, enums=enums_of(relation.columns), oid=relation.oid)
        if part.merged is not None and self._tables.has(relation.oid):
            self._tables.merge_in(relation, filled, part.merged, part.again)
        else:
            self._tables.swap_in(shadow.source, filled, relation.key)
        DeletedKeys(self._connection, target).drop()

    def drop_shadow(self, shadow: Shadow) -> None:
        target = _target(shadow)
        self._connection.execute(f"DROP TABLE IF EXISTS {target.sql}")
        DeletedKeys(self._connection, target).drop()


def _target(shadow: Shadow) -> Target:
    columns = load_columns(shadow.details)
    return Target(*shadow.name, columns, shadow.oid, kept=() if columns else (NO_COLUMNS,))
