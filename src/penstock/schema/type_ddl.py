"""The statements that make the source's types in a target. What is there is left as it is.

The statements that make the source's sequences in a target and let them stand where they stand in the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from psycopg import sql

from penstock.schema.sequence_definition import SequenceDefinition, SequenceParameters
from penstock.schema.target_names import Place
from penstock.schema.type_definition import CompositeType, DomainType, EnumType, RangeType, TypeDefinition


def create_type(definition: TypeDefinition) -> sql.Composed:
    """Does nothing where a type of that name is there: CREATE TYPE knows no IF NOT EXISTS."""
    body = sql.SQL("begin {}; exception when duplicate_object then null; end").format(_create(definition))
    return sql.SQL("DO {}").format(sql.Literal(body.as_string(None)))


def add_labels(definition: EnumType) -> list[sql.Composed]:
    """Gives an enum that is there the labels that it lacks: the last one first, each of the others before its neighbour.

    A label can be used only after the transaction that added it.
    """
    name = sql.Identifier(definition.schema, definition.name)
    labels = [sql.Literal(label) for label in reversed(definition.labels)]
    last = sql.SQL("ALTER TYPE {} ADD VALUE IF NOT EXISTS {}")
    other = sql.SQL("ALTER TYPE {} ADD VALUE IF NOT EXISTS {} BEFORE {}")
    return [
        *(last.format(name, label) for label in labels[:1]),
        *(other.format(name, label, following) for following, label in pairwise(labels)),
    ]


def _create(definition: TypeDefinition) -> sql.Composed:
    name = sql.Identifier(definition.schema, definition.name)
    match definition:
        case EnumType():
            labels = sql.SQL(", ").join(map(sql.Literal, definition.labels))
            return sql.SQL("CREATE TYPE {} AS ENUM ({})").format(name, labels)
        case DomainType():
            return _create_domain(definition, name)
        case CompositeType():
            attributes = (
                sql.SQL("{} {}{}").format(sql.Identifier(a.name), sql.SQL(a.type), collate(a.collation))
                for a in definition.attributes
            )
            return sql.SQL("CREATE TYPE {} AS ({})").format(name, sql.SQL(", ").join(attributes))
        case RangeType():
            return _create_range(definition, name)


def _create_domain(definition: DomainType, name: sql.Identifier) -> sql.Composed:
    """Without checks that are not valid: the source has values that violate them, which would be refused."""
    check = sql.SQL(" CONSTRAINT {} {}")
    parts = [sql.SQL("CREATE DOMAIN {} AS {}").format(name, sql.SQL(definition.base)), collate(definition.collation)]
    if definition.default is not None:
        parts.append(sql.SQL(" DEFAULT {}").format(sql.SQL(definition.default)))
    if definition.not_null:
        parts.append(sql.Composed([sql.SQL(" NOT NULL")]))
    parts += [check.format(sql.Identifier(c.name), sql.SQL(c.definition)) for c in definition.checks if c.is_valid]
    return sql.Composed(parts)


def _create_range(definition: RangeType, name: sql.Identifier) -> sql.Composed:
    options = [
        sql.SQL("subtype = {}").format(sql.SQL(definition.subtype)),
        sql.SQL("subtype_opclass = {}").format(sql.Identifier(*definition.operator_class)),
        sql.SQL("multirange_type_name = {}").format(sql.Identifier(*definition.multirange)),
    ]
    if definition.collation is not None:
        options.append(sql.SQL("collation = {}").format(sql.SQL(definition.collation)))
    if definition.difference is not None:
        options.append(sql.SQL("subtype_diff = {}").format(sql.SQL(definition.difference)))
    return sql.SQL("CREATE TYPE {} AS RANGE ({})").format(name, sql.SQL(", ").join(options))


def collate(collation: str | None) -> sql.Composed:
    return sql.Composed([sql.SQL(f" COLLATE {collation}" if collation is not None else "")])


def create_sequence(sequence: SequenceDefinition) -> sql.Composed:
    """Under its name in the source, by which defaults call it. Not for an identity column's: ``create_table`` makes it."""
    return sql.SQL("CREATE SEQUENCE IF NOT EXISTS {} AS {} {}").format(
        _identifier(sequence), sql.SQL(sequence.parameters.type), parameters(sequence.parameters)
    )


def own_sequence(sequence: SequenceDefinition, places: Mapping[tuple[str, str], Place]) -> sql.Composed | None:
    """Ties it to the column that it is dropped with.

    None where there is nothing to tie: no owner or none in the target, an identity column, or a table that is in another
    schema than in the source, since Postgres wants both in one.
    """
    place = _owner_place(sequence, places)
    if sequence.owner is None or place is None or sequence.is_identity or place.schema != sequence.schema:
        return None
    column = sql.Identifier(place.schema, place.name, sequence.owner.column)
    return sql.SQL("ALTER SEQUENCE {} OWNED BY {}").format(_identifier(sequence), column)


def set_sequence(sequence: SequenceDefinition, places: Mapping[tuple[str, str], Place]) -> sql.Composed:
    """Its next value becomes the source's. The answer is NULL where the target has no such sequence.

    An identity column's is found by the column: in a table that was there before, it may have any name.
    """
    place = _owner_place(sequence, places)
    if sequence.is_identity and sequence.owner is not None and place is not None:
        found = sql.SQL("pg_get_serial_sequence({}, {})::regclass").format(
            sql.Literal(place.identifier.as_string(None)), sql.Literal(sequence.owner.column)
        )
    else:
        found = sql.SQL("to_regclass({})").format(sql.Literal(_identifier(sequence).as_string(None)))
    value, is_called = sql.SQL(str(sequence.last_value)), sql.Literal(sequence.is_called)
    return sql.SQL("SELECT setval({}, {}, {})").format(found, value, is_called)


def parameters(of: SequenceParameters) -> sql.SQL:
    """As CREATE SEQUENCE and AS IDENTITY (…) take them."""
    return sql.SQL(
        f"START WITH {of.start} INCREMENT BY {of.increment} MINVALUE {of.minimum} MAXVALUE {of.maximum} "
        f"CACHE {of.cache} {'CYCLE' if of.cycles else 'NO CYCLE'}"
    )


def _owner_place(sequence: SequenceDefinition, places: Mapping[tuple[str, str], Place]) -> Place | None:
    owner = sequence.owner
    return places.get((owner.schema, owner.table)) if owner is not None else None


def _identifier(sequence: SequenceDefinition) -> sql.Identifier:
    return sql.Identifier(sequence.schema, sequence.name)
