"""The tables that rules are checked against, as the source's catalog has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.changes.batch import Relation
from penstock.pgoutput.messages import RelationColumn, RelationMessage
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.describe import described
from penstock.postgres.tables import Table


@dataclass(frozen=True)
class SourceTable:
    """``unique``: the columns of each unique index, the primary key's too."""

    relation: Relation
    unique: tuple[tuple[str, ...], ...] = ()


def source_tables(connection: Connection, tables: Sequence[Table]) -> list[SourceTable]:
    """The relations that changes of these tables would have. One that was dropped meanwhile, or has no columns, is absent."""
    oids = [table.oid for table in tables]
    with translated_errors("Reading the tables that rules are for"):
        columns = connection.execute(_COLUMNS, [oids]).fetchall()
        unique = connection.execute(_UNIQUE, [oids]).fetchall()
    types = catalog.resolve_types(connection, {type_oid for _, _, type_oid, _ in columns})
    found = []
    for table in tables:
        sent = tuple(
            RelationColumn(name, type_oid, modifier, table.identity == "f" or name in table.identity_columns)
            for oid, name, type_oid, modifier in columns
            if oid == table.oid
        )
        if sent:
            message = RelationMessage(table.oid, table.schema, table.table, table.identity, sent)
            relation = described(connection, message, types, {})
            found.append(SourceTable(relation, tuple(tuple(names) for oid, names in unique if oid == table.oid)))
    return found


# Generated columns are never sent before Postgres 18, and virtual ones never.
_COLUMNS = """
select a.attrelid, a.attname::text, a.atttypid, a.atttypmod
from pg_attribute a
where a.attrelid = any(%s) and a.attnum > 0 and not a.attisdropped
    and (a.attgenerated = '' or a.attgenerated = 's' and current_setting('server_version_num')::int >= 180000)
order by a.attrelid, a.attnum
"""
_UNIQUE = """
select i.indrelid, array_agg(a.attname::text order by k.position)
from pg_index i
cross join unnest(i.indkey::int2[]) with ordinality as k (attnum, position)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = any(%s) and i.indisunique and k.position <= i.indnkeyatts
group by i.indrelid, i.indexrelid
order by i.indexrelid
"""
