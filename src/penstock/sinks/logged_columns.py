"""A column of the schema log as changes of its table have it."""

from __future__ import annotations

import psycopg

from penstock.changes import Column
from penstock.schema_changes.definitions import ColumnDefinition


def column_of(definition: ColumnDefinition) -> Column:
    """The oids of Postgres's own types are the same everywhere; of others the log tells what is below them."""
    name, oid, type_name, modifier = definition.name, definition.type_oid, definition.type, definition.modifier
    if definition.base is not None:
        below = definition.base
        return Column(name, oid, type_name, below.base, below.modifier, below.element)
    known = psycopg.postgres.types.get(oid)
    if known is None or known.delimiter != ",":
        return Column(name, oid, type_name, "other", modifier)
    if oid == known.array_oid:
        return Column(name, oid, type_name, "array", modifier, known.name)
    return Column(name, oid, type_name, known.name, modifier)
