from __future__ import annotations

import psycopg
import pytest

from penstock.errors import ConfigError
from penstock.postgres.connection import Connection, connect
from penstock.postgres.tables import Survey, Table, named_tables, survey, tables_matching
from penstock.settings.tables import TableSelection

ODD_NAMES = [
    "Capital", "with space", "dot.ted", 'quo"te', "apos'trophe", "select", "🐘", "drop table; --", "100%",
    "back\\slash",
]  # fmt: skip
EVERYTHING = TableSelection(include=("*.*",))

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def the_table(connection: Connection, name: str) -> Table:
    (table,) = tables_matching(connection, TableSelection(include=(f"public.{name}",)))
    return table


def test_odd_names_are_matched_by_their_exact_text(connection: Connection) -> None:
    for name in ODD_NAMES:
        connection.execute(
            psycopg.sql.SQL("create table public.{} (id int primary key)").format(psycopg.sql.Identifier(name))
        )
    assert sorted(t.table for t in tables_matching(connection, TableSelection())) == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        assert the_table(connection, name).qualified_name == f"public.{name}"
    assert tables_matching(connection, TableSelection(include=("public.capital",))) == []


def test_include_and_exclude_with_wildcards_over_schemas(connection: Connection) -> None:
    connection.execute(
        "create schema sales; create table sales.orders (id int); create table sales.audit_orders (id int);"
        "create table public.orders (id int); create table public.lines (id int)"
    )
    selection = TableSelection(include=("*.orders", "sales.*", "lines"), exclude=("sales.audit_*",))
    assert [t.qualified_name for t in tables_matching(connection, selection)] == [
        "public.lines", "public.orders", "sales.orders",
    ]  # fmt: skip


@both_versions
def test_only_what_the_wal_carries_is_taken_and_the_rest_is_explained(connection: Connection) -> None:
    connection.execute(
        "create table public.plain (id int); create unlogged table public.fast (id int);"
        "create temp table gone (id int);"
        "create view public.looked as select 1 as id; create materialized view public.kept as select 1 as id;"
        "create foreign data wrapper nowhere; create server far foreign data wrapper nowhere;"
        "create foreign table public.away (id int) server far;"
        "create schema penstock; create table penstock.jobs (id int)"
    )
    found = survey(connection, EVERYTHING)
    assert [t.qualified_name for t in found.tables] == ["public.plain"]
    assert {left.qualified_name: left.reason.split(":")[0] for left in found.left_out} == {
        "public.fast": "unlogged", "public.looked": "a view", "public.kept": "a materialized view",
        "public.away": "a foreign table", "pg_temp.gone": "temporary",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("create view public.t as select 1 as id", "a view: include the tables that it reads"),
        ("create materialized view public.t as select 1 as id",
         "a materialized view: include the tables that it reads"),
        ("create foreign data wrapper nowhere; create server far foreign data wrapper nowhere;"
         "create foreign table public.t (id int) server far",
         "a foreign table: its changes happen on another server"),
        ("create unlogged table public.t (id int primary key)", "unlogged: its changes are not in the WAL"),
        ("create temp table t (id int primary key)", "temporary: its changes are not in the WAL"),
        ("create schema away; create table away.root (id int primary key) partition by list (id);"
         "create table public.t partition of away.root for values in (1)",
         "a partition of away.root: include that table instead"),
    ],
)  # fmt: skip
def test_under_public_each_kind_that_cannot_be_taken_is_listed(
    connection: Connection, definition: str, reason: str
) -> None:
    connection.execute(definition.encode())
    found = survey(connection, TableSelection(include=("public.*",)))
    assert found.tables == ()
    assert [(left.table, left.reason) for left in found.left_out] == [("t", reason)]


def test_temporary_tables_are_seen_in_all_sessions_and_told_once(database: str, connection: Connection) -> None:
    with connect(database) as other:
        for session in (connection, other):
            session.execute(
                "create temp table basket (id int); create temp table parts (id int) partition by list (id)"
            )
            session.execute("create temp table part partition of parts for values in (1)")
        found = survey(connection, TableSelection(exclude=("public.part",)))
    assert [left.qualified_name for left in found.left_out] == ["pg_temp.basket", "pg_temp.parts"]


def test_what_nobody_asked_for_is_not_mentioned(connection: Connection) -> None:
    connection.execute("create view public.looked as select 1 as id; create table public.plain (id int)")
    assert survey(connection, TableSelection(include=("public.nothing",))) == Survey((), ())


@both_versions
def test_a_partitioned_table_is_taken_by_its_root(connection: Connection) -> None:
    connection.execute(
        "create table public.root (id int, day int, primary key (day, id)) partition by list (day);"
        "create table public.one partition of public.root for values in (1);"
        "create table public.two partition of public.root for values in (2) partition by list (id);"
        "create table public.two_a partition of public.two for values in (1)"
    )
    found = survey(connection, EVERYTHING)
    (root,) = found.tables
    assert (root.table, root.kind, root.identity_columns) == ("root", "partitioned table", ("day", "id"))
    assert root.has_usable_identity
    assert found.left_out == ()
    (left,) = survey(connection, TableSelection(include=("two_a",))).left_out
    assert left.reason == "a partition of public.root: include that table instead"


def test_an_unlogged_partition_of_a_captured_table_is_reported(connection: Connection) -> None:
    connection.execute(
        "create table public.root (id int primary key) partition by list (id);"
        "create unlogged table public.one partition of public.root for values in (1)"
    )
    (left,) = survey(connection, TableSelection(include=("root",))).left_out
    assert (left.table, left.reason.split(":")[0]) == ("one", "an unlogged partition of public.root")


@both_versions
@pytest.mark.parametrize(
    ("definition", "identity", "columns", "usable"),
    [
        ("create table public.t (b int, a int, primary key (a, b))", "d", ("a", "b"), True),
        ("create table public.t (a int)", "d", (), False),
        ("create table public.t (a int primary key deferrable)", "d", (), False),
        ("create table public.t (a int primary key); alter table public.t replica identity nothing", "n", (), False),
        ("create table public.t (a int, b int); alter table public.t replica identity full", "f", ("a", "b"), True),
        (
            "create table public.t (a int, b int not null); create unique index i on public.t (b) include (a);"
            "alter table public.t replica identity using index i",
            "i", ("b",), True,
        ),
        (
            "create table public.t (b int not null); create unique index i on public.t (b);"
            "alter table public.t replica identity using index i; drop index public.i",
            "i", (), False,
        ),
    ],
)  # fmt: skip
def test_the_replica_identity_is_read_as_postgres_reads_it(
    connection: Connection, definition: str, identity: str, columns: tuple[str, ...], usable: bool
) -> None:
    connection.execute(definition)
    table = the_table(connection, "t")
    assert (table.identity, table.identity_columns, table.has_usable_identity) == (identity, columns, usable)
    # The judge is Postgres itself: with a publication of updates, it refuses them where there is no usable identity.
    connection.execute("create publication p for table public.t")
    assert deletes_are_allowed(connection) == usable


def deletes_are_allowed(connection: Connection) -> bool:
    try:
        connection.execute("delete from public.t")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True


def test_a_partition_without_identity_makes_the_whole_table_inserts_only(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int) partition by list (a); alter table public.t replica identity full;"
        "create table public.one partition of public.t for values in (1)"
    )
    assert not the_table(connection, "t").has_usable_identity
    connection.execute("alter table public.one replica identity full")
    assert the_table(connection, "t").has_usable_identity


def test_a_virtual_column_spoils_full_identity_but_a_stored_one_does_not(connection: Connection) -> None:
    connection.execute(
        "create table public.stored (a int, b int generated always as (a + 1) stored);"
        "create table public.virtual (a int, b int generated always as (a + 1) virtual);"
        "alter table public.stored replica identity full; alter table public.virtual replica identity full"
    )
    assert the_table(connection, "stored").has_usable_identity
    assert not the_table(connection, "virtual").has_usable_identity


@pytest.mark.parametrize(("database", "usable"), [(16, False), (18, True)], indirect=["database"])
def test_a_generated_key_is_usable_only_where_it_is_sent(connection: Connection, usable: bool) -> None:
    connection.execute("create table public.t (a int, b int generated always as (a + 1) stored primary key)")
    assert the_table(connection, "t").has_usable_identity == usable


@pytest.mark.parametrize(
    ("definition", "has_key"),
    [
        ("create table public.t (a int primary key)", True),
        ("create table public.t (a int)", False),
        ("create table public.t (a int primary key deferrable)", False),
        ("create table public.t (a int primary key); alter table public.t replica identity full", True),
        ("create table public.t (a int primary key deferrable); alter table public.t replica identity full", False),
        ("create table public.t (a int); alter table public.t replica identity full", False),
        ("create table public.t (a int primary key); alter table public.t replica identity nothing", False),
    ],
)
def test_a_key_is_what_tells_rows_apart_when_their_changes_arrive(
    connection: Connection, definition: str, has_key: bool
) -> None:
    connection.execute(definition.encode())
    assert the_table(connection, "t").has_key is has_key


def test_names_are_taken_as_postgres_has_them(connection: Connection) -> None:
    connection.execute(
        'create schema sales; create schema "sales.old"; create table public.orders (id int);'
        'create table sales.orders (id int); create table "sales.old".orders (id int); create table public."Orders" (id int);'
        'create table public."dot.ted" (id int)'
    )
    meant = {
        "orders": ("public", "orders"), "public.orders": ("public", "orders"), "sales.orders": ("sales", "orders"),
        "sales.old.orders": ("sales.old", "orders"), "Orders": ("public", "Orders"),
        "public.Orders": ("public", "Orders"), "public.dot.ted": ("public", "dot.ted"), "dot.ted": ("public", "dot.ted"),
    }  # fmt: skip
    for name, place in meant.items():
        assert [(table.schema, table.table) for table in named_tables(connection, [name])] == [place]
    assert len(named_tables(connection, ["orders", "sales.orders", "orders"])) == 2


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        ("ordrs", 'The source has no table "public.ordrs".', 'Did you mean "public.orders"?'),
        ("ORDERS", 'The source has no table "public.ORDERS".', 'Did you mean "public.orders"?'),
        ("sales.orders", 'The source has no table "sales.orders".', 'Did you mean "public.orders"?'),
        ("zzz", 'The source has no table "public.zzz".', "without quotes; capitals count"),
        ("elsewhere.zzz", 'The source has no table "elsewhere.zzz".', "Write it as Postgres has it: schema.table"),
        ("", 'The source has no table "public.".', "Write it as Postgres has it"),
        ("penstock.jobs", 'The source has no table "penstock.jobs".', "Write it"),
        ("looked", "public.looked cannot be captured. It is a view: include the tables that it reads.", None),
        ("one", "public.one cannot be captured. It is a partition of public.root: include that table instead.", None),
        ("fast", "public.fast cannot be captured. It is unlogged: its changes are not in the WAL.", None),
    ],
)
def test_a_name_that_means_no_table_is_a_mistake(
    connection: Connection, name: str, message: str, advice: str | None
) -> None:
    connection.execute(
        "create table public.orders (id int); create view public.looked as select 1 as id;"
        "create unlogged table public.fast (id int); create table public.root (id int) partition by list (id);"
        "create table public.one partition of public.root for values in (1);"
        "create schema penstock; create table penstock.jobs (id int)"
    )
    with pytest.raises(ConfigError) as refused:
        named_tables(connection, ["orders", name])
    assert refused.value.message == message
    assert advice is None or advice in (refused.value.advice or "")
