"""Tables of the target, made like the source's: from the source's catalog where it can be asked, else from the stream.

The catalog knows what the stream does not say: defaults, not-null, identity, generated columns, checks, indexes, foreign
keys, sequences, and the types that columns have. It is asked as of today. A relation that is older than that, because the
table was altered since, is made from what the stream says, and altered when the stream gets there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import psycopg
from psycopg import sql

from penstock.changes.batch import Relation
from penstock.errors import SinkRefused, SourceError
from penstock.postgres.connection import Connection, connect
from penstock.schema import table_ddl, type_ddl
from penstock.schema.log import triggers as schema_log
from penstock.schema.required_objects import missing_extensions, missing_objects, required_extensions, required_objects
from penstock.schema.sequence_definition import SequenceDefinition, read_sequences
from penstock.schema.table_ddl import Step
from penstock.schema.table_definition import TableDefinition, read_definitions
from penstock.schema.target_names import Place
from penstock.schema.type_definition import EnumType, read_types
from penstock.sinks.postgres.carried_ddl import ReplicateDdl
from penstock.sinks.postgres.session import as_sink_error
from penstock.sinks.postgres.type_alignment import align_types

logger = logging.getLogger(__name__)

_NOT_VALID = """
SELECT 1 FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE contype = 'f' AND NOT convalidated AND (nspname, relname) IN (SELECT * FROM unnest(%s::name[], %s::name[])) LIMIT 1
"""

_HAS_KEY = "SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'"

# Up to the end of the transaction. What an administrator has set may be more.
_ROOM_FOR_SORTING = """
SELECT set_config('maintenance_work_mem', '256MB', true)
WHERE pg_size_bytes(current_setting('maintenance_work_mem')) < 256 * 1024 * 1024
"""

_EVERYTHING = ReplicateDdl()

Places = Mapping[tuple[str, str], Place]  # by schema and table in the source


class Shapes:
    """``source``: the URL of the source, or "" if there is none to ask. ``chosen``: which parts tables are made with."""

    def __init__(self, sink: str, source: str, chosen: ReplicateDdl = _EVERYTHING) -> None:
        self._sink, self._source, self._chosen = sink, source, chosen

    def create(self, target: Connection, relation: Relation, place: Place, keyed: bool) -> None:
        """An empty table; ``keyed``: with all that belongs to it but foreign keys, else with columns alone."""
        definition = self._definition(target, relation)
        _create_schema(target, place.schema)
        if definition is not None:
            target.execute(table_ddl.create_table(definition, place, keyed))
            if keyed:
                _execute(target, table_ddl.missing(target, place, table_ddl.after_copy(definition, place)))
                self._own(target, [relation.oid], {(relation.schema, relation.table): place})
            return
        self.make_types(target, relation.oid, relation.qualified_name)
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type_name))
            for column in relation.columns
        ]
        if keyed and relation.key:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(_key(relation)))
        target.execute(sql.SQL("CREATE TABLE {} ({})").format(place.identifier, sql.SQL(", ").join(parts)))

    def index(self, target: Connection, relation: Relation, place: Place, *, at_last: bool) -> bool:
        """Keys, indexes and checks of a table that is full; those that it has not got yet. False: some are left for later.

        Rows that were read at different times may violate what is unique, until all changes are replayed: ``at_last``.
        """
        definition = self._definition(target, relation)
        if definition is not None:
            steps = [*table_ddl.add_primary_key(definition, place), *table_ddl.after_copy(definition, place)]
            statements = [step.statement for step in table_ddl.missing(target, place, steps)]
        else:
            keyed = target.execute(_HAS_KEY, [place.identifier.as_string()]).fetchone() is not None
            add = sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})")
            statements = [add.format(place.identifier, _key(relation))] if relation.key and not keyed else []
        if statements:
            target.execute(_ROOM_FOR_SORTING)
        left = [statement for statement in statements if not _executed(target, statement, at_last)]
        return not left

    def hand_over(self, target: Connection, relation: Relation, place: Place) -> None:
        """Before the former table goes: its sequences belong to the one at ``place``, which will take its place."""
        if self._definition(target, relation) is not None:
            self._own(target, [relation.oid], {(relation.schema, relation.table): place})

    def settle(
        self, target: Connection, relation: Relation, place: Place, tables: Mapping[int, tuple[str, str]]
    ) -> None:
        """After it has: indexes get their names, sequences their values, and foreign keys come in, those of the other
        ``tables`` (by oid, under the source's names) that refer to this one, too."""
        definition = self._definition(target, relation)
        if definition is None:
            _rename_key(target, place)
            return
        for statement in table_ddl.renames(definition, place):
            target.execute(statement)
        places = {name: Place(*name) for name in tables.values()}
        self._own(target, [relation.oid], places)
        self._add_foreign_keys(target, list(tables), places)

    def set_sequences(self, target: Connection, tables: Mapping[int, tuple[str, str]]) -> None:
        """The sequences of these tables get the source's values."""
        if not self._source or not tables:
            return
        places = {name: Place(*name) for name in tables.values()}
        with connect(self._source, application_name=f"penstock {self._sink}") as source:
            sequences = read_sequences(source, list(tables))
        for sequence in sequences:
            target.execute(type_ddl.set_sequence(sequence, places))

    def renew_types(self, target: Connection, oids: Sequence[int]) -> None:
        """The enums of these tables get the labels that the source's have by now. They can be used in the next transaction.

        Other types are altered to the source's where no schema log leads the stream, which tells of them in their place."""
        if not self._source:
            return
        try:
            with connect(self._source, application_name=f"penstock {self._sink}") as source:
                types, is_logged = read_types(source, oids), schema_log.installed(source)
        except SourceError as error:
            raise as_sink_error(error, self._sink) from error
        for type_ in types:
            if isinstance(type_, EnumType):
                for statement in type_ddl.add_labels(type_):
                    target.execute(statement)
        if not is_logged:
            align_types(target, self._sink, types)

    def _own(self, target: Connection, oids: Sequence[int], places: Places) -> None:
        with connect(self._source, application_name=f"penstock {self._sink}") as source:
            sequences: list[SequenceDefinition] = read_sequences(source, oids)
        for sequence in sequences:
            own = type_ddl.own_sequence(sequence, places)
            if own is not None:
                target.execute(own)

    def validate_foreign_keys(self, target: Connection, tables: Mapping[int, tuple[str, str]]) -> None:
        """Those that could not be valid when they came in, because one of the two tables was ahead of the other."""
        if self._source and tables and target.execute(_NOT_VALID, [*_names(tables)]).fetchone() is not None:
            self._add_foreign_keys(target, list(tables), {name: Place(*name) for name in tables.values()})

    def _add_foreign_keys(self, target: Connection, oids: Sequence[int], places: Places) -> None:
        with connect(self._source, application_name=f"penstock {self._sink}") as source:
            definitions = read_definitions(source, oids)
        for definition in map(self._chosen.definition, definitions.values()):
            place = places.get((definition.schema, definition.table))
            if place is not None and definition.foreign_keys:
                steps = table_ddl.add_foreign_keys(definition, place, places)
                _execute(target, table_ddl.missing(target, place, steps))
                steps = table_ddl.validate_foreign_keys(definition, place, places)
                for step in table_ddl.missing(target, place, steps):
                    with suppress(psycopg.errors.ForeignKeyViolation), target.transaction():
                        target.execute(step.statement)

    def _definition(self, target: Connection, relation: Relation) -> TableDefinition | None:
        """None where the source cannot be asked, or has altered the table since. What it needs is in the target then."""
        if not self._source:
            return None
        try:
            with connect(self._source, application_name=f"penstock {self._sink}") as source:
                definition = read_definitions(source, [relation.oid]).get(relation.oid)
                if definition is None or not _describes(definition, relation):
                    return None
                self._make_what_it_needs(source, target, relation.oid, relation.qualified_name)
                return self._chosen.definition(definition)
        except SourceError as error:
            raise as_sink_error(error, self._sink) from error

    def make_types(self, target: Connection, oid: int, name: str) -> None:
        """Types and sequences that the source's table needs and the target lacks."""
        if self._source:
            with connect(self._source, application_name=f"penstock {self._sink}") as source:
                self._make_what_it_needs(source, target, oid, name)

    def _make_what_it_needs(self, source: Connection, target: Connection, oid: int, name: str) -> None:
        oids = [oid]
        absent = sorted(missing_extensions(target, required_extensions(source, oids)))
        if absent:
            raise SinkRefused(
                f"Sink {self._sink}: {name} needs extension {', '.join(absent)}, which the target lacks.",
                f"Run there: CREATE EXTENSION {absent[0]}; then start again.",
            )
        others = missing_objects(target, required_objects(source, oids))
        if others:
            raise SinkRefused(
                f"Sink {self._sink}: {name} needs {others[0]}, which the target lacks.",
                "Create it there, then start again.",
            )
        types, sequences = read_types(source, oids), read_sequences(source, oids)
        for needed in (*types, *sequences):
            _create_schema(target, needed.schema)
        for type_ in types:
            target.execute(type_ddl.create_type(type_))
        for sequence in sequences:
            if not sequence.is_identity:
                target.execute(type_ddl.create_sequence(sequence))


def _describes(definition: TableDefinition, relation: Relation) -> bool:
    """The names and types that the stream speaks of. A publication may leave columns out; then the table has only those."""
    columns = {column.name: column.type for column in definition.columns if column.generated is None}
    spoken_of = {column.name: column.type_name for column in relation.columns}
    generated = {column.name for column in definition.columns if column.generated is not None}
    named = (definition.schema, definition.table) == (relation.schema, relation.table)
    return named and columns == {name: type_ for name, type_ in spoken_of.items() if name not in generated}


def _names(tables: Mapping[int, tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [schema for schema, _ in tables.values()], [table for _, table in tables.values()]


def _executed(target: Connection, statement: sql.Composed, must_be: bool) -> bool:
    try:
        with target.transaction():
            target.execute(statement)
    except (psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation):
        if must_be:
            raise
        return False
    return True


def _execute(target: Connection, steps: Iterable[Step]) -> None:
    for step in steps:
        target.execute(step.statement)


def _key(relation: Relation) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, relation.key))


def _create_schema(target: Connection, schema: str) -> None:
    """Looked up first: CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where it exists."""
    if target.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is None:
        target.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))


def _rename_key(target: Connection, place: Place) -> None:
    """The key gets the name that Postgres would have given it."""
    final = place.taken
    row = target.execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'",
        [final.identifier.as_string(target)],
    ).fetchone()
    wanted = Place(final.schema, final.table, "_pkey").name
    if row is not None and row[0] != wanted:
        target.execute(
            sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}").format(
                final.identifier, sql.Identifier(row[0]), sql.Identifier(wanted)
            )
        )
