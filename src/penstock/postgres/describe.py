"""From pgoutput's Relation message, which knows only type oids, to a relation that any executor can decode alone."""

from __future__ import annotations

import psycopg

from penstock.changes import Column, Relation
from penstock.pgoutput.messages import RelationColumn, RelationMessage, TypeMessage
from penstock.postgres import catalog
from penstock.postgres.connection import connect


class RelationDescriber:
    """Asks the catalog once per new definition, over a connection of its own that is opened when first needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._types: dict[int, catalog.TypeInfo] = {}

    def __call__(self, message: RelationMessage, announced: dict[int, TypeMessage]) -> Relation:
        unknown = {column.type_oid for column in message.columns} - self._types.keys()
        if self._connection is None:
            self._connection = connect(self._url)
        if unknown:
            self._types.update(catalog.resolve_types(self._connection, unknown))
        declared = {(column.type_oid, column.modifier) for column in message.columns}
        names = catalog.type_names(self._connection, declared)
        columns = tuple(self._column(column, names, announced) for column in message.columns)
        return Relation(message.oid, message.schema, message.table, message.identity, columns, self._key(message))

    def _column(
        self, column: RelationColumn, names: dict[tuple[int, int], str], announced: dict[int, TypeMessage]
    ) -> Column:
        known = self._types.get(column.type_oid)
        if known is None:  # dropped since; pgoutput announced at least its name
            name = announced[column.type_oid].name if column.type_oid in announced else str(column.type_oid)
            return Column(column.name, column.type_oid, name, "other", in_identity=column.in_identity)
        modifier = column.modifier if column.modifier != -1 else known.modifier
        name = names.get((column.type_oid, column.modifier), known.name)
        return Column(column.name, column.type_oid, name, known.base, modifier, known.element, column.in_identity)

    def _key(self, message: RelationMessage) -> tuple[str, ...]:
        """The replica identity's columns; with REPLICA IDENTITY FULL the primary key, if there is one."""
        if message.identity != "f":
            return tuple(column.name for column in message.columns if column.in_identity)
        assert self._connection is not None
        key = catalog.primary_key(self._connection, message.oid)
        return key if set(key) <= {column.name for column in message.columns} else ()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
