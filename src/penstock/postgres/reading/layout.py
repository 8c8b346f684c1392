"""What an import has to read: a table's definition as capture sees it, and the heaps that its rows lie in.

Whether the composite types in a table's columns are what they were: for readers that no command tells of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import psycopg

from penstock.changes.batch import Relation
from penstock.errors import SourceError, SourceUnavailable
from penstock.pgoutput.messages import RelationColumn, RelationMessage
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.describe import described


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


@dataclass(frozen=True)
class Leaf:
    """A heap that is read by its pages: the table itself, or a partition without partitions of its own."""

    oid: int
    schema: str
    table: str
    filenode: int  # changes when the table is rewritten or truncated
    pages: int
    bytes: int  # with TOAST


@dataclass(frozen=True)
class TableLayout:
    """``relation`` equals the one that capture makes of the table's changes.

    Not ``by_pages``: the heaps cannot be read one by one, and the table is read through its root by ranges of its key.
    """

    relation: Relation
    leaves: tuple[Leaf, ...]
    by_pages: bool
    row_filter: str | None  # an SQL expression: the publications hold no other rows
    rows_estimated: int | None  # None: never analysed
    bytes: int
    partitioned: bool = False
    leaves_out: bool = False  # it has partitions, foreign or unlogged ones, that are not in ``leaves``
    key_order: tuple[str, ...] = ()  # the key's columns in the order of their index
    all_published: bool = True  # inserts, updates and deletes alike
    types: str = ""  # a digest of the types that the user made and that columns are made of

    @property
    def by_snapshot(self) -> bool:
        """Read whole, in one transaction, whose snapshot tells which changes are in there already.

        Without a key, a row that came twice cannot be told. Without its updates and deletes, one that moved is not seen again.
        """
        return not self.relation.key or not self.all_published

    @cached_property
    def fingerprint(self) -> str:
        """As long as it is the same, chunks that were planned for the layout hold every row that was there then."""
        heaps = sorted((leaf.oid, leaf.filenode, leaf.schema, leaf.table) for leaf in self.leaves)
        parts = [
            self.relation.fingerprint, self.row_filter, self.partitioned, self.leaves_out, self.key_order, heaps,
            self.all_published, self.types,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableLayout:
        relation = Relation.from_json(data["relation"])
        leaves = tuple(Leaf(**leaf) for leaf in data["leaves"])
        return cls(**{**data, "relation": relation, "leaves": leaves, "key_order": tuple(data["key_order"])})


def table_layout(connection: Connection, oid: int, publications: Sequence[str]) -> TableLayout | None:
    """None for a table that was dropped, or that the publications do not hold as a table of its own."""
    try:
        return _layout(connection, oid, publications)
    except SourceError as error:
        # Postgres lists the tables of a publication first and opens each of them later: one may be gone by then.
        if isinstance(error.__cause__, psycopg.errors.InternalError_):
            raise SourceUnavailable(
                error.message, "A table was dropped at this moment; it is looked up again."
            ) from error
        raise


def _layout(connection: Connection, oid: int, publications: Sequence[str]) -> TableLayout | None:
    with translated_errors("Reading the definition of a table"):
        row = connection.execute(_TABLE, [oid]).fetchone()
        published = connection.execute(_PUBLISHED, [oid, oid, list(publications)]).fetchall()
    # A partition of a table that is published through its root has no changes of its own.
    if row is None or not published or any(holder != oid for holder, _ in published):
        return None
    schema, table, partitioned, identity, select = row
    views = [view for _, view in published]
    columns = _columns(connection, oid, views)
    message = RelationMessage(oid, schema, table, identity, tuple(column.sent for column in columns))
    types = catalog.resolve_types(connection, (column.sent.type_oid for column in columns))
    relation = described(connection, message, types, {})
    heaps = _heaps(connection, oid)
    taken = [heap for heap in heaps if heap.captured]
    return TableLayout(
        relation, tuple(heap.leaf for heap in taken), by_pages=_by_pages(taken, select),
        row_filter=_row_filter(views), rows_estimated=_rows(taken), bytes=sum(heap.leaf.bytes for heap in taken),
        partitioned=partitioned, leaves_out=len(taken) < len(heaps), key_order=_key_order(relation, columns),
        all_published=_all_published(connection, views), types=type_digests(connection, [oid]).get(oid, ""),
    )  # fmt: skip


@dataclass(frozen=True)
class _Column:
    sent: RelationColumn
    index_position: int | None


@dataclass(frozen=True)
class _Heap:
    leaf: Leaf
    captured: bool
    is_heap: bool
    readable: bool
    rows: float | None


def _columns(connection: Connection, oid: int, views: Sequence[dict[str, Any]]) -> list[_Column]:
    """Those that pgoutput sends, in its order. Publications with different lists of columns make it fail anyway."""
    named = [view["attnames"] for view in views if view.get("attnames") is not None]
    listed = {name for names in named for name in names} if len(named) == len(views) else None
    with translated_errors("Reading the columns of a table"):
        rows = connection.execute(_COLUMNS, [oid]).fetchall()
    return [
        _Column(RelationColumn(name, type_oid, modifier, in_identity), position)
        for name, type_oid, modifier, in_identity, position, may_be_sent in rows
        if may_be_sent and (listed is None or name in listed)
    ]


def _all_published(connection: Connection, views: Sequence[dict[str, Any]]) -> bool:
    with translated_errors("Reading what the publications publish"):
        row = connection.execute(
            "select bool_and(pubinsert and pubupdate and pubdelete) from pg_publication where pubname = any(%s)",
            [[view["pubname"] for view in views]],
        ).fetchone()
    return row is None or row[0] is not False


def _key_order(relation: Relation, columns: Sequence[_Column]) -> tuple[str, ...]:
    """Of a primary key with REPLICA IDENTITY FULL, the relation has it already."""
    positions = {column.sent.name: column.index_position for column in columns}
    return tuple(sorted(relation.key, key=lambda name: positions[name] or 0))


def _row_filter(views: Sequence[dict[str, Any]]) -> str | None:
    """A row goes out if any of the publications lets it through."""
    filters = [view.get("rowfilter") for view in views]
    if None in filters:
        return None
    return " OR ".join(f"({text})" for text in dict.fromkeys(filters))


def _heaps(connection: Connection, oid: int) -> list[_Heap]:
    with translated_errors("Reading the size of a table"):
        rows = connection.execute(_HEAPS, [oid, oid]).fetchall()
    return [_Heap(Leaf(*row[:6]), *row[6:]) for row in rows]


def _by_pages(heaps: Sequence[_Heap], select_root: bool) -> bool:
    """Rights on the heaps are asked for only where rights on the root would do instead: else the error is the same."""
    return all(heap.is_heap and (heap.readable or not select_root) for heap in heaps)


def _rows(heaps: Sequence[_Heap]) -> int | None:
    rows = [heap.rows for heap in heaps]
    known = [number for number in rows if number is not None]
    return round(sum(known)) if len(known) == len(rows) else None


# `select`: the role may read every column that there is, or at least some.
_TABLE = """
select n.nspname::text, c.relname::text, c.relkind = 'p', c.relreplident::text,
    has_schema_privilege(n.oid, 'usage') and has_any_column_privilege(c.oid, 'select') and not row_security_active(c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = %s and c.relkind in ('r', 'p') and c.relpersistence = 'p'
"""

# As JSON, since older versions of the view have fewer columns: no lists of columns and no row filters before 15.
_PUBLISHED = """
select c.oid, to_jsonb(p)
from (select %s::oid as oid union select relid from pg_partition_ancestors(%s)) as ancestor
join pg_class c on c.oid = ancestor.oid
join pg_namespace n on n.oid = c.relnamespace
join pg_publication_tables p on p.schemaname = n.nspname and p.tablename = c.relname
where p.pubname = any(%s)
order by p.pubname
"""

# The replica identity's index as Postgres chooses it (RelationGetIndexList): a primary key that is not deferrable. From
# 17 on that of a partitioned table counts even if it is not valid. Generated columns are never sent before 18; from
# then on the publications' lists of columns say which are.
_COLUMNS = """
select a.attname::text, a.atttypid, a.atttypmod, c.relreplident = 'f' or k.position is not null, k.position,
    a.attgenerated = '' or current_setting('server_version_num')::int >= 180000
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_index i on i.indrelid = c.oid and i.indimmediate and case c.relreplident
    when 'd' then i.indisprimary and (i.indisvalid
        or c.relkind = 'p' and current_setting('server_version_num')::int >= 170000)
    when 'i' then i.indisreplident and i.indisvalid
    else false
end
left join unnest(i.indkey::int2[]) with ordinality as k (attnum, position)
    on k.attnum = a.attnum and k.position <= i.indnkeyatts
where c.oid = %s
order by a.attnum
"""

# What is neither a table nor logged has no changes in the WAL, so it is left out. Sizes are 0 for what was just dropped.
_HEAPS = """
select c.oid, n.nspname::text, c.relname::text, coalesce(pg_relation_filenode(c.oid), 0),
    coalesce(size.heap / current_setting('block_size')::int, 0), coalesce(size.heap, 0) + coalesce(size.toast, 0),
    c.relkind = 'r' and c.relpersistence = 'p', coalesce(am.amname = 'heap', false),
    has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') and not row_security_active(c.oid),
    case
        when size.heap = 0 then 0
        when c.reltuples >= 0 and c.relpages > 0
            then c.reltuples * (size.heap / current_setting('block_size')::int) / c.relpages
    end
from (select %s::oid as oid union select relid from pg_partition_tree(%s)) as leaf
join pg_class c on c.oid = leaf.oid
join pg_namespace n on n.oid = c.relnamespace
left join pg_am am on am.oid = c.relam
cross join lateral (
    select pg_relation_size(c.oid) as heap, pg_relation_size(nullif(c.reltoastrelid, 0)) as toast
) as size
where c.relkind <> 'p'
order by c.oid
"""
