"""The sequences that tables need: those of their identity and serial columns, and those that defaults draw from.

Connections are those of ``penstock.postgres.connection.connect``: their empty search_path is what makes Postgres
qualify the names in every expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.postgres.connection import Connection, translated_errors

_ATTEMPTS = 3
_SEQUENCES_PER_QUERY = 200  # each is a relation of its own, which the query locks (for reading) and plans


@dataclass(frozen=True)
class SequenceParameters:
    """What CREATE SEQUENCE takes, and what GENERATED … AS IDENTITY takes in parentheses (there, without the type)."""

    type: str  # smallint, integer or bigint
    start: int
    increment: int
    minimum: int
    maximum: int
    cache: int
    cycles: bool


@dataclass(frozen=True)
class SequenceOwner:
    """The column that a sequence is dropped with."""

    table_oid: int
    schema: str
    table: str
    column: str


@dataclass(frozen=True)
class SequenceDefinition:
    """A sequence and where it stands. An identity column's is made with its table, not by itself."""

    oid: int
    schema: str
    name: str
    parameters: SequenceParameters
    owner: SequenceOwner | None
    is_identity: bool
    last_value: int
    is_called: bool  # whether last_value has been handed out; the next value is last_value itself if not

    @property
    def next_value(self) -> int:
        return self.last_value + self.parameters.increment if self.is_called else self.last_value


def read_sequences(connection: Connection, oids: Iterable[int]) -> list[SequenceDefinition]:
    """The sequences that the tables with these oids need, by name. Needs SELECT on each of them."""
    wanted = list(oids)
    with translated_errors("Reading the sequences of the source"):
        for _ in range(_ATTEMPTS - 1):
            with suppress(psycopg.errors.UndefinedTable):  # dropped or renamed since we read its name
                return _read(connection, wanted)
        return _read(connection, wanted)


def _read(connection: Connection, oids: list[int]) -> list[SequenceDefinition]:
    with connection.transaction():
        rows = connection.execute(_SEQUENCES, [oids]).fetchall()
        values = dict(_values(connection, [row[:3] for row in rows]))
    return [_definition(row, values[row[0]]) for row in rows]


def _definition(row: tuple[Any, ...], value: tuple[int, bool]) -> SequenceDefinition:
    oid, schema, name, is_identity = row[:4]
    owner = SequenceOwner(*row[4:8]) if row[4] is not None else None
    return SequenceDefinition(oid, schema, name, SequenceParameters(*row[8:]), owner, is_identity, *value)


def _values(connection: Connection, sequences: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, tuple[int, bool]]]:
    """Only the sequence itself knows is_called: pg_sequences has NULL for one that was set but not called."""
    one = sql.SQL("select {}::oid, last_value, is_called from {}")
    for first in range(0, len(sequences), _SEQUENCES_PER_QUERY):
        some = sequences[first : first + _SEQUENCES_PER_QUERY]
        selects = (one.format(sql.Literal(oid), sql.Identifier(schema, name)) for oid, schema, name in some)
        for oid, last_value, is_called in connection.execute(sql.SQL(" union all ").join(selects)):
            yield oid, (last_value, is_called)


# pg_depend: an identity column's sequence depends on it internally (i), a serial one's automatically (a); a default
# depends on the sequence that it calls.
_SEQUENCES = """
with wanted as (select unnest(%s::oid[]) as oid), needed (oid) as (
    select d.objid from pg_depend d join wanted on wanted.oid = d.refobjid
    where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0
        and d.deptype in ('a', 'i')
    union
    select d.refobjid from pg_attrdef ad join wanted on wanted.oid = ad.adrelid
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = ad.oid
    where d.refclassid = 'pg_class'::regclass
)
select c.oid, n.nspname::text, c.relname::text, coalesce(own.deptype = 'i', false), own.refobjid,
    owner_schema.nspname::text, owner.relname::text, a.attname::text,
    format_type(s.seqtypid, null), s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle
from needed
join pg_class c on c.oid = needed.oid and c.relkind = 'S'
join pg_namespace n on n.oid = c.relnamespace
join pg_sequence s on s.seqrelid = c.oid
left join pg_depend own on own.classid = 'pg_class'::regclass and own.objid = c.oid and own.objsubid = 0
    and own.refclassid = 'pg_class'::regclass and own.refobjsubid > 0 and own.deptype in ('a', 'i')
left join pg_class owner on owner.oid = own.refobjid
left join pg_namespace owner_schema on owner_schema.oid = owner.relnamespace
left join pg_attribute a on a.attrelid = own.refobjid and a.attnum = own.refobjsubid
order by n.nspname, c.relname
"""
