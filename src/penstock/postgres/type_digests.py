"""Whether the composite types in a table's columns are what they were: for readers that no command tells of it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.postgres.connection import Connection, translated_errors


def type_digests(connection: Connection, oids: Sequence[int]) -> dict[int, str]:
    """By table, of the composite types that are in its columns' types: in arrays, in each other, below domains.

    Equal as long as the text of values has the same shape: names of attributes do not count. Tables without such types have
    none.
    """
    with translated_errors("Reading the types of the source"):
        return dict(connection.execute(_DIGESTS, [list(oids)]).fetchall())


_DIGESTS = """
with recursive made_of (relid, oid) as (
    select a.attrelid, a.atttypid from pg_attribute a
    where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped and a.atttypid >= 16384
    union
    select made_of.relid, below.oid from made_of
    join pg_type t on t.oid = made_of.oid
    cross join lateral (
        select t.typbasetype where t.typbasetype <> 0
        union all select t.typelem where t.typelem <> 0
        union all select r.rngsubtype from pg_range r where r.rngtypid = t.oid
        union all select r.rngtypid from pg_range r where r.rngmultitypid = t.oid
        union all select a.atttypid from pg_attribute a
            where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped and t.typrelid <> 0
    ) as below (oid)
    where below.oid >= 16384
)
select made_of.relid, md5(string_agg(concat_ws(' ', t.oid, shape.text), ';' order by t.oid))
from made_of
join pg_type t on t.oid = made_of.oid and t.typtype = 'c'
cross join lateral (
    select string_agg(concat_ws(' ', a.attnum, a.atttypid, a.atttypmod), ',' order by a.attnum)
    from pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
) as shape (text)
group by made_of.relid
"""
