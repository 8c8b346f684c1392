"""The mirrored tables of a DuckDB file: which source table is which, made to fit the source's definition.

``penstock.tables`` remembers which source table is which target table and which column is which: DuckDB's names do not
tell capitals apart, Postgres's do, so ``Users`` beside ``users`` becomes ``Users_2``. It also remembers the source
table's oid, which tells a table from another one that has its name now.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from penstock.changes.batch import Column, Relation
from penstock.errors import UnrepresentableValue
from penstock.lsn import LSN, ZERO
from penstock.pgoutput.types.arrays import is_list
from penstock.sinks.contract import Merged
from penstock.sinks.duckdb.existing_rows import DeletedKeys, Former, combined, taken_over
from penstock.sinks.duckdb.file import CATALOG, quoted
from penstock.sinks.duckdb.records import IMPORTS, TABLES, in_the_file, records_of, refuse_foreign
from penstock.sinks.duckdb.target import (
    Target,
    add_column,
    alter,
    create,
    drop_column,
    dump_columns,
    enums_of,
    fits,
    free_name,
    load_columns,
    make_room,
    move,
    new_target,
    retype_column,
    target_schema,
    target_types,
    tell_of_other_columns,
)
from penstock.sinks.duckdb.types import duckdb_type, duckdb_values, same_kind
from penstock.sinks.mirror.owner import ExistingRows, Owner, cannot_tell_apart
from penstock.sinks.mirror.typed_staging import as_text
from penstock.sinks.settings import UnrepresentableSettings

logger = logging.getLogger(__name__)

Source = tuple[str, str]  # schema and table, as the source calls them


class Tables:
    """Looks up, creates and alters target tables, inside the caller's transaction.

    ``keep``: columns that the source drops stay. ``stream_at``: where the batch begins that is being applied.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        owner: Owner,
        policies: UnrepresentableSettings,
        keep: bool = True,
        stream_at: LSN = ZERO,
        existing_rows: ExistingRows = "refuse",
    ) -> None:
        self._existing_rows = existing_rows
        self._connection, self._owner, self._keep, self._stream_at = connection, owner, keep, stream_at
        self._policies, self._records = policies, records_of(connection, owner)
        connection.execute(IMPORTS + TABLES)
        rows = connection.execute(
            f"SELECT source_schema, source_table, target_table, columns, oid, kept, enums, shared "
            f"FROM {CATALOG}.penstock.tables WHERE pipeline = ? AND sink = ?",
            list(owner),
        ).fetchall()
        self._targets = {
            (schema, table): Target(
                target_schema(schema),
                name,
                load_columns(columns),
                oid,
                tuple(kept or ()),
                json.loads(enums or "{}"),
                bool(shared),
            )
            for schema, table, name, columns, oid, kept, enums, shared in rows
        }

    def target(self, relation: Relation) -> Target:
        """The table that fits this definition, with the rows that the source's table of this oid has brought so far."""
        source = relation.schema, relation.table
        self.rename(relation.oid, source)
        found = self._of(relation.oid)
        if found is not None:
            return self._fitted(relation, *found)
        known = self._targets.get(source)
        if known is not None and known.oid is None:
            return self._fitted(relation, source, known)
        self._make_room(source)
        return self._create(relation)

    def has_passed_on(self, relations: Sequence[Relation]) -> bool:
        """Whether one of them has another's name now, or another name than before; among each other or since we knew."""
        names = {source: target.oid for source, target in self._targets.items() if target.oid is not None}
        sources = {oid: source for source, oid in names.items()}
        for relation in relations:
            source = (relation.schema, relation.table)
            if names.setdefault(source, relation.oid) != relation.oid:
                return True
            if sources.setdefault(relation.oid, source) != source:
                return True
        return False

    def add_column(self, oid: int, column: Column, missing: str | None) -> bool:
        """``missing``: what rows have that are there. False: the file has no such table, or has the column already."""
        found = self._of(oid)
        if found is None or column.name in found[1].columns:
            return False
        source, known = found
        policy = self._policies.of(".".join(source), column.name)
        value = None
        if missing is not None:
            try:
                value = duckdb_values(pa.array([missing], pa.string()), column, policy, ".".join(source))
            except UnrepresentableValue:
                if not is_list(column):
                    raise
                column, value = as_text(column), pa.array([missing])
        target = add_column(self._connection, known, column.name, duckdb_type(column, policy))
        target = replace(target, enums={**known.enums, **enums_of([column])})
        if value is not None:
            self._connection.register("missing", pa.table({"value": value}))
            name = quoted(target.columns[column.name][0])
            self._connection.execute(f"UPDATE {target.sql} SET {name} = (SELECT value FROM missing)")
            self._connection.unregister("missing")
        self._remember(source, target)
        return True

    def drop_column(self, oid: int, name: str) -> bool:
        found = self._of(oid)
        if found is None or name not in found[1].columns:
            return False
        source, known = found
        self._remember(source, drop_column(self._connection, known, name, self._keep))
        return True

    def retype_column(self, oid: int, before: Column, after: Column) -> bool:
        found = self._of(oid)
        if found is None or after.name not in found[1].columns:
            return False
        source, known = found
        kind = duckdb_type(after, self._policies.of(".".join(source), after.name))
        if is_list(before) and is_list(after) and known.columns[after.name][1] == "VARCHAR":
            kind = "VARCHAR"  # it has met arrays that are no lists
        target = retype_column(self._connection, known, after.name, kind)
        name = quoted(target.columns[after.name][0])
        if (value := same_kind(name, before, after)) is not None:
            self._connection.execute(f"UPDATE {target.sql} SET {name} = {value}")
        enums = {column: enum for column, enum in known.enums.items() if column != after.name}
        self._remember(source, replace(target, enums={**enums, **enums_of([after])}))
        return True

    def rename_label(self, enum: int, before: str, after: str) -> bool:
        """In the source, all rows have the new one at once."""
        found = [(t.sql, quoted(t.columns[column][0])) for t in self._targets.values()
                 for column, oid in t.enums.items() if oid == enum and column in t.columns]  # fmt: skip
        for table, name in found:
            self._connection.execute(f"UPDATE {table} SET {name} = ? WHERE {name} = ?", [after, before])
        return bool(found)

    def rename_column(self, oid: int, before: str, after: str) -> bool:
        """Of the source's table of this oid. False: the file has no such column."""
        found = self._of(oid)
        if found is None or before not in found[1].columns or after in found[1].columns:
            return False
        source, known = found
        known = make_room(self._connection, known, after)
        columns = dict(known.columns)
        old, kind = columns.pop(before)
        new = free_name(after, {name.lower() for name, _ in columns.values()})
        if new != old:
            self._connection.execute(f"ALTER TABLE {known.sql} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        enums = {after if column == before else column: enum for column, enum in known.enums.items()}
        self._remember(source, replace(known, columns={**columns, after: (new, kind)}, enums=enums))
        return True

    def rename(self, oid: int, now: Source) -> bool:
        """The source's table of this oid has another name, or another schema. False: the file has no such table."""
        found = self._of(oid)
        if found is None or found[0] == now or self._is_of_a_later_one(now):
            return False
        source, known = found
        self._make_room(now)
        target = replace(known, schema=target_schema(now[0]), table=self._name_for(now, source))
        if (target.schema.lower(), target.table.lower()) != (known.schema.lower(), known.table.lower()):
            refuse_foreign(self._connection, self._owner, target)
        if target.sql != known.sql:
            move(self._connection, known, target)
        self._forget(source)
        del self._targets[source]
        _tell_of_other_name(now, target)
        self._remember(now, target)
        return True

    def drop(self, oid: int) -> bool:
        """With all its rows."""
        found = self._of(oid)
        if found is not None:
            self._drop(found[0])
        return found is not None

    def has(self, oid: int) -> bool:
        return self._of(oid) is not None

    def _of(self, oid: int) -> tuple[Source, Target] | None:
        return next(((source, target) for source, target in self._targets.items() if target.oid == oid), None)

    def swap_in(self, source: Source, filled: Target, key: Sequence[str] = ()) -> None:
        """A table that an import has filled takes the place of what the file has of this source table:

        1. What the source's table of this oid has brought so far goes, under whatever name; what another one brought that
           had the name before goes aside.
        2. The filled table gets the name; if the source's table has moved to another schema meanwhile, its rows do.
        3. ``penstock.tables`` says so.

        All of it is one transaction, the caller's: there is no moment without the table, or with half of it.
        """
        before = self._targets.get(source)
        deleted = DeletedKeys(self._connection, filled)
        brought = self._of(filled.oid) if filled.oid is not None else None
        if brought is not None and brought[1].shared and self.keeps_existing_rows and key:
            filled = combined(self._connection, filled, Former.of(brought[1]), key, deleted)
        for former in [known for known, target in self._targets.items() if target.oid in (None, filled.oid)]:
            if former == source or self._targets[former].oid is not None:
                self._drop(former)
        self._make_room(source)
        target = replace(
            filled, schema=target_schema(source[0]), table=before.table if before else self._name_for(source)
        )
        if target.table.lower() in in_the_file(self._connection, target.schema):
            refuse_foreign(self._connection, self._owner, target, self._existing_rows, key)
            filled = taken_over(self._connection, filled, target, key if self.keeps_existing_rows else (), deleted)
        target = replace(target, kept=filled.kept, shared=filled.shared)
        move(self._connection, filled, target)
        if before is None:
            _tell_of_other_name(source, target)
        self._remember(source, target)

    def merge_in(self, relation: Relation, filled: Target, merged: Merged, again: bool) -> None:
        """A table that an import has filled takes the place of its own rows among those of the tables that it is merged with;
        in one transaction, the caller's."""
        target = self.target(relation)
        for name in target.columns.keys() & filled.columns.keys():
            # One of the two has met arrays that are no lists.
            if target.columns[name][1] == "VARCHAR":
                filled = retype_column(self._connection, filled, name, "VARCHAR")
            elif filled.columns[name][1] == "VARCHAR":
                target = self._remember((relation.schema, relation.table),
                                        retype_column(self._connection, target, name, "VARCHAR"))  # fmt: skip
        if merged.origin is not None:
            column, value = merged.origin
            self._connection.execute(f"DELETE FROM {target.sql} WHERE {quoted(target.columns[column][0])} = ?", [value])
        elif again:
            raise cannot_tell_apart(relation)
        pairs = [
            (target.columns[name][0], filled.columns[name][0]) for name in filled.columns if name in target.columns
        ]
        into, out_of = (", ".join(quoted(pair[side]) for pair in pairs) for side in (0, 1))
        self._connection.execute(f"INSERT INTO {target.sql} ({into}) SELECT {out_of} FROM {filled.sql}")
        self._connection.execute(f"DROP TABLE {filled.sql}")

    def shadow(self, relation: Relation, job: int) -> Target:
        """A new table for an import to fill, beside the one that it will replace."""
        source, schema = (relation.schema, relation.table), target_schema(relation.schema)
        name = free_name(f"{relation.table}__import_{job}", self._taken(schema) | in_the_file(self._connection, schema))
        target = new_target(relation, name, target_types(relation, self._policies))
        if source not in self._targets:
            self._records.refuse_table_of_another(source, self._name_for(source))
            place = replace(target, table=self._name_for(source))
            refuse_foreign(self._connection, self._owner, place, self._existing_rows, relation.key)
            tell_of_other_columns(relation, None, target)
        create(self._connection, target)
        return target

    def fitted_shadow(self, relation: Relation, shadow: Target) -> Target:
        types = target_types(relation, self._policies, shadow)
        return shadow if fits(shadow, types) else alter(self._connection, relation, shadow, types, keep=False)

    def _fitted(self, relation: Relation, source: Source, known: Target) -> Target:
        types = target_types(relation, self._policies, known)
        if not fits(known, types):
            return self._remember(source, alter(self._connection, relation, known, types, self._keep))
        if known.oid is None or known.enums != enums_of(relation.columns):
            return self._remember(source, replace(known, oid=relation.oid, enums=enums_of(relation.columns)))
        return known

    def _create(self, relation: Relation) -> Target:
        source = relation.schema, relation.table
        types = target_types(relation, self._policies)
        target = new_target(relation, self._name_for(source), types)
        create(self._connection, target)
        _tell_of_other_name(source, target)
        tell_of_other_columns(relation, None, target)
        return self._remember(source, target)

    def _drop(self, source: Source) -> None:
        """Not emptied and altered: a new type would be tried on rows that are deleted in the same transaction."""
        self._connection.execute(f"DROP TABLE IF EXISTS {self._targets.pop(source).sql}")
        self._forget(source)

    def _make_room(self, source: Source) -> None:
        """Another table of the source had this name: its rows are none of the one that has it now.

        It goes aside: it may have another name in the source, and show up again.
        """
        former = self._targets.get(source)
        if former is None:
            return
        taken = self._taken(former.schema) | in_the_file(self._connection, former.schema)
        aside = replace(former, table=free_name(f"{former.table}__before_{former.oid or 0}", taken))
        logger.warning(
            "%s is another table in the source than before: in the file the former one is called %s now.",
            ".".join(source), aside.table,
        )  # fmt: skip
        move(self._connection, former, aside)
        self._forget(source)
        del self._targets[source]
        self._remember((source[0], aside.table), aside)

    def _is_of_a_later_one(self, name: Source) -> bool:
        """Whether the name belongs to a table that got it after what is being applied: its import came further than the
        stream, which still tells of the one that had the name before, and that is aside."""
        known = self._targets.get(name)
        if known is None or known.oid is None:
            return False
        imported_to = self._records.imported_to(known.oid)
        return imported_to is not None and imported_to > self._stream_at

    def _name_for(self, source: Source, before: Source | None = None) -> str:
        """Neither that of another source table's target nor that of a table which an import is filling."""
        taken = self._taken(target_schema(source[0]))
        if before is not None and target_schema(before[0]).lower() == target_schema(source[0]).lower():
            taken.discard(self._targets[before].table.lower())
        return free_name(source[1], taken)

    def _taken(self, schema: str) -> set[str]:
        ours = {target.table.lower() for target in self._targets.values() if target.schema.lower() == schema.lower()}
        return ours | {name.lower() for name in self._records.shadows_in(schema)}

    @property
    def keeps_existing_rows(self) -> bool:
        return self._existing_rows == "keep"

    def _remember(self, source: Source, target: Target) -> Target:
        if source not in self._targets:
            self._records.refuse_table_of_another(source, target.table)
        self._forget(source)
        self._connection.execute(
            f"INSERT INTO {CATALOG}.penstock.tables (pipeline, sink, source_schema, source_table, target_table, columns, oid, "
            "kept, enums, shared) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                *self._owner,
                *source,
                target.table,
                dump_columns(target),
                target.oid,
                list(target.kept),
                json.dumps(target.enums),
                target.shared,
            ],
        )
        self._targets[source] = target
        return target

    def _forget(self, source: Source) -> None:
        self._connection.execute(
            f"DELETE FROM {CATALOG}.penstock.tables "
            "WHERE pipeline = ? AND sink = ? AND source_schema = ? AND source_table = ?",
            [*self._owner, *source],
        )


def _tell_of_other_name(source: Source, target: Target) -> None:
    if (target.schema, target.table) != source:
        logger.warning(
            "Table %s is called %s.%s in DuckDB, which does not tell capitals apart in names.",
            ".".join(source), target.schema, target.table,
        )  # fmt: skip
