"""Commands of the schema log after which a table's rows have other values than the stream brought.

A command that computed values (an expression after ``USING``, a volatile default) leaves rows that nobody can know from the
table's definition. A new type without ``USING`` is a cast: whether a sink gets the same values by its own cast is the sink's
to say (``Sink.recomputes``). What is written to a table while it is unlogged is not in the WAL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors
from penstock.schema.definitions import Definition
from penstock.schema.differences import table_differences
from penstock.schema.kinds import RetypeColumn, SchemaChange
from penstock.schema.log.row import LoggedType, logged_type
from penstock.schema.type_kinds import OF_VALUES
from penstock.schema.types import type_changes


@dataclass(frozen=True)
class Recomputation:
    """``oids``: of the table, and of those that it is a partition of. ``computed``: no cast gives the new values.
    ``changes``: what a sink that holds the rows has to recompute; ``nested``: of a type that is within those of columns, in an
    array, say."""

    oids: frozenset[int]
    lsn: LSN
    tag: str
    computed: bool
    changes: tuple[SchemaChange, ...] = ()
    nested: bool = False


def recomputations(connection: Connection, since: LSN) -> list[Recomputation]:
    """After ``since``.

    Whether there was a ``USING`` is told by the text that the client sent, if it has the command; that of a function's call
    has not.
    """
    with translated_errors("Reading the schema log"):
        rows = connection.execute(_TABLES.encode(), [str(since)]).fetchall()
        of_types = connection.execute(_TYPES.encode(), [str(since)]).fetchall()
    return [
        *(
            Recomputation(frozenset(map(int, oids)), LSN.parse(lsn), tag, computed, tuple(_retyped(before, after)))
            for oids, lsn, tag, computed, before, after in rows
        ),
        *(found for lsn, tag, entry in of_types for found in _reshaped(LSN.parse(lsn), tag, logged_type(entry))),
    ]


def _reshaped(lsn: LSN, tag: str, type_: LoggedType) -> Iterator[Recomputation]:
    changes = tuple(change for change in type_changes(type_.before, type_.after) if isinstance(change, OF_VALUES))
    if changes:
        nested = frozenset(type_.nested)
        yield Recomputation(frozenset(type_.tables) - nested, lsn, tag, False, changes)
        yield Recomputation(nested, lsn, tag, False, changes, nested=True)


def _retyped(before: dict[str, Any] | None, after: dict[str, Any] | None) -> Iterator[RetypeColumn]:
    if before is None or after is None:
        return
    for _, change in table_differences(Definition.from_json(before), Definition.from_json(after)):
        if isinstance(change, RetypeColumn) and not change.same_type:
            yield change


_TABLES = r"""
select array(select relid::oid::bigint from pg_partition_ancestors(t.oid) union select t.oid::bigint), l.lsn::text, l.tag,
    c.computed, nullif(t.before, 'null'), nullif(t.after, 'null')
from penstock.schema_log l
cross join lateral (
    select (e ->> 'oid')::oid as oid, e -> 'rewrite' as reasons, e -> 'before' as before, e -> 'after' as after
    from jsonb_array_elements(l.tables) as e
) as t
cross join lateral (select coalesce(
    t.reasons ?| array['default', 'persistence']
    or t.reasons ? 'type' and (l.statement is null or l.statement ~* '\yusing\y' or l.statement !~* '\ytype\y'), false)
) as c (computed)
where l.lsn > %s::pg_lsn and (c.computed or exists (
    select from jsonb_path_query(t.before, '$.columns[*]') as old
    join jsonb_path_query(t.after, '$.columns[*]') as new on new -> 'id' = old -> 'id'
    where new -> 'type_oid' <> old -> 'type_oid' or new -> 'modifier' <> old -> 'modifier'
))
order by l.id
"""

_TYPES = """
select l.lsn::text, l.tag, e from penstock.schema_log l cross join lateral jsonb_array_elements(l.types) as e
where l.lsn > %s::pg_lsn and jsonb_array_length(e -> 'tables') > 0
order by l.id
"""
