"""The types that tables need and that Postgres does not bring along: enums, domains, composite types, ranges.

What must be in the target already is left out (``penstock.schema.required_objects``): types of extensions, base types
(written in C), and the row types of tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, TypeAlias

from penstock.postgres.connection import Connection, translated_errors
from penstock.schema.required_objects import NEEDED_TYPES


@dataclass(frozen=True)
class EnumType:
    oid: int
    schema: str
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class DomainCheck:
    name: str
    definition: str  # pg_get_constraintdef: CHECK ((VALUE > 0))
    is_valid: bool


@dataclass(frozen=True)
class DomainType:
    oid: int
    schema: str
    name: str
    base: str  # with its modifier: numeric(10,2)
    collation: str | None  # where it is not the base type's
    default: str | None
    not_null: bool
    checks: tuple[DomainCheck, ...]


@dataclass(frozen=True)
class CompositeAttribute:
    name: str
    type: str
    collation: str | None  # where it is not the type's


@dataclass(frozen=True)
class CompositeType:
    oid: int
    schema: str
    name: str
    attributes: tuple[CompositeAttribute, ...]


@dataclass(frozen=True)
class RangeType:
    oid: int
    schema: str
    name: str
    subtype: str
    operator_class: tuple[str, str]  # schema and name
    collation: str | None
    difference: str | None  # the subtype_diff function
    multirange: tuple[str, str]  # schema and name


TypeDefinition: TypeAlias = EnumType | DomainType | CompositeType | RangeType


def read_types(connection: Connection, oids: Iterable[int]) -> list[TypeDefinition]:
    """What the tables with these oids need, each after those that it is made of."""
    with translated_errors("Reading the types of the source"):
        edges = connection.execute(NEEDED_TYPES + _EDGES, [list(oids)]).fetchall()
        order = list(TopologicalSorter(_graph(edges)).static_order())
        found: dict[int, TypeDefinition] = {
            **_read_enums(connection, order),
            **_read_domains(connection, order),
            **_read_composites(connection, order),
            **_read_ranges(connection, order),
        }
        belongs = {oid for (oid,) in connection.execute(_BELONGING, [order])}
    return [found[oid] for oid in order if oid in found and oid not in belongs]


def _graph(edges: Iterable[tuple[Any, ...]]) -> dict[int, set[int]]:
    graph: dict[int, set[int]] = {}
    for oid, below in edges:
        graph.setdefault(oid, set()).update([below] if below is not None else [])
    return graph


def _read_enums(connection: Connection, oids: list[int]) -> dict[int, TypeDefinition]:
    rows = connection.execute(_ENUMS, [oids])
    return {oid: EnumType(oid, schema, name, tuple(labels)) for oid, schema, name, labels in rows}


def _read_domains(connection: Connection, oids: list[int]) -> dict[int, TypeDefinition]:
    checks: dict[int, list[DomainCheck]] = {}
    for oid, *check in connection.execute(_DOMAIN_CHECKS, [oids]):
        checks.setdefault(oid, []).append(DomainCheck(*check))
    rows = connection.execute(_DOMAINS, [oids])
    return {
        oid: DomainType(oid, schema, name, base, collation, default, not_null, tuple(checks.get(oid, ())))
        for oid, schema, name, base, collation, default, not_null in rows
    }


def _read_composites(connection: Connection, oids: list[int]) -> dict[int, TypeDefinition]:
    attributes: dict[tuple[int, str, str], list[CompositeAttribute]] = {}
    for oid, schema, name, *attribute in connection.execute(_COMPOSITES, [oids]):
        some = attributes.setdefault((oid, schema, name), [])
        if attribute[0] is not None:  # a composite type may have none
            some.append(CompositeAttribute(*attribute))
    return {place[0]: CompositeType(*place, tuple(some)) for place, some in attributes.items()}


def _read_ranges(connection: Connection, oids: list[int]) -> dict[int, TypeDefinition]:
    rows = connection.execute(_RANGES, [oids])
    return {row[0]: _range(row) for row in rows}


def _range(row: tuple[Any, ...]) -> RangeType:
    oid, schema, name, subtype, *operator_class, collation, difference, multirange_schema, multirange = row
    return RangeType(
        oid, schema, name, subtype, (operator_class[0], operator_class[1]), collation, difference,
        (multirange_schema, multirange),
    )  # fmt: skip


_EDGES = """
select oid, null from needed where above is null union select above, oid from needed where above is not null
order by 1, 2
"""

# Those of Postgres itself and of extensions.
_BELONGING = """
select t.oid from pg_type t join pg_namespace n on n.oid = t.typnamespace
where t.oid = any(%s) and (
    n.nspname in ('pg_catalog', 'information_schema', 'pg_toast')
    or exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e')
)
"""

_ENUMS = """
select t.oid, n.nspname::text, t.typname::text,
    array(select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder)
from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.oid = any(%s) and t.typtype = 'e'
"""

_DOMAINS = """
select t.oid, n.nspname::text, t.typname::text, format_type(t.typbasetype, t.typtypmod),
    case when t.typcollation <> base.typcollation then t.typcollation::regcollation::text end,
    pg_get_expr(t.typdefaultbin, 0), t.typnotnull
from pg_type t join pg_namespace n on n.oid = t.typnamespace join pg_type base on base.oid = t.typbasetype
where t.oid = any(%s) and t.typtype = 'd'
"""

_DOMAIN_CHECKS = """
select contypid, conname::text, pg_get_constraintdef(oid), convalidated from pg_constraint
where contypid = any(%s) and contype = 'c' order by contypid, conname
"""

_COMPOSITES = """
select t.oid, n.nspname::text, t.typname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
    case when a.attcollation <> of.typcollation then a.attcollation::regcollation::text end
from pg_type t
join pg_namespace n on n.oid = t.typnamespace
join pg_class c on c.oid = t.typrelid and c.relkind = 'c'
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_type of on of.oid = a.atttypid
where t.oid = any(%s) order by t.oid, a.attnum
"""

_RANGES = """
select t.oid, n.nspname::text, t.typname::text, format_type(r.rngsubtype, null), opclass_schema.nspname::text,
    opclass.opcname::text, case when r.rngcollation <> subtype.typcollation then r.rngcollation::regcollation::text end,
    case when r.rngsubdiff::oid <> 0 then r.rngsubdiff::text end, multirange_schema.nspname::text, multirange.typname::text
from pg_range r
join pg_type t on t.oid = r.rngtypid
join pg_namespace n on n.oid = t.typnamespace
join pg_type subtype on subtype.oid = r.rngsubtype
join pg_opclass opclass on opclass.oid = r.rngsubopc
join pg_namespace opclass_schema on opclass_schema.oid = opclass.opcnamespace
join pg_type multirange on multirange.oid = r.rngmultitypid
join pg_namespace multirange_schema on multirange_schema.oid = multirange.typnamespace
where t.oid = any(%s)
"""
