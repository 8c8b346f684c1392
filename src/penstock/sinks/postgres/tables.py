"""The mirrored tables of a Postgres target: found or made, and altered to fit the source's definition.

``penstock.tables`` remembers which source table (its oid, which survives a new name) is which target table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal, NoReturn

import psycopg
from psycopg import sql

from penstock.changes.batch import Relation
from penstock.errors import SinkRefused
from penstock.lsn import ZERO
from penstock.postgres.connection import Connection
from penstock.schema.target_names import Place
from penstock.sinks.contract import Merged
from penstock.sinks.mirror.owner import ExistingRows, Owner, cannot_tell_apart, needs_key, rows_of_others
from penstock.sinks.postgres.columns import GoneColumns, fit, is_retyped
from penstock.sinks.postgres.filled import AddRows, DeletedKeys, add_beside, replace_rows
from penstock.sinks.postgres.records import TableRecords, records_of
from penstock.sinks.postgres.rights import Rights
from penstock.sinks.postgres.shapes import Shapes
from penstock.sinks.postgres.target import Target, find, is_depended_on, lacks_column
from penstock.sinks.postgres.unfollowed import fitting

logger = logging.getLogger(__name__)

_INDEXES = "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s"


class Tables:
    """The target tables of one sink. What it has looked up it keeps, until ``forget``."""

    def __init__(
        self,
        owner: Owner,
        mode: Literal["create", "existing"],
        shapes: Shapes,
        existing_rows: ExistingRows = "refuse",
    ) -> None:
        self._owner, self._sink, self._mode = owner, owner.sink, mode
        self._shapes, self._existing_rows = shapes, existing_rows
        self._records = TableRecords(owner)
        self._known: dict[int, tuple[Relation, Target]] = {}
        self.stream_at = ZERO  # where the batch begins that is being applied
        self._gone = GoneColumns()

    def forget(self) -> bool:
        """Looks everything up anew. False: there was nothing to forget."""
        known, self._known = bool(self._known), {}
        return known

    def target(self, connection: Connection, relation: Relation) -> Target:
        """The table for this definition; made, renamed or altered inside the caller's transaction where need be."""
        known = self._known.get(relation.oid)
        if known is not None and known[0] == relation:
            return known[1]
        schema, table = self._place(connection, relation)
        target = find(connection, schema, table)
        if target is None:
            target = self._created(connection, relation, schema, table)
        else:
            rights = Rights(connection, self._sink)
            rights.require(rights.on_table(schema, table))
            if (
                known is not None
                and self._mode == "create"
                and self._gone.make_room(connection, known[0], relation, target)
            ):
                target = _found(connection, schema, table)
        target = self.fitted(connection, relation, target)
        self._known[relation.oid] = relation, target
        return target

    def require(self, connection: Connection, tables: Iterable[tuple[str, str]]) -> None:
        """SinkRefused if one of them is not there, and is not to be made."""
        for name in tables:
            if find(connection, *name) is None:
                self._refuse_missing(*name)

    def forget_one(self, oid: int) -> None:
        """A schema change was followed: the table is looked up anew."""
        self._known.pop(oid, None)

    def place_of(self, connection: Connection, oid: int) -> tuple[str, str] | None:
        """Where the source's table of this oid is in the target; None: it is not mirrored."""
        record = self._records.of_oid(connection, oid)
        return record.name if record is not None else None

    def rename(self, connection: Connection, oid: int, now: tuple[str, str]) -> bool:
        """The source's table has another name, or another schema. False: the target's keeps its own."""
        record = self._records.of_oid(connection, oid)
        if record is None or self._mode == "existing" or record.name == now:
            return False
        if self._is_of_a_later_one(connection, oid, now):
            return False
        self._known.pop(oid, None)
        self._take_over(connection, oid, now)
        self._rename(connection, record.name, now)
        self._records.put(connection, oid, now, record.made)
        return True

    def drop(self, connection: Connection, oid: int) -> bool:
        """Of a table that the sink has made. False: somebody else did, and it stays."""
        record = self._records.of_oid(connection, oid)
        if record is None or self._mode == "existing" or not record.made:
            return False
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(*record.name)))
        self._records.remove(connection, oid)
        self._known.pop(oid, None)
        return True

    def make_types(self, connection: Connection, oid: int, name: str) -> None:
        """Those that the source's table needs and the target lacks."""
        self._shapes.make_types(connection, oid, name)

    def fitted(self, connection: Connection, relation: Relation, target: Target) -> Target:
        """With all of the relation's columns, of its types. Columns that the source has no more stay, and may be NULL."""
        if self._mode == "existing":
            target.writable(relation)
            return target
        changes = [part for column in relation.columns for part in fit(connection, target, column)]
        left = {column.name for column in target.columns} - {column.name for column in relation.columns}
        changes += [
            sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(sql.Identifier(column.name))
            for column in target.columns
            if column.name in left and column.not_null and not column.generated
        ]
        if not changes:
            return target
        alter = sql.SQL("ALTER TABLE {} {}").format(target.name, sql.SQL(", ").join(changes))
        Rights(connection, self._sink).require_owner(target.schema, target.table, alter)
        logger.info("Table %s.%s of the target is altered to fit the source's.", target.schema, target.table)
        with fitting(self._sink, target, changes):
            try:
                with connection.transaction():
                    connection.execute(alter)
            except psycopg.errors.DatatypeMismatch:
                # A default that the new type does not take: the source had to drop it.
                retyped = [column.name for column in relation.columns if is_retyped(target, column)]
                changes += [sql.SQL("ALTER COLUMN {} DROP DEFAULT").format(sql.Identifier(name)) for name in retyped]
                connection.execute(sql.SQL("ALTER TABLE {} {}").format(target.name, sql.SQL(", ").join(changes)))
        return _found(connection, target.schema, target.table)

    def shadow(self, connection: Connection, relation: Relation, job: int) -> Target:
        """A new table for an import to fill, without keys and indexes."""
        place = _beside(relation.schema, relation.table, job)
        self._require_room(connection, place.schema)
        self._shapes.create(connection, relation, place, False)
        self.renew_types(connection, [relation.oid])
        return _found(connection, place.schema, place.name)

    def index(self, connection: Connection, relation: Relation, job: int, *, at_last: bool) -> bool:
        """Gives a table that an import has filled its key and its indexes; see ``Shapes.index``."""
        return self._shapes.index(connection, relation, _beside(relation.schema, relation.table, job), at_last=at_last)

    def swap_in(
        self,
        connection: Connection,
        relation: Relation,
        source: tuple[str, str],
        shadow: Target,
        job: int,
        add: AddRows,
    ) -> None:
        """The filled table takes the place of the one before, in the caller's transaction: there is no moment without it.

        A table that somebody else made, or that others hang on (a view, a foreign key, a right), stays, and gets the rows.
        """
        schema, table = source
        self._known.pop(relation.oid, None)
        self._bring_under(connection, relation.oid, source)
        before = find(connection, schema, table)
        if before is not None and not is_depended_on(connection, before):
            self._take_over(connection, relation.oid, source)
            before = find(connection, schema, table)
        made = self._is_made(connection, source)
        if before is not None and (not made or self._mode == "existing" or is_depended_on(connection, before)):
            self.refuse_rows_of_others(connection, source, relation.key)
            before = self._with_columns_of(connection, before, shadow)
            if self.keeps_existing_rows and not made and relation.key:
                deleted = DeletedKeys(connection, (shadow.schema, shadow.table))
                add_beside(connection, before, shadow, relation.key, deleted, partial(add, source))
            else:
                replace_rows(connection, before, shadow, relation.key, partial(add, source))
            self._records.put(connection, relation.oid, source, made)
        else:
            place = _beside(relation.schema, relation.table, job)
            self._shapes.hand_over(connection, relation, place)
            if before is not None:
                connection.execute(sql.SQL("DROP TABLE {}").format(before.name))
            if shadow.schema != schema:
                connection.execute(sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(shadow.name, sql.Identifier(schema)))
            connection.execute(
                sql.SQL("ALTER TABLE {} RENAME TO {}").format(
                    sql.Identifier(schema, shadow.table), sql.Identifier(table)
                )
            )
            self._records.put(connection, relation.oid, source, True)
            self._shapes.settle(connection, relation, place, self._records.all(connection))

    def _with_columns_of(self, connection: Connection, target: Target, shadow: Target) -> Target:
        """A table that stays gets the columns that it lacks, before the rows come."""
        missing = [column for column in shadow.columns if target.column(column.name) is None and not column.generated]
        if not missing:
            return target
        if self._mode == "existing":
            raise lacks_column(target, missing[0].name)
        adds = (
            sql.SQL("ADD COLUMN {} {}").format(sql.Identifier(column.name), sql.SQL(column.type)) for column in missing
        )
        alter = sql.SQL("ALTER TABLE {} {}").format(target.name, sql.SQL(", ").join(adds))
        Rights(connection, self._sink).require_owner(target.schema, target.table, alter)
        connection.execute(alter)
        return _found(connection, target.schema, target.table)

    def merge_in(
        self, connection: Connection, relation: Relation, shadow: Target, merged: Merged, again: bool, add: AddRows
    ) -> None:
        """The filled table takes the place of its own rows among those of the tables that it is merged with."""
        target = self.target(connection, relation)
        if merged.origin is not None:
            column, value = merged.origin
            delete = sql.SQL("DELETE FROM {} WHERE {} = {}")  # no parameters: a name may have a % in it
            connection.execute(delete.format(target.rows, sql.Identifier(column), sql.Literal(value)))
        elif again:
            raise cannot_tell_apart(relation)
        add((relation.schema, relation.table), target, shadow)
        connection.execute(sql.SQL("DROP TABLE {}").format(shadow.name))

    def _bring_under(self, connection: Connection, oid: int, name: tuple[str, str]) -> None:
        """The import may know of a new name before the stream does: the table that it replaces has the old one."""
        place = self.place_of(connection, oid)
        if place is not None and place != name and self._mode == "create":
            self._take_over(connection, oid, name)
            if find(connection, *name) is None:
                self._rename(connection, place, name)
                self._records.put(connection, oid, name, self._is_made(connection, place))

    @property
    def keeps_existing_rows(self) -> bool:
        return self._existing_rows == "keep"

    def refuse_rows_of_others(self, connection: Connection, source: tuple[str, str], key: Sequence[str]) -> None:
        """An import would take the place of rows that did not come from the source. An empty table may be there."""
        records_of(connection, self._owner).refuse_table_of_another(source, source[1])
        there = find(connection, *source)
        if there is None:
            return
        rights = Rights(connection, self._sink)
        rights.require(rights.on_table(*source))
        if self._existing_rows == "replace" or (self.keeps_existing_rows and key):
            return
        if self._records.of_name(connection, source) is not None:
            return
        if connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(there.rows)).fetchone() is not None:
            if self.keeps_existing_rows:
                raise needs_key(self._sink, ".".join(source))
            raise rows_of_others(self._sink, ".".join(source))

    def _is_made(self, connection: Connection, target: tuple[str, str]) -> bool:
        """The sink has made it."""
        record = self._records.of_name(connection, target)
        return record is not None and record[1]

    def known(self, connection: Connection) -> dict[int, tuple[str, str]]:
        """The tables of the target, by the source's oid, under the source's names."""
        return self._records.all(connection)

    def renew_types(self, connection: Connection, oids: Iterable[int]) -> None:
        """The stream does not tell of a label that an enum got, nor of other types where there is no schema log."""
        if self._mode == "create":
            self._shapes.renew_types(connection, sorted(set(oids)))

    def settle(self, connection: Connection) -> None:
        """What the stream does not tell: values of sequences, and foreign keys that hold by now."""
        if self._mode == "create":
            known = self.known(connection)
            self._shapes.set_sequences(connection, known)
            self._shapes.validate_foreign_keys(connection, known)

    def _place(self, connection: Connection, relation: Relation) -> tuple[str, str]:
        """Where the source's table is in the target. A new name in the source is a new name here."""
        record = self._records.of_oid(connection, relation.oid)
        source = relation.schema, relation.table
        if record is None or self._mode == "existing":
            self._take_over(connection, relation.oid, source)
            self._records.put(connection, relation.oid, source, find(connection, *source) is None)
            return source
        self._refuse_dropped(connection, record.name)
        if record.name != source and not self.rename(connection, relation.oid, source):
            return record.name
        return source

    def _refuse_dropped(self, connection: Connection, target: tuple[str, str]) -> None:
        """Made anew, it would lack the rows that it had."""
        if find(connection, *target) is None:
            name = ".".join(target)
            raise SinkRefused(
                f"Sink {self._sink}: table {name}, which held rows of the source, is gone from the target: somebody dropped "
                "or renamed it.",
                f"Put it back, or copy it again: penstock tables FILE resync {name}; then start again.",
            )

    def _is_of_a_later_one(self, connection: Connection, oid: int, name: tuple[str, str]) -> bool:
        """Whether the name belongs to a table that got it after what is being applied: its import came further than the
        stream, which still tells of the one that had the name before, and that is aside."""
        record = self._records.of_name(connection, name)
        if record is None or record[0] == oid:
            return False
        imported_to = records_of(connection, self._owner).imported_to(record[0])
        return imported_to is not None and imported_to > self.stream_at

    def _take_over(self, connection: Connection, oid: int, name: tuple[str, str]) -> None:
        """Another table of the source had this name: its rows are none of this one's.

        It goes aside, under a name of its own: it may have been renamed in the source, and show up again.
        """
        record = self._records.of_name(connection, name)
        if record is None or record[0] == oid:
            return
        former, made = record
        self._known.pop(former, None)
        there = find(connection, *name)
        if there is not None and (self._mode == "existing" or not made):
            logger.warning(
                "%s is another table in the source than before: the rows of the former one leave the target.",
                ".".join(name),
            )
            connection.execute(sql.SQL("DELETE FROM {}").format(there.name))
            there = None
        if there is None:
            self._records.remove(connection, former)
            return
        aside = Place(*name).beside(f"__before_{former}")
        logger.warning(
            "%s is another table in the source than before: in the target the former one is called %s now.",
            ".".join(name), aside.name,
        )  # fmt: skip
        for (index,) in connection.execute(_INDEXES, [there.oid]).fetchall():  # its names are for the other one
            rename = sql.SQL("ALTER INDEX {} RENAME TO {}")
            new = Place(name[0], index).beside(f"__before_{former}").name
            connection.execute(rename.format(sql.Identifier(name[0], index), sql.Identifier(new)))
        self._rename(connection, name, (aside.schema, aside.name))
        self._records.move(connection, former, (aside.schema, aside.name))

    def _rename(self, connection: Connection, before: tuple[str, str], now: tuple[str, str]) -> None:
        if find(connection, *before) is None:
            return
        if before[0] != now[0]:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(now[0])))
            connection.execute(
                sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(sql.Identifier(*before), sql.Identifier(now[0]))
            )
        if before[1] != now[1]:
            connection.execute(
                sql.SQL("ALTER TABLE {} RENAME TO {}").format(sql.Identifier(now[0], before[1]), sql.Identifier(now[1]))
            )

    def _created(self, connection: Connection, relation: Relation, schema: str, table: str) -> Target:
        if self._mode == "existing":
            self._refuse_missing(schema, table)
        place = Place(schema, table)
        self._require_room(connection, schema)
        self._shapes.create(connection, relation, place, True)
        return _found(connection, schema, table)

    def _refuse_missing(self, schema: str, table: str) -> NoReturn:
        raise SinkRefused(
            f"Sink {self._sink}: the target has no table {schema}.{table}.",
            "Create it there, or set `schema: create` on the sink.",
        )

    def _require_room(self, connection: Connection, schema: str) -> None:
        rights = Rights(connection, self._sink)
        rights.require(rights.on_schema(schema, create=True))


def _beside(schema: str, table: str, job: int) -> Place:
    return Place(schema, table).beside(f"__import_{job}")


def _found(connection: Connection, schema: str, table: str) -> Target:
    target = find(connection, schema, table)
    assert target is not None
    return target
