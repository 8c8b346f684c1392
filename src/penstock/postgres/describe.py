"""From pgoutput's Relation message, which knows only type oids, to a relation that any executor can decode alone."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.changes.batch import Column, Relation
from penstock.pgoutput.messages import RelationColumn, RelationMessage, TypeMessage
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, connect


class RelationDescriber:
    """Asks the catalog once per new definition, over a connection of its own that is opened when first needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._types: dict[int, catalog.TypeInfo] = {}

    def __call__(self, message: RelationMessage, announced: dict[int, TypeMessage]) -> Relation:
        if self._connection is None:
            self._connection = connect(self._url)
        unknown = {column.type_oid for column in message.columns} - self._types.keys()
        if unknown:
            self._types.update(catalog.resolve_types(self._connection, unknown))
        return described(self._connection, message, self._types, announced)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def described(
    connection: Connection, message: RelationMessage,
    types: Mapping[int, catalog.TypeInfo], announced: Mapping[int, TypeMessage],
) -> Relation:  # fmt: skip
    """``types``: those that the catalog knows; ``announced``: what pgoutput said of those that it may not know."""
    declared = {(column.type_oid, column.modifier) for column in message.columns}
    names = catalog.type_names(connection, declared)
    columns = tuple(_column(column, types, names, announced) for column in message.columns)
    key = _key(connection, message)
    return Relation(message.oid, message.schema, message.table, message.identity, columns, key)


def _column(
    column: RelationColumn, types: Mapping[int, catalog.TypeInfo],
    names: Mapping[tuple[int, int], str], announced: Mapping[int, TypeMessage],
) -> Column:  # fmt: skip
    known = types.get(column.type_oid)
    if known is None:  # dropped since; pgoutput announced at least its name
        name = announced[column.type_oid].name if column.type_oid in announced else str(column.type_oid)
        return Column(column.name, column.type_oid, name, "other", in_identity=column.in_identity)
    modifier = column.modifier if column.modifier != -1 else known.modifier
    name = names.get((column.type_oid, column.modifier), known.name)
    return Column(column.name, column.type_oid, name, known.base, modifier, known.element, column.in_identity)


def _key(connection: Connection, message: RelationMessage) -> tuple[str, ...]:
    """The replica identity's columns; with REPLICA IDENTITY FULL the primary key, if there is one."""
    if message.identity != "f":
        return tuple(column.name for column in message.columns if column.in_identity)
    key = catalog.primary_key(connection, message.oid)
    return key if set(key) <= {column.name for column in message.columns} else ()
