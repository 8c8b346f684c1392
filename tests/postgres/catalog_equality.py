"""Whether tables are defined alike in two databases, by queries of its own: the code under test is not asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from penstock.postgres.connection import Connection

Facts = dict[tuple[str, ...], Any]
Name = tuple[str, str]


def differences(
    source: Connection, target: Connection, tables: Sequence[Name], renamed: dict[Name, Name] | None = None
) -> list[str]:
    """One sentence for each thing that the two databases say differently of these tables; empty if they are equal.

    ``renamed``: by the source's schema and table, the target's where they differ. Then names of indexes are not compared.
    """
    names = renamed or {}
    back = {there: here for here, there in names.items()}
    ours = _facts(source, [(table, table) for table in tables], {}, with_index_names=not names)
    theirs = _facts(target, [(names.get(table, table), table) for table in tables], back, with_index_names=not names)
    return [
        f"{' '.join(subject)}: the source has {ours.get(subject, 'nothing')}, the target {theirs.get(subject, 'nothing')}."
        for subject in sorted({*ours, *theirs})
        if ours.get(subject) != theirs.get(subject)
    ]


def _facts(
    connection: Connection, tables: Sequence[tuple[Name, Name]], back: dict[Name, Name], with_index_names: bool
) -> Facts:
    """``tables``: what each is called in this database, and what it is called in the facts."""
    facts: Facts = {}
    for here, called in tables:
        name = ".".join(called)
        found = connection.execute("select to_regclass(%s)::oid", [sql.Identifier(*here).as_string(None)]).fetchone()
        assert found is not None
        if found[0] is None:
            continue
        facts["table", name] = "it"
        for kind, part, *value in connection.execute(_TABLE, [found[0]]):
            facts[f"{kind} of {name}", part] = tuple(value if with_index_names else value[:-1])
        for query in (_COLUMNS, _CHECKS):
            for kind, part, *value in connection.execute(query, [found[0]]):
                facts[f"{kind} of {name}", part] = tuple(value)
        for kind, part, *value in connection.execute(_INDEXES, [found[0]]):
            facts[f"{kind} of {name}", part if with_index_names else str(value)] = tuple(value)
        for part, schema, table, *value in connection.execute(_FOREIGN_KEYS, [found[0]]):
            facts[f"foreign key of {name}", part] = (back.get((schema, table), (schema, table)), *value)
        for column, label, sequence, *value in connection.execute(_SEQUENCES, [found[0]]):
            key = (f"sequence of {name}", column)
            facts[key] = (label if with_index_names else "", *value, *_position(connection, sequence))
        for type_name, *value in connection.execute(_TYPES, [found[0]]):
            facts["type", type_name] = tuple(value)
    return facts


def _position(connection: Connection, sequence: str) -> tuple[Any, ...]:
    """The value that nextval would give."""
    row = connection.execute(
        f"select case when is_called then last_value + seqincrement else last_value end "
        f"from {sequence}, pg_sequence where seqrelid = '{sequence.replace(chr(39), chr(39) * 2)}'::regclass"
    ).fetchone()
    assert row is not None
    return row


_TABLE = """
select 'settings', 'itself', c.relpersistence, c.relreplident, c.reloptions, obj_description(c.oid, 'pg_class'),
    (select ic.relname from pg_index i join pg_class ic on ic.oid = i.indexrelid
        where i.indrelid = c.oid and i.indisreplident)
from pg_class c where c.oid = %s
"""

# The number counts the columns that are there: a table that has dropped some equals one that never had them.
_COLUMNS = """
select 'column', a.attname::text, row_number() over (order by a.attnum), format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text,
    col_description(a.attrelid, a.attnum)
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
"""

_CHECKS = """
select case contype when 'n' then 'not-null constraint' else 'check' end, conname::text, pg_get_constraintdef(oid)
from pg_constraint where conrelid = %s and contype in ('c', 'n')
"""

# Without the names of the index and the table in it.
_INDEXES = """
select case when i.indisprimary then 'primary key' when con.oid is not null then 'key' else 'index' end,
    c.relname::text, am.amname, i.indisunique, i.indimmediate, con.contype, con.condeferrable, con.condeferred,
    array(select pg_get_indexdef(i.indexrelid, k, false) from generate_series(1, i.indnatts) as k order by k),
    i.indnkeyatts, i.indoption::text, array(
        select opc.opcnamespace::regnamespace::text || '.' || opc.opcname
        from unnest(i.indclass::oid[]) with ordinality as k (oid, position) join pg_opclass opc on opc.oid = k.oid
        order by k.position
    ), array(
        select k.oid::regcollation::text from unnest(i.indcollation::oid[]) with ordinality as k (oid, position)
        order by k.position
    ), pg_get_expr(i.indpred, i.indrelid), c.reloptions, to_jsonb(i) ->> 'indnullsnotdistinct',
    to_jsonb(con) ->> 'conperiod', array(
        select k.oid::regoperator::text from unnest(con.conexclop) with ordinality as k (oid, position) order by k.position
    )
from pg_index i
join pg_class c on c.oid = i.indexrelid
join pg_am am on am.oid = c.relam
left join pg_constraint con on con.conindid = i.indexrelid and con.contype in ('p', 'u', 'x')
where i.indrelid = %s and i.indisvalid
"""

_FOREIGN_KEYS = """
select con.conname::text, n.nspname::text, c.relname::text,
    array(select attname::text from unnest(con.conkey) with ordinality as k (number, position)
        join pg_attribute on attrelid = con.conrelid and attnum = number order by position),
    array(select attname::text from unnest(con.confkey) with ordinality as k (number, position)
        join pg_attribute on attrelid = con.confrelid and attnum = number order by position),
    con.confupdtype, con.confdeltype, con.confmatchtype, con.condeferrable, con.condeferred, con.convalidated,
    jsonb_array_length(nullif(to_jsonb(con) -> 'confdelsetcols', 'null')), to_jsonb(con) ->> 'conperiod',
    to_jsonb(con) ->> 'conenforced'
from pg_constraint con join pg_class c on c.oid = con.confrelid join pg_namespace n on n.oid = c.relnamespace
where con.conrelid = %s and con.contype = 'f'
    and not exists (select from pg_constraint p where p.oid = con.conparentid and p.conrelid = con.conrelid)
"""

# By the column that owns it or whose default calls it.
_SEQUENCES = """
with used as (
    select d.refobjsubid as attnum, d.refobjid as attrelid, d.objid as sequence, d.deptype::text as how from pg_depend d
    where d.refclassid = 'pg_class'::regclass and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
        and d.refobjsubid > 0
    union
    select ad.adnum, ad.adrelid, d.refobjid, 'default' from pg_attrdef ad
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = ad.oid and d.refclassid = 'pg_class'::regclass
)
select a.attname || ' by ' || used.how, s.seqrelid::regclass::text, s.seqrelid::regclass::text, format_type(seqtypid, null),
    seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle
from used join pg_sequence s on s.seqrelid = used.sequence
join pg_attribute a on a.attrelid = used.attrelid and a.attnum = used.attnum
where used.attrelid = %s
"""

_TYPES = """
with recursive used (oid) as (
    select atttypid from pg_attribute where attrelid = %s and attnum > 0 and not attisdropped
    union
    select below.oid from used join pg_type t on t.oid = used.oid cross join lateral (
        values (t.typbasetype), (t.typelem), ((select rngsubtype from pg_range where rngtypid = t.oid)),
            ((select rngtypid from pg_range where rngmultitypid = t.oid))
        union all select atttypid from pg_attribute where attrelid = t.typrelid and attnum > 0 and not attisdropped
    ) as below (oid) where below.oid <> 0
)
select t.oid::regtype::text, t.typtype, format_type(t.typbasetype, t.typtypmod), t.typnotnull,
    pg_get_expr(t.typdefaultbin, 0), t.typcollation::regcollation::text,
    array(select enumlabel::text from pg_enum where enumtypid = t.oid order by enumsortorder),
    array(select row(conname, pg_get_constraintdef(oid))::text from pg_constraint
        where contypid = t.oid and contype = 'c' order by conname),
    array(select row(attname, format_type(atttypid, atttypmod), attcollation::regcollation)::text from pg_attribute
        where attrelid = t.typrelid and attnum > 0 and not attisdropped order by attnum),
    (select row(rngsubtype::regtype, rngmultitypid::regtype, rngcollation::regcollation, rngsubdiff,
        (select opcname from pg_opclass where oid = rngsubopc))::text from pg_range where rngtypid = t.oid)
from used join pg_type t on t.oid = used.oid
where t.typnamespace <> 'pg_catalog'::regnamespace
"""
