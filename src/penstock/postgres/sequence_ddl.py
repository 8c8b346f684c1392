"""The statements that make the source's sequences in a target and let them stand where they stand in the source."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

from penstock.postgres.sequence_definition import SequenceDefinition, SequenceParameters
from penstock.postgres.target_names import Place


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
