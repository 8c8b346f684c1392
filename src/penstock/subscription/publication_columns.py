"""Lists of columns in Penstock's own publications: for tables of which some columns are to stay in the database.

A list names what is published, so a column that a table gets later is not in it until the next look: what was written to it
meanwhile is not captured. Whoever adds columns to a list has to have the table imported again.
https://www.postgresql.org/docs/current/logical-replication-col-lists.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.postgres.connection import Connection
from penstock.postgres.tables import Table
from penstock.settings.tables import LeftOut, Selection

COLUMN_LISTS_SINCE = 150000
TOO_OLD = (
    "exclude: source needs Postgres 15 or newer at the source, where publications have lists of columns.",
    "Use exclude: true, which drops the column before it reaches a sink.",
)


@dataclass(frozen=True)
class ColumnList:
    """``columns``: what is published, by number. ``left_out``: what is not, with the names that say so."""

    columns: Mapping[int, str]
    left_out: Mapping[int, str] = field(default_factory=dict)
    covers_identity: bool = True  # else Postgres would refuse updates and deletes of the table, if they were published


def wanted_lists(connection: Connection, tables: Iterable[Table], selection: Selection) -> dict[int, ColumnList]:
    """By table; those of which everything is published are not in it."""
    wanted = list(tables)
    choices = {
        table.oid: choice
        for table in wanted
        if (choice := selection.left_out(table.oid, table.schema, table.table)) is not None
    }
    if not choices:
        return {}
    if connection.info.server_version < COLUMN_LISTS_SINCE:
        raise ConfigError(*TOO_OLD)
    columns: dict[int, dict[int, str]] = {}
    unsent: set[tuple[int, int]] = set()
    for oid, number, name, may_be_sent in connection.execute(_COLUMNS, [list(choices)]):
        columns.setdefault(oid, {})[number] = name
        if not may_be_sent:
            unsent.add((oid, number))
    identities: dict[int, set[str]] = {}
    for oid, name in connection.execute(_IDENTITIES, [list(choices)]):
        identities.setdefault(oid, set()).add(name)
    lists = {
        oid: _list(choices[oid], named, {number for of, number in unsent if of == oid}, identities.get(oid, set()))
        for oid, named in columns.items()
    }
    found = {oid: one for oid, one in lists.items() if one.left_out}
    for table in wanted:
        if table.oid in found and not found[table.oid].columns:
            raise ConfigError(
                f"exclude: source leaves no column of {table.qualified_name} to publish.",
                "Leave the table out by source.tables instead.",
            )
    return found


def _list(choice: LeftOut, named: Mapping[int, str], unsent: Collection[int], identity: Collection[str]) -> ColumnList:
    left_out = choice(named)
    published = {number: name for number, name in named.items() if number not in left_out and number not in unsent}
    return ColumnList(published, left_out, all(named[number] not in identity for number in left_out))


def lists_in_force(connection: Connection, publications: Iterable[str]) -> dict[int, frozenset[int]]:
    """By table, the numbers of the columns that are published; tables without a list are not in it."""
    if connection.info.server_version < COLUMN_LISTS_SINCE:
        return {}
    rows = connection.execute(
        "select r.prrelid, r.prattrs::int2[] from pg_publication_rel r join pg_publication p on p.oid = r.prpubid "
        "where p.pubname = any(%s) and r.prattrs is not null",
        [list(publications)],
    )
    return {oid: frozenset(numbers) for oid, numbers in rows}


def columns_to_send(connection: Connection, oids: Iterable[int]) -> dict[int, frozenset[int]]:
    """By table, the numbers of the columns that are published without a list."""
    found: dict[int, set[int]] = {}
    for oid, number, _, may_be_sent in connection.execute(_COLUMNS, [list(oids)]):
        if may_be_sent:
            found.setdefault(oid, set()).add(number)
    return {oid: frozenset(numbers) for oid, numbers in found.items()}


def published_columns(connection: Connection, publications: Iterable[str]) -> dict[int, dict[str, tuple[str, ...]]]:
    """By table and publication, however that names the table."""
    found: dict[int, dict[str, tuple[str, ...]]] = {}
    if connection.info.server_version < COLUMN_LISTS_SINCE:
        return found
    for oid, publication, names in connection.execute(_PUBLISHED, [list(publications)]):
        found.setdefault(oid, {})[publication] = tuple(names)
    return found


# Generated columns may be in a list from Postgres 18 on, and then only stored ones.
_COLUMNS = """
select a.attrelid, a.attnum, a.attname::text,
    a.attgenerated = '' or a.attgenerated = 's' and current_setting('server_version_num')::int >= 180000
from pg_attribute a
where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""

# Of a partitioned table, each partition has an identity of its own; its columns have the same names.
_IDENTITIES = """
select distinct root.oid, a.attname::text
from unnest(%s::oid[]) as root (oid)
cross join lateral (select root.oid union select relid from pg_partition_tree(root.oid)) as part (oid)
join pg_class c on c.oid = part.oid
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relreplident = 'f' or exists (
    select from pg_index i
    where i.indrelid = c.oid and a.attnum = any(i.indkey::int2[])
        and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end
)
"""
_PUBLISHED = """
select c.oid, t.pubname::text, t.attnames::text[]
from pg_publication_tables t
join pg_namespace n on n.nspname = t.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
where t.pubname = any(%s)
"""
