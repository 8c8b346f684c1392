"""The exact definition of tables, as the source's catalog has it.

What Postgres can print, it prints: expressions, checks and the columns of an index are its own text, in which the
connection's empty search_path (``penstock.postgres.connection.connect``) makes it qualify every name. What may be called
otherwise in a target (the table, its indexes, the tables that it refers to) is kept apart from that text.

Left out: triggers, rules, policies, rights, owners, tablespaces, extended statistics, storage and compression of columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, cast

from penstock.errors import SourceUnavailable
from penstock.postgres.connection import Connection, translated_errors
from penstock.schema.sequence_definition import SequenceParameters


@dataclass(frozen=True)
class Identity:
    """GENERATED ALWAYS (a) or BY DEFAULT (d) AS IDENTITY. The sequence is in the table's schema."""

    kind: Literal["a", "d"]
    sequence: str
    parameters: SequenceParameters


@dataclass(frozen=True)
class ColumnDefinition:
    name: str
    type: str  # format_type: numeric(10,2), public.mood[]
    not_null: bool  # and known to be so: not a constraint that is NOT VALID
    not_null_name: str | None  # of the constraint; None before Postgres 18
    default: str | None
    generated: str | None  # the expression
    is_virtual: bool  # of a generated column: computed when read (Postgres 18), not stored
    identity: Identity | None
    collation: str | None  # where it is not the type's
    comment: str | None


@dataclass(frozen=True)
class KeyConstraint:
    """A constraint that has an index: a primary key (p), unique (u), exclusion (x)."""

    name: str
    kind: Literal["p", "u", "x"]
    columns: tuple[str, ...]  # an exclusion's expressions are not among them
    definition: str  # PRIMARY KEY (a, b) INCLUDE (c) WITH (fillfactor='70') DEFERRABLE
    deferrable: bool


@dataclass(frozen=True)
class CheckConstraint:
    """``since``: the oldest server version that has such a constraint, where not all have."""

    name: str
    definition: str  # CHECK ((price > 0)) NOT VALID
    since: int = 0


@dataclass(frozen=True)
class ForeignKey:
    """``update``, ``delete`` and ``match``: the letters of pg_constraint."""

    name: str
    columns: tuple[str, ...]
    referenced_oid: int
    referenced_schema: str
    referenced_table: str
    referenced_columns: tuple[str, ...]
    match: str
    update: str
    delete: str
    delete_columns: tuple[str, ...]  # of ON DELETE SET NULL (…); all if empty
    deferrable: bool
    deferred: bool
    is_valid: bool
    is_enforced: bool
    with_period: bool  # the last column is a PERIOD (Postgres 18)


@dataclass(frozen=True)
class Index:
    """One that is no constraint's."""

    name: str
    is_unique: bool
    definition: str  # what comes after the table's name: USING btree (lower(name) DESC) WHERE (age > 3)


@dataclass(frozen=True)
class TableDefinition:
    """``kind`` is r(elation) or p(artitioned); ``replica_identity`` d(efault) n(othing) f(ull) or i(ndex)."""

    oid: int
    schema: str
    table: str
    kind: Literal["r", "p"]
    columns: tuple[ColumnDefinition, ...]
    primary_key: KeyConstraint | None
    uniques: tuple[KeyConstraint, ...]  # exclusion constraints, too
    checks: tuple[CheckConstraint, ...]
    foreign_keys: tuple[ForeignKey, ...]
    indexes: tuple[Index, ...]
    replica_identity: Literal["d", "n", "f", "i"]
    replica_identity_index: str | None
    options: str | None  # fillfactor='70', autovacuum_enabled='false'
    comment: str | None

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"


def read_definitions(connection: Connection, oids: Iterable[int]) -> dict[int, TableDefinition]:
    """By oid. A table that is gone is absent."""
    wanted = [list(oids)]
    with translated_errors("Reading the definitions of tables"):
        tables = connection.execute(_TABLES, wanted).fetchall()
        columns = _by_table(connection, _COLUMNS, wanted)
        constraints = _by_table(connection, _CONSTRAINTS, wanted)
        foreign_keys = _by_table(connection, _FOREIGN_KEYS, wanted)
        indexes = _by_table(connection, _INDEXES, wanted)
    return {
        table[0]: _table(
            table,
            tuple(_column(*row) for row in columns.get(table[0], ())),
            [_constraint(*row) for row in constraints.get(table[0], ())],
            tuple(_foreign_key(*row) for row in foreign_keys.get(table[0], ())),
            tuple(_index(*row) for row in indexes.get(table[0], ())),
        )
        for table in tables
    }


def _by_table(connection: Connection, query: str, parameters: list[list[int]]) -> dict[int, list[tuple[Any, ...]]]:
    """The query's first column is the table, and its rows are ordered by it."""
    rows = connection.execute(query, parameters)
    return {oid: [row[1:] for row in some] for oid, some in groupby(rows, key=lambda row: cast(int, row[0]))}


def _table(
    row: tuple[Any, ...], columns: tuple[ColumnDefinition, ...], constraints: list[KeyConstraint | CheckConstraint],
    foreign_keys: tuple[ForeignKey, ...], indexes: tuple[Index, ...],
) -> TableDefinition:  # fmt: skip
    oid, schema, table, kind, replica_identity, replica_identity_index, options, comment = row
    keys = [constraint for constraint in constraints if isinstance(constraint, KeyConstraint)]
    return TableDefinition(
        oid, schema, table, kind, columns,
        primary_key=next((key for key in keys if key.kind == "p"), None),
        uniques=tuple(key for key in keys if key.kind != "p"),
        checks=tuple(constraint for constraint in constraints if isinstance(constraint, CheckConstraint)),
        foreign_keys=foreign_keys, indexes=indexes, replica_identity=replica_identity,
        replica_identity_index=replica_identity_index, options=options, comment=comment,
    )  # fmt: skip


def _column(
    name: str, type_name: str, not_null: bool, not_null_name: str | None, expression: str | None, generated: str,
    collation: str | None, comment: str | None, identity: Literal["", "a", "d"], *sequence: Any,
) -> ColumnDefinition:  # fmt: skip
    return ColumnDefinition(
        name, type_name, not_null, not_null_name,
        default=expression if not generated else None,
        generated=expression if generated else None,
        is_virtual=generated == "v",
        identity=Identity(identity, sequence[0], SequenceParameters(*sequence[1:])) if identity else None,
        collation=collation, comment=comment,
    )  # fmt: skip


def _constraint(
    name: str,
    kind: str,
    definition: str | None,
    deferrable: bool,
    deferred: bool,
    columns: list[str],
    options: str | None,
) -> KeyConstraint | CheckConstraint:
    if definition is None:
        raise SourceUnavailable(f"The constraint {name} of the source was altered while its definition was read.")
    if kind == "c":
        return CheckConstraint(name, definition)
    if kind == "n":
        return CheckConstraint(name, definition, since=180000)
    if options is not None and kind != "x":  # Postgres prints those of an exclusion only
        deferral = f"{' DEFERRABLE' if deferrable else ''}{' INITIALLY DEFERRED' if deferred else ''}"
        definition = f"{definition.removesuffix(deferral)} WITH ({options}){deferral}"
    return KeyConstraint(name, cast(Literal["p", "u", "x"], kind), tuple(columns), definition, deferrable)


def _foreign_key(name: str, columns: list[str], *rest: Any) -> ForeignKey:
    oid, schema, table, referenced, match, update, delete, delete_columns, *flags = rest
    return ForeignKey(
        name,
        tuple(columns),
        oid,
        schema,
        table,
        tuple(referenced),
        match,
        update,
        delete,
        tuple(delete_columns),
        *flags,
    )


def _index(name: str, is_unique: bool, heads: list[str], definition: str | None) -> Index:
    """Postgres prints the whole statement; ``heads`` is how it may begin, up to the table.

    It prints what is there now, which is not always what was there when the query began.
    """
    for head in heads:
        if definition is not None and definition.startswith(head):
            return Index(name, is_unique, definition[len(head) :])
    raise SourceUnavailable(f"The index {name} of the source was altered while its definition was read.")


def _options(of: str) -> str:
    """reloptions as one writes them in WITH (…)."""
    return (
        "(select string_agg(format('%%I=%%L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ') "
        f"from unnest({of}.reloptions) as o)"
    )


def _names(relation: str, numbers: str) -> str:
    """The columns with these numbers, in their order; 0 is an expression."""
    return (
        f"array(select a.attname::text from unnest({numbers}) with ordinality as k (attnum, position) "
        f"join pg_attribute a on a.attrelid = {relation} and a.attnum = k.attnum order by k.position)"
    )


_TABLES = f"""
select c.oid, n.nspname::text, c.relname::text, c.relkind::text, c.relreplident::text,
    (select ic.relname::text from pg_index i join pg_class ic on ic.oid = i.indexrelid
        where i.indrelid = c.oid and i.indisreplident and c.relreplident = 'i'),
    {_options("c")}, obj_description(c.oid, 'pg_class')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%s) and c.relkind in ('r', 'p') order by n.nspname, c.relname
"""

_COLUMNS = """
select a.attrelid, a.attname::text, format_type(a.atttypid, a.atttypmod),
    a.attnotnull and coalesce(nn.convalidated, true), nn.conname::text, pg_get_expr(d.adbin, d.adrelid),
    a.attgenerated::text, case when a.attcollation <> t.typcollation then a.attcollation::regcollation::text end,
    col_description(a.attrelid, a.attnum), a.attidentity::text, sc.relname::text,
    format_type(s.seqtypid, null), s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle
from pg_attribute a
join pg_type t on t.oid = a.atttypid
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join pg_constraint nn on nn.conrelid = a.attrelid and nn.contype = 'n' and nn.conkey = array[a.attnum]
left join pg_depend own on a.attidentity <> '' and own.classid = 'pg_class'::regclass and own.objsubid = 0
    and own.refclassid = 'pg_class'::regclass and own.refobjid = a.attrelid and own.refobjsubid = a.attnum
    and own.deptype = 'i'
left join pg_class sc on sc.oid = own.objid
left join pg_sequence s on s.seqrelid = own.objid
where a.attrelid = any(%s) and a.attnum > 0 and not a.attisdropped order by a.attrelid, a.attnum
"""

# Not those of indexes that are invalid: half built, or of a partitioned table whose partitions lack them.
_CONSTRAINTS = f"""
select con.conrelid, con.conname::text, con.contype::text, pg_get_constraintdef(con.oid), con.condeferrable,
    con.condeferred, {_names("con.conrelid", "con.conkey")}, {_options("ic")}
from pg_constraint con
left join pg_index i on i.indexrelid = con.conindid
left join pg_class ic on ic.oid = con.conindid
where con.conrelid = any(%s)
    and (con.contype in ('p', 'u', 'x') and i.indisvalid or con.contype = 'c' or con.contype = 'n' and not con.convalidated)
order by con.conrelid, con.conname
"""

# One that refers to a partitioned table has a copy for each of its partitions. Columns that not every version has are
# asked for by way of json.
_FOREIGN_KEYS = f"""
select con.conrelid, con.conname::text, {_names("con.conrelid", "con.conkey")}, con.confrelid, n.nspname::text,
    c.relname::text, {_names("con.confrelid", "con.confkey")}, con.confmatchtype::text, con.confupdtype::text,
    con.confdeltype::text, array(
        select a.attname::text from jsonb_array_elements_text(nullif(newer.conf -> 'confdelsetcols', 'null'))
            with ordinality as k (attnum, position)
        join pg_attribute a on a.attrelid = con.conrelid and a.attnum = k.attnum::int order by k.position
    ), con.condeferrable, con.condeferred, con.convalidated,
    coalesce((newer.conf ->> 'conenforced')::bool, true), coalesce((newer.conf ->> 'conperiod')::bool, false)
from pg_constraint con
cross join lateral (select to_jsonb(con)) as newer (conf)
join pg_class c on c.oid = con.confrelid
join pg_namespace n on n.oid = c.relnamespace
left join pg_constraint parent on parent.oid = con.conparentid and parent.conrelid = con.conrelid
where con.conrelid = any(%s) and con.contype = 'f' and parent.oid is null
order by con.conrelid, con.conname
"""

_INDEXES = """
select i.indrelid, ic.relname::text, i.indisunique, array(
        select format('CREATE %%sINDEX %%I ON %%s%%s ', case when i.indisunique then 'UNIQUE ' else '' end, ic.relname,
            word, i.indrelid::regclass)
        from unnest(array['', 'ONLY ']) as word
    ), pg_get_indexdef(i.indexrelid)
from pg_index i
join pg_class ic on ic.oid = i.indexrelid
where i.indrelid = any(%s) and i.indisvalid
    and not exists (select from pg_constraint con where con.conindid = i.indexrelid and con.contype in ('p', 'u', 'x'))
order by i.indrelid, ic.relname
"""
