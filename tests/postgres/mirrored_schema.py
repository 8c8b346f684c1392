"""Makes tables of one database in another one, as the module docstring of ``penstock.schema.table_ddl`` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.schema import table_ddl, type_ddl
from penstock.schema import type_ddl as sequence_ddl
from penstock.schema.sequence_definition import read_sequences
from penstock.schema.table_ddl import Step
from penstock.schema.table_definition import TableDefinition, read_definitions
from penstock.schema.target_names import Place
from penstock.schema.type_definition import read_types

Name = tuple[str, str]


def oids_of(source: Connection, tables: Iterable[Name]) -> list[int]:
    names = [sql.Identifier(*table).as_string(None) for table in tables]
    return [oid for (oid,) in source.execute("select unnest(%s::text[])::regclass::oid", [names])]


def definition_of(source: Connection, table: Name) -> TableDefinition:
    (definition,) = read_definitions(source, oids_of(source, [table])).values()
    return definition


def mirror(
    source: Connection, target: Connection, tables: Sequence[Name],
    places: Mapping[Name, Place] | None = None, with_primary_key: bool = True,
) -> None:  # fmt: skip
    oids = oids_of(source, tables)
    definitions = read_definitions(source, oids)
    where = {table: (places or {}).get(table, Place(*table)) for table in tables}
    make_what_tables_need(source, target, oids)
    for definition in definitions.values():
        place = where[definition.schema, definition.table]
        target.execute(table_ddl.create_schema(place.schema))
        target.execute(table_ddl.create_table(definition, place, with_primary_key))
        if not with_primary_key:
            execute(target, table_ddl.add_primary_key(definition, place))
        execute(target, table_ddl.after_copy(definition, place))
    for definition in definitions.values():
        place = where[definition.schema, definition.table]
        execute(target, table_ddl.add_foreign_keys(definition, place, where))
        execute(target, table_ddl.validate_foreign_keys(definition, place, where))
    for sequence in read_sequences(source, oids):
        own = sequence_ddl.own_sequence(sequence, where)
        if own is not None:
            target.execute(own)
        target.execute(sequence_ddl.set_sequence(sequence, where))


def make_what_tables_need(source: Connection, target: Connection, oids: list[int]) -> None:
    types, sequences = read_types(source, oids), read_sequences(source, oids)
    for needed in (*types, *sequences):
        target.execute(table_ddl.create_schema(needed.schema))
    for type_ in types:
        target.execute(type_ddl.create_type(type_))
    for sequence in sequences:
        if not sequence.is_identity:
            target.execute(sequence_ddl.create_sequence(sequence))


def execute(target: Connection, steps: Iterable[Step]) -> None:
    for step in steps:
        target.execute(step.statement)
