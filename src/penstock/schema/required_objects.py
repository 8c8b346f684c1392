"""What tables need and nobody makes for them: it must be in the target already.

Extensions; functions, operators, collations and so on that defaults, checks and indexes use; types written in C, and the row
types of tables. Errors of the target are left to the sink whose target it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psycopg

from penstock.postgres.connection import Connection, translated_errors


@dataclass(frozen=True)
class RequiredObject:
    """As pg_identify_object and pg_identify_object_as_address name it."""

    kind: str  # function, collation, type, operator, …
    identity: str  # public.f(integer)
    names: tuple[str, ...]
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.identity}"


def required_extensions(connection: Connection, oids: Iterable[int]) -> set[str]:
    """The extensions that the tables' types, expressions, operator classes and collations come from."""
    with translated_errors("Reading the extensions of the source"):
        return {name for (name,) in connection.execute(NEEDED_TYPES + _OBJECTS + _EXTENSIONS, [list(oids)])}


def required_objects(connection: Connection, oids: Iterable[int]) -> list[RequiredObject]:
    """All else that the tables with these oids need and that is neither Postgres's own nor made with them."""
    with translated_errors("Reading what the tables of the source need"):
        rows = connection.execute(NEEDED_TYPES + _OBJECTS + _OTHERS, [list(oids)])
        return [RequiredObject(kind, identity, tuple(names), tuple(args)) for kind, identity, names, args in rows]


def missing_extensions(target: Connection, names: Iterable[str]) -> set[str]:
    return {*names} - {name for (name,) in target.execute("select extname::text from pg_extension")}


def missing_objects(target: Connection, objects: Iterable[RequiredObject]) -> list[RequiredObject]:
    return [required for required in objects if not _exists(target, required)]


def _exists(target: Connection, required: RequiredObject) -> bool:
    query = "select pg_get_object_address(%s, %s::text[], %s::text[])"
    try:
        with target.transaction():
            target.execute(query, [required.kind, list(required.names), list(required.arguments)])
    except _UNDEFINED:
        return False
    return True


_UNDEFINED = (
    psycopg.errors.UndefinedObject, psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
)  # fmt: skip

# Everything that belongs to the tables and may name a type, a function, an operator: defaults, constraints, indexes.
# ``needed``: the types of columns and those in expressions, and all that these are made of, however deeply; ``above`` is
# what needs it. What Postgres brings along is looked into as well, since an array of a row may be of anybody's.
NEEDED_TYPES = """
with recursive wanted as (select unnest(%s::oid[]) as oid), belonging (classid, objid) as (
    select 'pg_class'::regclass::oid, oid from wanted
    union all select 'pg_attrdef'::regclass, d.oid from pg_attrdef d join wanted on wanted.oid = d.adrelid
    union all select 'pg_constraint'::regclass, c.oid from pg_constraint c join wanted on wanted.oid = c.conrelid
    union all select 'pg_class'::regclass, i.indexrelid from pg_index i join wanted on wanted.oid = i.indrelid
), needed (above, oid) as (
    select null::oid, a.atttypid from pg_attribute a join wanted on wanted.oid = a.attrelid
    where a.attnum > 0 and not a.attisdropped
    union
    select null::oid, d.refobjid from pg_depend d join belonging b on b.classid = d.classid and b.objid = d.objid
    where d.refclassid = 'pg_type'::regclass
    union
    select t.oid, below.oid from needed join pg_type t on t.oid = needed.oid
    cross join lateral (
        select t.typbasetype
        union all select t.typelem
        union all select a.atttypid from pg_class c join pg_attribute a on a.attrelid = c.oid
            where c.oid = t.typrelid and c.relkind = 'c' and a.attnum > 0 and not a.attisdropped
        union all select r.rngsubtype from pg_range r where r.rngtypid = t.oid
        union all select r.rngtypid from pg_range r where r.rngmultitypid = t.oid
        union all select d.refobjid from pg_constraint c
            join pg_depend d on d.classid = 'pg_constraint'::regclass and d.objid = c.oid
            where c.contypid = t.oid and d.refclassid = 'pg_type'::regclass and d.refobjid <> t.oid
        union all select d.refobjid from pg_depend d
            where d.classid = 'pg_type'::regclass and d.objid = t.oid and t.typtype = 'd'
            and d.refclassid = 'pg_type'::regclass
    ) as below (oid)
    where below.oid <> 0
)
"""

# What the tables' parts and the domains' checks depend on. Of what Postgres brings along, pg_depend knows nothing.
_OBJECTS = """
, object (classid, objid) as (
    select 'pg_type'::regclass::oid, oid from needed
    union select d.refclassid, d.refobjid from pg_depend d
        join belonging b on b.classid = d.classid and b.objid = d.objid where d.deptype = 'n'
    union select d.refclassid, d.refobjid from needed
        join pg_constraint c on c.contypid = needed.oid
        join pg_depend d on d.classid = 'pg_constraint'::regclass and d.objid = c.oid where d.deptype = 'n'
    union select d.refclassid, d.refobjid from needed
        join pg_depend d on d.classid = 'pg_type'::regclass and d.objid = needed.oid where d.deptype = 'n'
)
"""

_EXTENSIONS = """
select distinct e.extname::text from object o
join pg_depend d on d.classid = o.classid and d.objid = o.objid and d.deptype = 'e'
join pg_extension e on d.refclassid = 'pg_extension'::regclass and e.oid = d.refobjid
"""

# Relations are sequences and tables, schemas are made. Of types, those that read_types does not give and that are no part of
# another one, as arrays and multiranges are.
_OTHERS = """
select i.type, i.identity, a.object_names, a.object_args from object o
cross join lateral pg_identify_object(o.classid, o.objid, 0) as i
cross join lateral pg_identify_object_as_address(o.classid, o.objid, 0) as a
left join pg_type t on o.classid = 'pg_type'::regclass and t.oid = o.objid
left join pg_class row on row.oid = t.typrelid
where o.classid not in ('pg_class'::regclass, 'pg_namespace'::regclass, 'pg_constraint'::regclass)
    and (t.oid is null or (t.typtype = 'b' and t.typelem = 0 or row.relkind <> 'c'))
    and i.schema is distinct from 'pg_catalog' and i.schema is distinct from 'information_schema'
    and not exists (select from pg_depend d where d.classid = o.classid and d.objid = o.objid and d.deptype = 'e')
order by 1, 2
"""
