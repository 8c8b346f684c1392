"""Imports into a Postgres target: each fills a table of its own, a shadow, which then takes the target's place in one step.

The shadow is called ``<table>__import_<job>`` and stands beside the target. Executors COPY what they read straight into it,
in one transaction with the part's record: so every part is in there once, whoever dies when. Keys and indexes are made when
all rows are there and before the changes are replayed. What is unique besides the key may be violated until they are: the rows
were read at different times, and a value may have passed from one to another. Such an index is then made at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from psycopg import sql

from penstock import failpoints
from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused
from penstock.postgres.connection import Connection
from penstock.sinks.contract import ImportPart, UnderWay
from penstock.sinks.mirror.imports import Shadow
from penstock.sinks.mirror.records import Records
from penstock.sinks.postgres.changes import Applier
from penstock.sinks.postgres.columns import restart_sequences
from penstock.sinks.postgres.filled import AddRows, DeletedKeys
from penstock.sinks.postgres.staging import StagedChanges, copy_lines, pieces
from penstock.sinks.postgres.tables import Tables
from penstock.sinks.postgres.target import Target, find

_UNIQUE_BESIDES_KEY = """
SELECT n.nspname, c.relname, (SELECT conname FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u', 'x'))
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.indrelid = %(oid)s AND (i.indisunique OR i.indisexclusion) AND NOT (
    i.indpred IS NULL AND i.indexprs IS NULL AND (SELECT array_agg(attname::text ORDER BY attname::text) FROM pg_attribute
    WHERE attrelid = indrelid AND attnum = ANY (indkey)) = (SELECT array_agg(k ORDER BY k) FROM unnest(%(key)s::text[]) k)
)
"""

_INDEXED = "indexed"  # of a shadow: has its keys and indexes


class Shadows:
    """A ``ShadowStore``. ``add`` adds the rows of a filled table to one that stays."""

    def __init__(self, connection: Connection, tables: Tables, applier: Applier, add: AddRows) -> None:
        self._connection, self._tables, self._applier, self._add = connection, tables, applier, add

    def create_shadow(self, part: ImportPart) -> Shadow:
        relation = part.relation
        source = relation.schema, relation.table
        self._tables.refuse_rows_of_others(self._connection, source, relation.key)
        target = self._tables.shadow(self._connection, relation, part.job)
        return Shadow(part.job, part.oid, source, (target.schema, target.table))

    def fill(self, shadow: Shadow, part: ImportPart, staged: Sequence[StagedChanges]) -> Shadow:
        def target_of(connection: Connection, relation: Relation) -> Target:
            return self._tables.fitted(connection, relation, _filled(connection, shadow))

        self._applier.apply(staged, target_of, where_known=not part.settled)
        # The sequences belong to the table that the shadow will replace.
        restart_sequences(self._connection, staged, lambda _: find(self._connection, *shadow.source))
        if part.phase == "changes" and self._tables.keeps_existing_rows:
            DeletedKeys(self._connection, shadow.name).note(self._applier, staged)
        return shadow

    def put_in_place(self, shadow: Shadow, part: ImportPart) -> None:
        """A table that stays gets the rows of the shadow (``filled.py``)."""
        filled, relation = _filled(self._connection, shadow), part.relation
        if part.merged is not None and self._tables.place_of(self._connection, relation.oid) is not None:
            self._tables.merge_in(self._connection, relation, filled, part.merged, part.again, self._add)
        else:
            self._tables.swap_in(self._connection, relation, shadow.source, filled, part.job, self._add)
        DeletedKeys(self._connection, shadow.name).drop()

    def drop_shadow(self, shadow: Shadow) -> None:
        self._connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(*shadow.name)))
        DeletedKeys(self._connection, shadow.name).drop()


def index_shadow(connection: Connection, records: Records, tables: Tables, part: ImportPart) -> None:
    """Makes keys and indexes before the first change, in transactions of their own: that takes long, and can be done again."""
    if part.phase not in ("changes", "end") or _under_way(records, part) is None:
        return
    shadow = records.shadow(part.job)
    target = _filled(connection, shadow)
    if shadow.details != _INDEXED:
        with connection.transaction():
            if not tables.index(connection, part.relation, part.job, at_last=False):
                _remove_doubles(connection, part.relation, target)
                tables.index(connection, part.relation, part.job, at_last=False)
            records.put_shadow(replace(shadow, details=_INDEXED))
        connection.execute(sql.SQL("ANALYZE {}").format(target.name))
    if part.phase == "end":
        with connection.transaction():
            tables.index(connection, part.relation, part.job, at_last=True)


def postpone_uniqueness(connection: Connection, records: Records, part: ImportPart) -> bool:
    """Changes that are replayed violate it, for now: the shadow goes without until the end. False: it did already."""
    if _under_way(records, part) is None:
        return False
    target = _filled(connection, records.shadow(part.job))
    found = connection.execute(_UNIQUE_BESIDES_KEY, {"oid": target.oid, "key": list(part.relation.key)}).fetchall()
    with connection.transaction():
        for schema, index, constraint in found:
            if constraint is not None:
                drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
                connection.execute(drop.format(target.name, sql.Identifier(constraint)))
            else:
                connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(schema, index)))
    return bool(found)


def write_rows(connection: Connection, records: Records, part: ImportPart, changes: Iterator[ChangeBatch]) -> bool:
    """Executor: puts rows into the shadow, and the part's record with them. False: it is not there yet.

    Several may do so at once, and the same part may come twice at once: the second waits for the first one's record.
    """
    with connection.transaction():
        if connection.execute("SELECT to_regclass('penstock.import_parts')").fetchone() == (None,):
            return False  # the sink is yet to be prepared
        under_way = _under_way(records, part)
        if under_way is None or under_way.replayed is not None:
            return False
        target = _filled(connection, records.shadow(part.job))
        if not records.put_part(part):
            for _ in changes:
                pass
            return True
        _copy(connection, target, part.relation, changes)
        failpoints.reach(failpoints.CHUNK_COPIED)
    return True


def _under_way(records: Records, part: ImportPart) -> UnderWay | None:
    return records.imports(part).of(records.subscription).under_way.get(part.job)


def _filled(connection: Connection, shadow: Shadow) -> Target:
    """The shadow. Somebody who drops it takes rows away that are not read again."""
    target = find(connection, *shadow.name)
    if target is None:
        raise SinkRefused(
            f"{'.'.join(shadow.name)}, which an import is filling, is gone from the target.",
            f"Copy the table again: penstock tables FILE resync {'.'.join(shadow.source)}.",
        )
    return target


def _remove_doubles(connection: Connection, relation: Relation, target: Target) -> None:
    """A row that moved while the table was read may have been read twice. One stays: changes yet to come tell the rest."""
    if not relation.key:
        return
    key = sql.SQL(", ").join(map(sql.Identifier, relation.key))
    connection.execute(
        sql.SQL(
            "DELETE FROM {target} WHERE ctid = ANY (ARRAY(SELECT place FROM (SELECT ctid AS place, "
            "row_number() OVER (PARTITION BY {key} ORDER BY ctid DESC) AS copy FROM {target} t WHERE EXISTS "
            "(SELECT FROM (SELECT {key} FROM {target} GROUP BY {key} HAVING count(*) > 1) d WHERE {same})) found "
            "WHERE copy > 1))"
        ).format(target=target.name, key=key, same=target.same([(name, name) for name in relation.key], "d"))
    )


def _copy(connection: Connection, target: Target, relation: Relation, changes: Iterator[ChangeBatch]) -> None:
    writable = target.writable(relation)
    names = sql.SQL(", ").join(sql.Identifier(relation.columns[index].name) for index in writable)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(target.name, names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in changes:
            for piece in pieces(copy_lines([batch.new[index] for index in writable])):
                copy.write(piece)
