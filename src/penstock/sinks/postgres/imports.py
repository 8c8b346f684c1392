"""Imports into a Postgres target: each fills a table of its own, a shadow, which then takes the target's place in one step.

The shadow is called ``<table>__import_<job>`` and stands beside the target. Executors COPY what they read straight into it,
in one transaction with the part's record: so every part is in there once, whoever dies when. Keys and indexes are made when
all rows are there and before the changes are replayed. What is unique besides the key may be violated until they are: the rows
were read at different times, and a value may have passed from one to another. Such an index is then made at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from penstock import failpoints
from penstock.changelog.admission import Ready
from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused, SinkUnavailable
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.sinks.contract import Imported, ImportPart, UnderWay
from penstock.sinks.mirror.owner import Owner
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


@dataclass(frozen=True)
class _Filling:
    """An import under way."""

    job: int
    oid: int
    source: tuple[str, str]  # as the table was called in the latest of its changes
    shadow: tuple[str, str]
    indexed: bool
    replayed: LSN | None


class Imports:
    """The imports of one sink. Records of another subscription mean nothing."""

    def __init__(self, owner: Owner, source: str, subscription: str, tables: Tables) -> None:
        self._owner, self._source, self._subscription, self._tables = owner, source, subscription, tables

    def recorded(self, connection: Connection) -> Imported:
        """Under the subscription that they were made under; there is never more than one."""
        ready = connection.execute(
            "SELECT subscription, oid, job, lsn::text FROM penstock.imports WHERE (pipeline, sink) = (%s, %s)",
            list(self._owner),
        ).fetchall()
        under_way = connection.execute(
            "SELECT subscription, job, replayed::text FROM penstock.imports_under_way WHERE (pipeline, sink) = (%s, %s)",
            list(self._owner),
        ).fetchall()
        parts: dict[int, set[int]] = {job: set() for _, job, _ in under_way}
        query = "SELECT job, number FROM penstock.import_parts WHERE (pipeline, sink) = (%s, %s)"
        for job, number in connection.execute(query, list(self._owner)):
            parts.setdefault(job, set()).add(number)
        return Imported(
            next((row[0] for row in [*ready, *under_way]), ""),
            {oid: Ready(job, LSN.parse(lsn)) for _, oid, job, lsn in ready},
            {job: UnderWay(frozenset(parts[job]), _lsn(replayed)) for _, job, replayed in under_way},
        )

    def prepare(self, connection: Connection, part: ImportPart) -> None:
        """What takes long and can be done again, in transactions of its own: keys and indexes, before the first change."""
        if part.phase not in ("changes", "end"):
            return
        filling = self._filling(connection, part.job)
        if filling is None:
            return
        target = _filled(connection, filling)
        if not filling.indexed:
            self._index(connection, part, target)
        if part.phase == "end":
            with connection.transaction():
                self._tables.index(connection, part.relation, part.job, at_last=True)

    def _index(self, connection: Connection, part: ImportPart, target: Target) -> None:
        with connection.transaction():
            if not self._tables.index(connection, part.relation, part.job, at_last=False):
                self._remove_doubles(connection, part.relation, target)
                self._tables.index(connection, part.relation, part.job, at_last=False)
            connection.execute(
                "UPDATE penstock.imports_under_way SET indexed = true WHERE (pipeline, sink) = (%s, %s) AND job = %s",
                [*self._owner, part.job],
            )
        connection.execute(sql.SQL("ANALYZE {}").format(target.name))

    def postpone_uniqueness(self, connection: Connection, part: ImportPart) -> bool:
        """Changes that are replayed violate it, for now: the shadow goes without until the end. False: it did already."""
        filling = self._filling(connection, part.job)
        if filling is None:
            return False
        target = _filled(connection, filling)
        found = connection.execute(_UNIQUE_BESIDES_KEY, {"oid": target.oid, "key": list(part.relation.key)}).fetchall()
        with connection.transaction():
            for schema, index, constraint in found:
                if constraint is not None:
                    drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
                    connection.execute(drop.format(target.name, sql.Identifier(constraint)))
                else:
                    connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(schema, index)))
        return bool(found)

    def _remove_doubles(self, connection: Connection, relation: Relation, target: Target) -> None:
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

    def commit(
        self, connection: Connection, part: ImportPart, staged: Sequence[StagedChanges], applier: Applier, add: AddRows
    ) -> bool:
        """Each part once, however often it comes; the record of it is in the same transaction as what it does. False: there
        was nothing left to do.

        0. An import that is complete, or was followed by a newer one that is, has nothing left to do.
        1. ``begin`` makes the shadow, and removes those of earlier imports of the table that did not come to an end.
        2. ``rows`` are in the shadow if an executor put them there; otherwise they, and ``changes``, go there now.
        3. ``end`` puts the shadow in the target's place, or its rows beside others (``filled.py``), and the
           table is ready.
        """
        if self._is_ready(connection, part):
            return False
        filling = self._filling(connection, part.job)
        if part.phase == "begin":
            if filling is None:
                self._begin(connection, part)
            return True
        if filling is None:
            raise SinkUnavailable(
                f"The target has no record of import {part.job} of {part.relation.qualified_name}, which has begun: it was "
                "replaced while we were running.",
                "Delivery looks anew which imports the target holds.",
            )
        if part.phase == "rows":
            if not self._holds(connection, part):
                self._record(connection, self._applied(connection, filling, staged, applier, filling.source))
                _hold(connection, self._owner, part)
        elif part.phase == "changes":
            assert part.upto is not None
            if filling.replayed is None or part.upto > filling.replayed:
                filling = self._applied(connection, filling, staged, applier, None, part.settled)
                self._record(connection, replace(filling, replayed=part.upto))
                if self._tables.keeps_existing_rows:
                    DeletedKeys(connection, filling.shadow).note(applier, staged)
        else:
            self._end(connection, part, filling, add)
        return True

    def write_rows(self, connection: Connection, part: ImportPart, changes: Iterator[ChangeBatch]) -> bool:
        """Executor: puts rows into the shadow, and the part's record with them. False: it is not there yet.

        Several may do so at once, and the same part may come twice at once: the second waits for the first one's record.
        """
        with connection.transaction():
            if connection.execute("SELECT to_regclass('penstock.import_parts')").fetchone() == (None,):
                return False  # the sink is yet to be prepared
            filling = self._filling(connection, part.job)
            if filling is None or filling.replayed is not None:
                return False
            target = _filled(connection, filling)
            if not _hold(connection, self._owner, part):
                for _ in changes:
                    pass
                return True
            _copy(connection, target, part.relation, changes)
            failpoints.reach(failpoints.CHUNK_COPIED)
        return True

    def _begin(self, connection: Connection, part: ImportPart) -> None:
        relation = part.relation
        self._remove_leftovers(connection, part.oid)
        self._tables.refuse_rows_of_others(connection, (relation.schema, relation.table), relation.key)
        target = self._tables.shadow(connection, relation, part.job)
        shadow = target.schema, target.table
        self._record(
            connection,
            _Filling(part.job, part.oid, (relation.schema, relation.table), shadow, False, None),
        )

    def _end(self, connection: Connection, part: ImportPart, filling: _Filling, add: AddRows) -> None:
        assert part.upto is not None
        shadow = _filled(connection, filling)
        if part.merged is not None and self._tables.place_of(connection, part.relation.oid) is not None:
            self._tables.merge_in(connection, part.relation, shadow, part.merged, part.again, add)
        else:
            self._tables.swap_in(connection, part.relation, filling.source, shadow, part.job, add)
        DeletedKeys(connection, filling.shadow).drop()
        self._forget(connection, part.job)
        connection.execute(
            "INSERT INTO penstock.imports VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (pipeline, sink, oid) DO UPDATE SET "
            "source = excluded.source, subscription = excluded.subscription, job = excluded.job, lsn = excluded.lsn",
            [*self._owner, self._source, self._subscription, filling.oid, part.job, str(part.upto)],
        )
        failpoints.reach(failpoints.TABLE_SWAPPED)

    def _applied(
        self,
        connection: Connection,
        filling: _Filling,
        staged: Sequence[StagedChanges],
        applier: Applier,
        source: tuple[str, str] | None,
        settled: bool = False,
    ) -> _Filling:
        """The import after these; the source's table may have been altered or renamed in between."""
        latest = source or filling.source

        def target_of(connection: Connection, relation: Relation) -> Target:
            nonlocal latest
            if source is None:
                latest = relation.schema, relation.table
            return self._tables.fitted(connection, relation, _filled(connection, filling))

        applier.apply(staged, target_of, where_known=not settled)
        restart_sequences(connection, staged, lambda _: find(connection, *latest))  # the shadow owns none
        return replace(filling, source=latest)

    def _is_ready(self, connection: Connection, part: ImportPart) -> bool:
        row = connection.execute(
            "SELECT job FROM penstock.imports WHERE (pipeline, sink) = (%s, %s) AND oid = %s AND subscription = %s",
            [*self._owner, part.oid, self._subscription],
        ).fetchone()
        return row is not None and row[0] >= part.job

    def _holds(self, connection: Connection, part: ImportPart) -> bool:
        row = connection.execute(
            "SELECT FROM penstock.import_parts WHERE (pipeline, sink) = (%s, %s) AND job = %s AND number = %s",
            [*self._owner, part.job, part.number],
        ).fetchone()
        return row is not None

    def _filling(self, connection: Connection, job: int) -> _Filling | None:
        row = connection.execute(
            "SELECT oid, source_schema, source_table, target_schema, target_table, indexed, replayed::text "
            "FROM penstock.imports_under_way WHERE (pipeline, sink) = (%s, %s) AND job = %s AND subscription = %s",
            [*self._owner, job, self._subscription],
        ).fetchone()
        if row is None:
            return None
        oid, schema, table, target_schema, target_table, indexed, replayed = row
        return _Filling(job, oid, (schema, table), (target_schema, target_table), indexed, _lsn(replayed))

    def _record(self, connection: Connection, filling: _Filling) -> None:
        connection.execute(
            "INSERT INTO penstock.imports_under_way VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (pipeline, sink, job) DO UPDATE SET source_schema = excluded.source_schema, "
            "source_table = excluded.source_table, target_schema = excluded.target_schema, "
            "target_table = excluded.target_table, replayed = excluded.replayed",
            [
                *self._owner, filling.job, self._source, self._subscription, filling.oid, *filling.source,
                *filling.shadow, filling.indexed,
                str(filling.replayed) if filling.replayed is not None else None,
            ],
        )  # fmt: skip

    def _remove_leftovers(self, connection: Connection, oid: int) -> None:
        """What another subscription recorded, and what imports of this table left that did not come to an end."""
        connection.execute(
            "DELETE FROM penstock.imports WHERE (pipeline, sink) = (%s, %s) AND subscription <> %s",
            [*self._owner, self._subscription],
        )
        left = connection.execute(
            "SELECT job, target_schema, target_table FROM penstock.imports_under_way "
            "WHERE (pipeline, sink) = (%s, %s) AND (oid = %s OR subscription <> %s)",
            [*self._owner, oid, self._subscription],
        ).fetchall()
        for job, schema, table in left:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, table)))
            DeletedKeys(connection, (schema, table)).drop()
            self._forget(connection, job)

    def _forget(self, connection: Connection, job: int) -> None:
        for table in ("imports_under_way", "import_parts"):
            statement = sql.SQL("DELETE FROM {} WHERE (pipeline, sink) = (%s, %s) AND job = %s")
            connection.execute(statement.format(sql.Identifier("penstock", table)), [*self._owner, job])


def _filled(connection: Connection, filling: _Filling) -> Target:
    """The shadow. Somebody who drops it takes rows away that are not read again."""
    target = find(connection, *filling.shadow)
    if target is None:
        schema, table = filling.source
        raise SinkRefused(
            f"{'.'.join(filling.shadow)}, which an import is filling, is gone from the target.",
            f"Copy the table again: penstock tables FILE resync {schema}.{table}.",
        )
    return target


def _hold(connection: Connection, owner: Owner, part: ImportPart) -> bool:
    """Records the part. False: somebody else has."""
    found = connection.execute(
        "INSERT INTO penstock.import_parts VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
        [*owner, part.job, part.number],
    )
    return found.rowcount > 0


def _copy(connection: Connection, target: Target, relation: Relation, changes: Iterator[ChangeBatch]) -> None:
    writable = target.writable(relation)
    names = sql.SQL(", ").join(sql.Identifier(relation.columns[index].name) for index in writable)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(target.name, names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in changes:
            for piece in pieces(copy_lines([batch.new[index] for index in writable])):
                copy.write(piece)


def _lsn(text: str | None) -> LSN | None:
    return LSN.parse(text) if text is not None else None
