"""How a table is in the publications that are read, and whether it was in them all the time between two looks.

A table is published by one or more *routes*: a row of pg_publication_rel or pg_publication_namespace, or a publication of all
tables. Each route has an identity that changes whenever the route was interrupted or altered, however briefly:

- Postgres never updates a row of pg_publication_rel or pg_publication_namespace. A table that is taken out and put back has a
  row with another oid, and so has one whose row filter or column list was altered (``SET TABLE`` drops the row and adds
  another).
- ``ALTER PUBLICATION … SET (publish = …)`` and ``RENAME TO`` update the row of pg_publication, so its xmin changes. Only an
  update changes the xmin of a row: freezing marks the row and leaves the number. ``OWNER TO`` updates it as well.
- A table that is published with its schema leaves it by ``SET SCHEMA``, which updates the table's row in pg_depend. A
  partition that is published with its root leaves it by ``DETACH``, and has another row in pg_inherits when it is attached
  again.

- A publication that the slot was not read with for a while is read from another position on.

So two equal identities say that the table's changes were captured the same way at every moment in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.changes.batch import OWN_SCHEMA
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors

_SCHEMAS_AND_FILTERS_SINCE = 150000
_OPERATIONS = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True)
class Route:
    """``row_filter``: None lets every row through. ``columns``: None for no list. ``operations``: those that are published."""

    identity: str
    row_filter: str | None
    columns: str | None
    operations: tuple[str, ...]


@dataclass(frozen=True)
class Membership:
    routes: tuple[Route, ...]

    def to_json(self) -> list[Any]:
        return [[route.identity, route.row_filter, route.columns, list(route.operations)] for route in self.routes]

    @classmethod
    def from_json(cls, data: list[Any]) -> Membership:
        return cls(tuple(Route(identity, text, columns, tuple(ops)) for identity, text, columns, ops in data))

    def continues(self, before: Membership) -> bool:
        """Whether every change that is published now has been published since ``before``, and no more than now.

        False: changes in between may not have been captured, or the table's published rows or columns are others.
        """
        now = {route.identity: route for route in self.routes}
        # The text of a row filter follows renamed columns, so a route that is still there is taken as it is now.
        former = [now.get(route.identity, route) for route in before.routes]
        kept = [route for route in former if route.identity in now]
        return _effect(former) == _effect(self.routes) == _effect(kept)


Memberships: TypeAlias = dict[int, Membership]  # by the table's oid


def memberships(connection: Connection, publications: Mapping[str, LSN]) -> Memberships:
    """Of all tables of the publications, without Penstock's own. By publication, from where on the slot is read with it."""
    found: dict[int, list[Route]] = {}
    with translated_errors("Reading how tables are published"):
        query = _routes(connection.info.server_version >= _SCHEMAS_AND_FILTERS_SINCE)
        parameters = {"publications": list(publications), "own": OWN_SCHEMA}
        rows = connection.execute(query.encode(), parameters)
        for oid, publication, identity, row_filter, columns, *published in rows:
            operations = tuple(name for name, sent in zip(_OPERATIONS, published, strict=True) if sent)
            since = publications[publication]
            route = f"{identity} from {since}" if since else identity
            found.setdefault(oid, []).append(Route(route, row_filter, columns, operations))
    return {oid: Membership(tuple(routes)) for oid, routes in found.items()}


def _effect(routes: Iterable[Route]) -> tuple[frozenset[str | None], dict[str, frozenset[str] | None]]:
    """The columns that are published, and by operation the row filters of which one must let a row through; None: all pass."""
    filters: dict[str, frozenset[str] | None] = {}
    columns = set()
    for route in routes:
        columns.add(route.columns)
        for operation in route.operations:
            others = filters.get(operation, frozenset())
            open_to_all = others is None or route.row_filter is None
            filters[operation] = None if open_to_all else frozenset({*(others or ()), route.row_filter or ""})
    return frozenset(columns), filters


def _routes(schemas_and_filters: bool) -> str:
    rows = [_BY_TABLE_WITH_LISTS if schemas_and_filters else _BY_TABLE, _ALL_TABLES]
    return _PUBLISHED + " union all ".join(rows + ([_BY_SCHEMA] if schemas_and_filters else [])) + " order by 1, 3"


# ancestry: a table with itself and, if it is a partition, with those that it is a partition of. ``chain``: what of pg_inherits
# leads there.
_PUBLISHED = """
with recursive published as (
    select c.oid, p.oid as publication, p.pubname::text as name, p.oid::text || '.' || p.xmin::text as identity,
        p.puballtables as all_tables,
        case when exists (select from pg_attribute g where g.attrelid = c.oid and g.attgenerated = 's')
            then to_jsonb(p) ->> 'pubgencols' end as generated, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate
    from pg_publication_tables t
    join pg_publication p on p.pubname = t.pubname
    join pg_namespace n on n.nspname = t.schemaname
    join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
    where t.pubname = any(%(publications)s) and n.nspname <> %(own)s
), ancestry (oid, ancestor, chain) as (
    select distinct p.oid, p.oid, '' from published p
    union all
    select a.oid, i.inhparent, a.chain || ' under ' || i.inhparent || '.' || i.xmin::text
    from ancestry a
    join pg_class c on c.oid = a.ancestor and c.relispartition
    join pg_inherits i on i.inhrelid = a.ancestor
)
"""
_SENT = "p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate"
_ALL_TABLES = (
    f"select p.oid, p.name, p.identity || ' all tables', null, p.generated, {_SENT} from published p where all_tables"
)
_FROM_TABLES = """
from published p join ancestry a on a.oid = p.oid
join pg_publication_rel r on r.prpubid = p.publication and r.prrelid = a.ancestor
"""
_BY_TABLE = f"select p.oid, p.name, p.identity || ' table ' || r.oid || a.chain, null, null, {_SENT} {_FROM_TABLES}"
_BY_TABLE_WITH_LISTS = f"""
select p.oid, p.name, p.identity || ' table ' || r.oid || a.chain, pg_get_expr(r.prqual, r.prrelid),
    case when r.prattrs is null then p.generated
        else array_to_string(array(select number from unnest(r.prattrs::int2[]) as number order by 1), ' ') end, {_SENT}
{_FROM_TABLES}
"""
_BY_SCHEMA = f"""
select p.oid, p.name, p.identity || ' schema ' || s.oid || coalesce('.' || d.xmin::text, '') || a.chain, null,
    p.generated, {_SENT}
from published p join ancestry a on a.oid = p.oid
join pg_class c on c.oid = a.ancestor
join pg_publication_namespace s on s.pnpubid = p.publication and s.pnnspid = c.relnamespace
left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
    and d.refclassid = 'pg_namespace'::regclass and d.refobjid = c.relnamespace
"""
