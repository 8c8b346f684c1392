"""Which tables of the source can be captured, which cannot and why."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from penstock.changes.batch import OWN_SCHEMA
from penstock.errors import ConfigError
from penstock.postgres.connection import Connection, translated_errors
from penstock.settings.tables import Selection


@dataclass(frozen=True)
class Table:
    """A table that a publication can hold: an ordinary one, or the root of a partitioned one.

    ``identity`` is pg_class.relreplident. Without a usable identity Postgres *refuses* updates and deletes of a table
    whose updates and deletes are published, so only its inserts may be.
    """

    oid: int
    schema: str
    table: str
    kind: str  # "table" or "partitioned table"
    identity: str
    identity_columns: tuple[str, ...]  # of the primary key or the chosen index; every column with FULL
    has_primary_key: bool  # one that is not deferrable
    has_usable_identity: bool

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def has_key(self) -> bool:
        """Whether its rows can be told apart: whether ``penstock.changes.batch.Relation`` has a key."""
        return self.has_primary_key if self.identity == "f" else bool(self.identity_columns)


@dataclass(frozen=True)
class LeftOut:
    """A relation that the patterns ask for and that cannot be captured."""

    schema: str
    table: str
    reason: str

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class Survey:
    tables: tuple[Table, ...]
    left_out: tuple[LeftOut, ...]


def tables_matching(connection: Connection, selection: Selection) -> list[Table]:
    return list(survey(connection, selection).tables)


def survey(connection: Connection, selection: Selection) -> Survey:
    """Everything that is selected, parted into what can be captured and what cannot."""
    relations = _relations(connection)
    taken = {r.oid: r for r in relations if r.can_be_published and r.selected_by(selection)}
    left_out = [
        LeftOut(r.schema, r.table, reason)
        for r in relations
        if (reason := r.reason_to_leave_out(r.selected_by(selection), taken.keys())) is not None
    ]
    # Sessions may have temporary tables of the same name.
    return Survey(tuple(r.as_table() for r in taken.values()), tuple(dict.fromkeys(left_out)))


def named_tables(connection: Connection, names: Sequence[str]) -> list[Table]:
    """The tables that people mean by these names; ConfigError for one that is not there or cannot be captured.

    ``orders`` is public.orders. Names are as Postgres has them, without quotes, so ``public.Two.Dots`` may be the table
    "Two.Dots"; where a name can be parted in two ways, the shortest schema wins.
    """
    known = {(r.schema, r.table): r for r in _relations(connection)}
    return [_named(name, known).as_table() for name in dict.fromkeys(names)]


def _relations(connection: Connection) -> list[_Relation]:
    with translated_errors("Reading the tables of the source"):
        return [_Relation(*row) for row in connection.execute(_RELATIONS, [OWN_SCHEMA])]


def _named(name: str, known: dict[tuple[str, str], _Relation]) -> _Relation:
    found = next((known[place] for place in _places(name) if place in known), None)
    if found is None:
        shown = name if "." in name else f"public.{name}"
        # By the table's name alone: the schema's would make them all look alike.
        publishable = {table.lower(): f"{schema}.{table}" for (schema, table), r in known.items() if r.can_be_published}
        near = difflib.get_close_matches(shown.rpartition(".")[2].lower(), publishable, n=1)
        hint = "Write it as Postgres has it: schema.table, without quotes; capitals count."
        advice = f'Did you mean "{publishable[near[0]]}"?' if near else hint
        raise ConfigError(f'The source has no table "{shown}".', advice)
    if not found.can_be_published:
        raise ConfigError(f"{found.schema}.{found.table} cannot be captured. It is {found.obstacle}.")
    return found


def _places(name: str) -> Iterator[tuple[str, str]]:
    """Every schema and table that the name may mean, the likeliest first."""
    for dot, character in enumerate(name):
        if character == ".":
            yield name[:dot], name[dot + 1 :]
    yield "public", name


@dataclass(frozen=True)
class _Relation:
    oid: int
    schema: str
    table: str
    relkind: str
    persistence: str
    root: int | None
    root_name: str | None
    identity: str
    identity_columns: list[str]
    has_primary_key: bool
    has_usable_identity: bool

    @property
    def can_be_published(self) -> bool:
        return self.relkind in "rp" and self.persistence == "p" and self.root is None

    def selected_by(self, selection: Selection) -> bool:
        """A temporary table is in no schema that people write; without one, public is meant."""
        return selection.selects("public" if self.persistence == "t" else self.schema, self.table)

    @property
    def obstacle(self) -> str:
        """Why it cannot be published."""
        if self.persistence != "p":
            return _NOT_IN_THE_WAL[self.persistence]
        if self.root is not None:
            return f"a partition of {self.root_name}: include that table instead"
        return _UNPUBLISHABLE[self.relkind]

    def reason_to_leave_out(self, selected: bool, taken: Collection[int]) -> str | None:
        """None for a relation that is captured, or that nobody asked for."""
        if self.root is not None and self.persistence != "t":
            return self._reason_for_partition(selected, self.root in taken)
        return self.obstacle if selected and not self.can_be_published else None

    def _reason_for_partition(self, selected: bool, captured_through_root: bool) -> str | None:
        if captured_through_root and self.persistence == "u":
            return f"an unlogged partition of {self.root_name}: its changes are not in the WAL"
        if captured_through_root and self.relkind == "f":
            return f"a foreign partition of {self.root_name}: its changes happen on another server"
        return self.obstacle if selected and not captured_through_root else None

    def as_table(self) -> Table:
        return Table(
            self.oid, self.schema, self.table, "partitioned table" if self.relkind == "p" else "table",
            self.identity, tuple(self.identity_columns), self.has_primary_key, self.has_usable_identity,
        )  # fmt: skip


_NOT_IN_THE_WAL = {
    "u": "unlogged: its changes are not in the WAL",
    "t": "temporary: its changes are not in the WAL",
}
_UNPUBLISHABLE = {
    "v": "a view: include the tables that it reads",
    "m": "a materialized view: include the tables that it reads",
    "f": "a foreign table: its changes happen on another server",
}

# The replica identity is an index that is valid and not deferrable, or the whole row. Up to Postgres 17 generated
# columns are never sent, so a key that has one would arrive incomplete. From 18 on stored ones are sent (we ask for
# them), and virtual ones make Postgres refuse updates of a table whose whole row is its identity. A partitioned table's
# updates are checked against the identity of the partition that they hit, so all of them must have one.
_RELATIONS = """
with relation as (
    select c.oid, case c.relpersistence when 't' then 'pg_temp' else n.nspname::text end as schema,
        c.relname::text as name, c.relkind::text as kind, c.relpersistence::text as persistence,
        c.relreplident::text as identity,
        case when c.relispartition then coalesce(pg_partition_root(c.oid)::oid, 0) end as root,
        exists (select from pg_index p where p.indrelid = c.oid and p.indisprimary and p.indimmediate) as has_primary_key,
        i.indexrelid is not null as has_index, columns.names, columns.any_generated, columns.any_virtual
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_index i on i.indrelid = c.oid and i.indisvalid and i.indimmediate
        and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end
    cross join lateral (
        select coalesce(array_agg(a.attname::text order by coalesce(k.position, a.attnum)), '{}') as names,
            coalesce(bool_or(a.attgenerated <> ''), false) as any_generated,
            coalesce(bool_or(a.attgenerated = 'v'), false) as any_virtual
        from pg_attribute a
        left join unnest(i.indkey::int2[]) with ordinality as k (attnum, position)
            on k.attnum = a.attnum and k.position <= i.indnkeyatts
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and (k.attnum is not null or c.relreplident = 'f')
    ) as columns
    where c.relkind in ('r', 'p', 'v', 'm', 'f') and (
        c.relpersistence = 't'
        or n.nspname <> 'information_schema' and n.nspname !~ '^pg_' and n.nspname <> %s
    )
), judged as (
    select *, case identity
        when 'f' then not any_virtual
        else has_index and (not any_generated or current_setting('server_version_num')::int >= 180000)
    end as usable
    from relation
), partitions as (
    select root, bool_and(usable) as usable from judged where root is not null and kind = 'r' group by root
)
select t.oid, t.schema, t.name, t.kind, t.persistence, t.root, root.schema || '.' || root.name, t.identity, t.names,
    t.has_primary_key, t.usable and coalesce(partitions.usable, true)
from judged as t
left join judged as root on root.oid = t.root
left join partitions on partitions.root = t.oid
order by t.schema, t.name
"""
