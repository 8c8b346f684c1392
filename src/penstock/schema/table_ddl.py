"""The statements that make a table of the source in a target, in the order in which they are to be executed:

1. ``create_schema``, ``create_type``, ``create_sequence``: what the tables need. Nothing that is there is changed.
2. ``create_table``: columns, defaults, not-null and the primary key, so that changes find their rows. Then rows are copied.
3. ``after_copy``: the secondary indexes, unique, exclusion and check constraints, which are much cheaper to make at once
   than to keep up row by row; replica identity and comments.
4. ``add_foreign_keys`` and ``validate_foreign_keys``, when all tables are there: so they may refer to each other.
5. ``own_sequence`` and ``set_sequence`` (``sequence_ddl``).

A table that is to take the place of another is made at ``Place.beside(…)``, with steps 2 and 3. Then, in one transaction:
``own_sequence`` for the new table, or dropping the other one would want to drop what the new one's defaults draw from; the
other one is dropped and the new one gets its name; ``renames`` gives its indexes and sequences the names that they
would have had from the start.

Statements are to be executed without parameters (texts may hold ``%``), with an empty search_path
(``penstock.postgres.connection``). A partitioned table is made as an ordinary one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from psycopg import sql

from penstock.postgres.connection import Connection
from penstock.schema.table_definition import ColumnDefinition, ForeignKey, Index, KeyConstraint, TableDefinition
from penstock.schema.target_names import Place, fitted
from penstock.schema.type_ddl import collate, parameters

Places: TypeAlias = Mapping[tuple[str, str], Place]  # by schema and table in the source

_ACTIONS = {"r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


@dataclass(frozen=True)
class Step:
    """A statement, and what is there when it is done. A ``setting`` may be executed again, the others not: ``missing``."""

    makes: Literal["constraint", "index", "validity", "setting"]
    name: str
    statement: sql.Composed
    since: int = 0  # the oldest server version that knows such a thing


def create_schema(name: str) -> sql.Composed:
    return sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name))


def create_table(definition: TableDefinition, place: Place, with_primary_key: bool = True) -> sql.Composed:
    names = place.names(definition)
    parts = [_column(column, place, names) for column in definition.columns]
    if with_primary_key and definition.primary_key is not None:
        parts.append(_constraint(names[definition.primary_key.name], definition.primary_key.definition))
    options = f" WITH ({definition.options})" if definition.options else ""
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}){}")
    return create.format(place.identifier, sql.SQL(", ").join(parts), sql.SQL(options))


def add_primary_key(definition: TableDefinition, place: Place) -> list[Step]:
    """For a table that was made without; empty if it has none."""
    key = definition.primary_key
    return [_add_key(key, place, place.names(definition))] if key is not None else []


def after_copy(definition: TableDefinition, place: Place) -> list[Step]:
    """Indexes and keys first, which may be built side by side; then what needs them."""
    names = place.names(definition)
    return [
        *(_create_index(index, place, names) for index in definition.indexes),
        *(_add_key(key, place, names) for key in definition.uniques),
        *(_add_constraint(check.name, check.definition, place, check.since) for check in definition.checks),
        *_replica_identity(definition, place, names),
        *_comments(definition, place),
    ]


def add_foreign_keys(definition: TableDefinition, place: Place, places: Places) -> list[Step]:
    """As NOT VALID, so without reading the rows. Those to tables that are not in ``places`` are left out."""
    return [
        Step("constraint", key.name, _add_foreign_key(key, place, referenced))
        for key in definition.foreign_keys
        if (referenced := _referenced(key, definition, place, places)) is not None
    ]


def validate_foreign_keys(definition: TableDefinition, place: Place, places: Places) -> list[Step]:
    """Those that are valid in the source. Writers go on meanwhile."""
    validate = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}")
    return [
        Step("validity", key.name, validate.format(place.identifier, sql.Identifier(key.name)))
        for key in definition.foreign_keys
        if key.is_valid and _referenced(key, definition, place, places) is not None
    ]


def renames(definition: TableDefinition, place: Place) -> list[sql.Composed]:
    """For a table that was made at ``place`` and has taken the place that it was for. May be executed again.

    An index takes its constraint's name along.
    """
    final = place.taken.names(definition)
    sequences = {column.identity.sequence for column in definition.columns if column.identity is not None}
    rename = sql.SQL("ALTER {} IF EXISTS {} RENAME TO {}")
    return [
        rename.format(
            sql.SQL("SEQUENCE" if name in sequences else "INDEX"),
            sql.Identifier(place.schema, made),
            sql.Identifier(final[name]),
        )
        for name, made in place.names(definition).items()
        if made != final[name]
    ]


def missing(target: Connection, place: Place, steps: Iterable[Step]) -> list[Step]:
    """The steps that are still to be done: without what is there already, and what this server does not know."""
    table = place.identifier.as_string(None)
    constraints = target.execute(_CONSTRAINTS, [table]).fetchall()
    indexes = {name for (name,) in target.execute(_INDEXES, [table])}
    done = {
        "constraint": {name for name, _ in constraints},
        "index": indexes,
        "validity": {name for name, is_valid in constraints if is_valid},
        "setting": set[str](),
    }
    return [s for s in steps if s.name not in done[s.makes] and s.since <= target.info.server_version]


_CONSTRAINTS = "select conname::text, convalidated from pg_constraint where conrelid = to_regclass(%s)"
_INDEXES = (
    "select c.relname::text from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = to_regclass(%s)"
)


def _column(column: ColumnDefinition, place: Place, names: Mapping[str, str]) -> sql.Composed:
    parts = [sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type)), collate(column.collation)]
    if column.not_null:
        # Always named: from 18 on Postgres would name it after the table, which may be about to get another name.
        name = column.not_null_name or fitted(f"{place.table}_{column.name}_not_null")
        parts.append(sql.SQL(" CONSTRAINT {} NOT NULL").format(sql.Identifier(name)))
    if column.default is not None:
        parts.append(sql.SQL(" DEFAULT {}").format(sql.SQL(column.default)))
    if column.generated is not None:
        kind = sql.SQL("VIRTUAL" if column.is_virtual else "STORED")
        parts.append(sql.SQL(" GENERATED ALWAYS AS ({}) {}").format(sql.SQL(column.generated), kind))
    if column.identity is not None:
        identity = sql.SQL(" GENERATED {} AS IDENTITY (SEQUENCE NAME {} {})").format(
            sql.SQL("ALWAYS" if column.identity.kind == "a" else "BY DEFAULT"),
            sql.Identifier(place.schema, names[column.identity.sequence]),
            parameters(column.identity.parameters),
        )
        parts.append(identity)
    return sql.Composed(parts)


def _constraint(name: str, definition: str) -> sql.Composed:
    return sql.SQL("CONSTRAINT {} {}").format(sql.Identifier(name), sql.SQL(definition))


def _add_constraint(name: str, definition: str, place: Place, since: int = 0) -> Step:
    statement = sql.SQL("ALTER TABLE {} ADD {}").format(place.identifier, _constraint(name, definition))
    return Step("constraint", name, statement, since)


def _add_key(key: KeyConstraint, place: Place, names: Mapping[str, str]) -> Step:
    return _add_constraint(names[key.name], key.definition, place)


def _create_index(index: Index, place: Place, names: Mapping[str, str]) -> Step:
    name = names[index.name]
    unique = sql.SQL("UNIQUE " if index.is_unique else "")
    create = sql.SQL("CREATE {}INDEX IF NOT EXISTS {} ON {} {}")
    statement = create.format(unique, sql.Identifier(name), place.identifier, sql.SQL(index.definition))
    return Step("index", name, statement)


def _replica_identity(definition: TableDefinition, place: Place, names: Mapping[str, str]) -> list[Step]:
    index = names.get(definition.replica_identity_index or "")  # none where it is gone or invalid
    kinds = {"f": sql.Composed([sql.SQL("FULL")]), "n": sql.Composed([sql.SQL("NOTHING")])}
    if index is not None:
        kinds["i"] = sql.SQL("USING INDEX {}").format(sql.Identifier(index))
    kind = kinds.get(definition.replica_identity)
    alter = sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}")
    return [Step("setting", "replica identity", alter.format(place.identifier, kind))] if kind is not None else []


def _comments(definition: TableDefinition, place: Place) -> list[Step]:
    on_table, on_column = sql.SQL("COMMENT ON TABLE {} IS {}"), sql.SQL("COMMENT ON COLUMN {} IS {}")
    found = [on_table.format(place.identifier, sql.Literal(definition.comment))] if definition.comment else []
    found += [
        on_column.format(sql.Identifier(place.schema, place.name, column.name), sql.Literal(column.comment))
        for column in definition.columns
        if column.comment
    ]
    return [Step("setting", "comment", statement) for statement in found]


def _referenced(key: ForeignKey, definition: TableDefinition, place: Place, places: Places) -> Place | None:
    """One that refers to its own table refers to the one that is being made, not to the one whose place it will take."""
    if key.referenced_oid == definition.oid:
        return place
    return places.get((key.referenced_schema, key.referenced_table))


def _add_foreign_key(key: ForeignKey, place: Place, referenced: Place) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}){}").format(
        place.identifier, sql.Identifier(key.name), _columns(key.columns, key.with_period),
        referenced.identifier, _columns(key.referenced_columns, key.with_period), _foreign_key_options(key),
    )  # fmt: skip


def _foreign_key_options(key: ForeignKey) -> sql.Composed:
    words = [" MATCH FULL"] if key.match == "f" else []
    words += [f" ON UPDATE {_ACTIONS[key.update]}"] if key.update in _ACTIONS else []
    words += [f" ON DELETE {_ACTIONS[key.delete]}"] if key.delete in _ACTIONS else []
    only = sql.SQL(" ({})").format(_columns(key.delete_columns)) if key.delete_columns else sql.SQL("")
    rest = [" DEFERRABLE"] if key.deferrable else []
    rest += [" INITIALLY DEFERRED"] if key.deferred else []
    rest += [" NOT VALID" if key.is_enforced else " NOT ENFORCED"]
    return sql.Composed([sql.SQL("".join(words)), only, sql.SQL("".join(rest))])


def _columns(names: tuple[str, ...], with_period: bool = False) -> sql.Composed:
    last = len(names) - 1
    return sql.SQL(", ").join(
        sql.SQL("PERIOD {}" if with_period and i == last else "{}").format(sql.Identifier(name))
        for i, name in enumerate(names)
    )
