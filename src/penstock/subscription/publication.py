"""Penstock's own publications of a subscription, and the tables in them.

There are two, made together. ``<name>`` publishes everything. ``<name>_inserts`` publishes inserts and truncates only:
it takes the tables without a usable replica identity, because Postgres refuses every UPDATE and DELETE of such a table
as long as some publication publishes its updates. Both exist from the start, even while empty, because a walsender
fails on a publication that was made later than the WAL that it is decoding.
https://www.postgresql.org/docs/current/logical-replication-publication.html
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import psycopg
from psycopg import sql

from penstock.changes.batch import OWN_SCHEMA
from penstock.errors import SourceRefused
from penstock.lsn import LSN, ZERO
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.tables import Table, tables_matching
from penstock.postgres.transactions import gently
from penstock.settings.tables import Selection
from penstock.subscription import ownership
from penstock.subscription.membership import Membership, Memberships, memberships
from penstock.subscription.ownership import ForeignTable, foreign_tables
from penstock.subscription.publication_columns import ColumnList, columns_to_send, lists_in_force, wanted_lists

_STAMP = re.compile(r"penstock id=([0-9a-f]{8})( inserts)?")
_GENERATED_COLUMNS_SINCE = 180000


@dataclass(frozen=True)
class Reconciliation:
    """What an edit changed, by qualified name. ``moved``: from one of the two publications to the other. ``widened``: has
    columns published that were not, since they are new or no longer left out; ``narrowed``: the other way round.

    ``left_out``: by table and number, the columns that are not published, with the names that they are left out by.
    ``replaced``: how tables were and are published that the edit took out and put in at one moment, so that no change of what
    is published now was missed. ``refused``: tables that the edit left as they were, since the role may not publish them.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    left_out: Mapping[int, Mapping[int, str]] = field(default_factory=dict, compare=False)
    replaced: Mapping[int, tuple[Membership, Membership]] = field(default_factory=dict, compare=False)
    refused: tuple[ForeignTable, ...] = ()

    @property
    def late(self) -> list[str]:
        """What is captured from now on, and was there before."""
        return [*self.added, *(f"further columns of {name}" for name in self.widened)]


@dataclass(frozen=True)
class PublishedTable:
    publication: str
    oid: int
    schema: str
    table: str

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"


def nothing(entering: Sequence[Table]) -> None:
    return None


def publication_names(name: str) -> tuple[str, str]:
    return name, f"{name}_inserts"


def publication_id(connection: Connection, name: str) -> str | None:
    """The id that our publications are stamped with; None when there are none. Somebody else's are an error."""
    main, inserts = publication_names(name)
    with translated_errors(f"Looking for the publication {name}"):
        rows = connection.execute(
            "select pubname, obj_description(oid, 'pg_publication') from pg_publication where pubname = any(%s)",
            [[main, inserts]],
        ).fetchall()
    stamps = {found: _STAMP.fullmatch(comment or "") for found, comment in rows}
    for found, stamp in stamps.items():
        if stamp is None or bool(stamp[2]) != (found == inserts):
            raise SourceRefused(
                f'The source has a publication "{found}" that does not belong to the Penstock pipeline {name}; '
                "it was not touched.",
                "Give the pipeline another name, drop that publication, or set source.publication to use it as it is.",
            )
    stamp = stamps.get(main)
    return stamp[1] if stamp is not None else None


def create_publications(connection: Connection, name: str, stamp: str | None = None) -> str:
    """Those of the two publications that are missing, empty, stamped with this id or a fresh one, which is returned."""
    main, inserts = publication_names(name)
    stamp = stamp or secrets.token_hex(4)
    there = existing(connection, (main, inserts))
    columns = (
        ", publish_generated_columns = stored" if connection.info.server_version >= _GENERATED_COLUMNS_SINCE else ""
    )
    options = f"publish_via_partition_root = true{columns}"
    try:
        with translated_errors(f"Creating the publication {name}"), connection.transaction():
            for publication, publish, mark in ((main, "", ""), (inserts, "publish = 'insert, truncate', ", " inserts")):
                if publication in there:
                    continue
                connection.execute(
                    sql.SQL("create publication {} with (" + publish + options + ")").format(
                        sql.Identifier(publication)
                    )
                )
                connection.execute(
                    sql.SQL("comment on publication {} is {}").format(
                        sql.Identifier(publication), sql.Literal(f"penstock id={stamp}{mark}")
                    )
                )
    except SourceRefused as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise SourceRefused(error.message, f"As an administrator run: {create_grant(connection)}") from error
        raise
    return stamp


def existing(connection: Connection, names: Iterable[str]) -> set[str]:
    """Those of the names that publications have."""
    with translated_errors("Looking for the publications"):
        rows = connection.execute("select pubname from pg_publication where pubname = any(%s)", [list(names)])
        return {name for (name,) in rows}


def drop_publications(connection: Connection, name: str) -> list[str]:
    """Says what it dropped. The caller has made sure that they are ours."""
    with translated_errors(f"Dropping the publication {name}"):
        rows = connection.execute(
            "select pubname from pg_publication where pubname = any(%s) order by 1", [list(publication_names(name))]
        ).fetchall()
        with connection.transaction():
            for (publication,) in rows:
                connection.execute(sql.SQL("drop publication {}").format(sql.Identifier(publication)))
    return [f"publication {publication}" for (publication,) in rows]


def owned_publications(connection: Connection, name: str) -> tuple[list[str], str]:
    """Those of the pipeline that exist, and who owns them."""
    with translated_errors(f"Looking for the publication {name}"):
        rows = connection.execute(
            "select pubname::text, pg_get_userbyid(pubowner)::text from pg_publication where pubname = any(%s) order by 1",
            [list(publication_names(name))],
        ).fetchall()
    return [publication for publication, _ in rows], rows[0][1] if rows else ""


def reconcile(
    connection: Connection, name: str, selection: Selection, before_adding: Callable[[Sequence[Table]], None] = nothing,
    read: Mapping[str, LSN] | None = None, strict: bool = False,
) -> Reconciliation:  # fmt: skip
    """Makes the publications hold just the tables that match, each in the one that its replica identity calls for, and with
    the columns that are wanted.

    ``before_adding`` hears of tables that are about to enter, before anybody else can see them in there. ``read``: by
    publication, from where on the slot is read with it, if not from the beginning. ``strict``: a table that the role may not
    publish is an error; otherwise all others are put in, and the result has it as refused.
    """
    since = dict.fromkeys(publication_names(name), ZERO) | dict(read or {})
    try:
        return gently(
            connection,
            f"Editing the publication {name}",
            lambda: _reconcile(connection, name, selection, before_adding, since, strict),
        )
    except SourceRefused as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            foreign = foreign_tables(connection, [table.oid for table in tables_matching(connection, selection)])
            raise SourceRefused(error.message, ownership.remedy(foreign) if foreign else None) from error
        raise


def refused_tables(connection: Connection, name: str, selection: Selection) -> list[ForeignTable]:
    """The tables that are not published as selected, and that the role may not publish."""
    with translated_errors("Comparing the publication with the tables"):
        return foreign_tables(connection, [table.oid for table in _plan(connection, name, selection).entering])


def published(connection: Connection, publications: Iterable[str]) -> list[PublishedTable]:
    """The tables that the publications name one by one, without Penstock's own."""
    with translated_errors("Reading the tables of the publications"):
        rows = connection.execute(
            "select p.pubname, c.oid, n.nspname, c.relname from pg_publication p "
            "join pg_publication_rel r on r.prpubid = p.oid join pg_class c on c.oid = r.prrelid "
            "join pg_namespace n on n.oid = c.relnamespace where p.pubname = any(%s) and n.nspname <> %s "
            "order by n.nspname, c.relname",
            [list(publications), OWN_SCHEMA],
        ).fetchall()
    return [PublishedTable(*row) for row in rows]


def published_tables(connection: Connection, publications: Sequence[str]) -> list[PublishedTable]:
    """All tables of the publications, however they name them, without Penstock's own; each once."""
    with translated_errors("Reading the tables of the publications"):
        rows = connection.execute(
            "select min(t.pubname), c.oid, n.nspname, c.relname from pg_publication_tables t "
            "join pg_namespace n on n.nspname = t.schemaname "
            "join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename "
            "where t.pubname = any(%s) and n.nspname <> %s group by c.oid, n.nspname, c.relname order by 3, 4",
            [list(publications), OWN_SCHEMA],
        ).fetchall()
    return [PublishedTable(*row) for row in rows]


def create_grant(connection: Connection) -> str:
    role, database = connection.execute("select current_user, current_database()").fetchone() or ("", "")
    return (
        sql.SQL("GRANT CREATE ON DATABASE {} TO {};")
        .format(sql.Identifier(database), sql.Identifier(role))
        .as_string(connection)
    )


@dataclass(frozen=True)
class _Plan:
    """How the tables of the publications differ from the selected ones. ``settled``: are as they should be."""

    wanted: Mapping[int, Table]
    lists: Mapping[int, ColumnList]
    home: Mapping[int, str]  # by table, the publication that it belongs into
    held: Sequence[PublishedTable]
    in_force: Mapping[int, frozenset[int]]
    at_home: frozenset[int]
    settled: frozenset[int]

    @property
    def entering(self) -> list[Table]:
        return [table for oid, table in self.wanted.items() if oid not in self.settled]

    @property
    def leaving(self) -> list[PublishedTable]:
        return [entry for entry in self.held if entry.oid not in self.settled]

    def without(self, tables: Iterable[ForeignTable]) -> _Plan:
        """These stay as they are."""
        return replace(self, settled=self.settled | {table.oid for table in tables})


def _plan(connection: Connection, name: str, selection: Selection) -> _Plan:
    main, inserts = publication_names(name)
    wanted = {table.oid: table for table in tables_matching(connection, selection)}
    lists = wanted_lists(connection, wanted.values(), selection)
    home = {oid: main if _may_have_updates(table, lists) else inserts for oid, table in wanted.items()}
    held = published(connection, (main, inserts))
    in_force = lists_in_force(connection, (main, inserts))
    at_home = {entry.oid for entry in held if home.get(entry.oid) == entry.publication}
    settled = {oid for oid in at_home if _numbers(lists.get(oid)) == in_force.get(oid)}
    return _Plan(wanted, lists, home, held, in_force, frozenset(at_home), frozenset(settled))


def _reconcile(
    connection: Connection, name: str, selection: Selection, before_adding: Callable[[Sequence[Table]], None],
    read: Mapping[str, LSN], strict: bool,
) -> Reconciliation:  # fmt: skip
    main, inserts = publication_names(name)
    plan = _plan(connection, name, selection)
    refused = [] if strict else foreign_tables(connection, [table.oid for table in plan.entering])
    plan = plan.without(refused)
    wanted, lists, home, at_home = plan.wanted, plan.lists, plan.home, plan.at_home
    leaving, entering = plan.leaving, plan.entering
    known = {entry.oid for entry in plan.held}
    widened = _widened(
        connection, [table.oid for table in entering if table.oid in plan.in_force], lists, plan.in_force
    )
    # Updates and deletes of a table that had no replica identity until just now were not published; nor was what columns held
    # that were not in the list.
    gained = {table.oid for table in entering if table.oid not in at_home and home[table.oid] == main} | widened
    before_adding([table for table in entering if table.oid not in known or table.oid in gained])
    kept = [table for table in entering if table.oid in known and table.oid not in gained]
    before = _locked_memberships(connection, kept, read)
    for publication in (main, inserts):
        _alter(
            connection, publication, "drop", [_only(e.schema, e.table) for e in leaving if e.publication == publication]
        )
        _alter(connection, publication, "add", [_listed(t, lists) for t in entering if home[t.oid] == publication])
    _publish_schema_log(connection, main)
    relisted = [table for table in entering if table.oid in at_home]
    now = memberships(connection, read) if before else {}
    return Reconciliation(
        added=tuple(table.qualified_name for table in entering if table.oid not in known),
        removed=tuple(entry.qualified_name for entry in leaving if entry.oid not in wanted),
        moved=tuple(table.qualified_name for table in entering if table.oid in known and table.oid not in at_home),
        narrowed=tuple(table.qualified_name for table in relisted if table.oid not in widened),
        widened=tuple(table.qualified_name for table in relisted if table.oid in widened),
        left_out={oid: found.left_out for oid, found in lists.items()},
        replaced={oid: (former, now[oid]) for oid, former in before.items() if oid in now},
        refused=tuple(refused),
    )


def _locked_memberships(
    connection: Connection, tables: Sequence[Table], publications: Mapping[str, LSN]
) -> Memberships:
    """As they are until the end of this transaction: with the lock that ALTER PUBLICATION takes, nobody else edits them."""
    if not tables:
        return {}
    names = sql.SQL(", ").join(_only(table.schema, table.table) for table in tables)
    connection.execute(sql.SQL("lock table {} in share update exclusive mode").format(names))
    found = memberships(connection, publications)
    return {table.oid: found[table.oid] for table in tables if table.oid in found}


def _may_have_updates(table: Table, lists: Mapping[int, ColumnList]) -> bool:
    return table.has_usable_identity and (table.oid not in lists or lists[table.oid].covers_identity)


def _numbers(columns: ColumnList | None) -> frozenset[int] | None:
    return None if columns is None else frozenset(columns.columns)


def _widened(
    connection: Connection, oids: Sequence[int], lists: Mapping[int, ColumnList], in_force: Mapping[int, frozenset[int]]
) -> set[int]:
    """Those of which columns will be published that are not now."""
    whole = columns_to_send(connection, [oid for oid in oids if oid not in lists])
    return {
        oid for oid in oids if not in_force[oid].issuperset(_numbers(lists.get(oid)) or whole.get(oid, frozenset()))
    }


_SCHEMA_LOG = """
select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = 'schema_log' and pg_has_role(c.relowner, 'usage')
    and exists (select from pg_event_trigger where evtname = 'penstock_ddl')
    and not exists (
        select from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
        where r.prrelid = c.oid and p.pubname = %s
    )
"""


def _publish_schema_log(connection: Connection, publication: str) -> None:
    """Where there is one: schema changes come with the changes of tables, in order."""
    if connection.execute(_SCHEMA_LOG, [OWN_SCHEMA, publication]).fetchone() is not None:
        _alter(connection, publication, "add", [_only(OWN_SCHEMA, "schema_log")])


def _alter(connection: Connection, publication: str, verb: str, tables: list[sql.Composed]) -> None:
    if tables:
        connection.execute(
            sql.SQL("alter publication {} " + verb + " table {}").format(
                sql.Identifier(publication), sql.SQL(", ").join(tables)
            )
        )


def _only(schema: str, table: str) -> sql.Composed:
    """ONLY: a table's heirs by old-style inheritance come in by the patterns, like all others."""
    return sql.SQL("only {}").format(sql.Identifier(schema, table))


def _listed(table: Table, lists: Mapping[int, ColumnList]) -> sql.Composed:
    name = _only(table.schema, table.table)
    if table.oid not in lists:
        return name
    columns = sql.SQL(", ").join(map(sql.Identifier, lists[table.oid].columns.values()))
    return sql.SQL("{} ({})").format(name, columns)
