from __future__ import annotations

import pytest
from psycopg import sql

from penstock.errors import SourceRefused
from penstock.postgres.connection import Connection
from penstock.settings.tables import TableSelection
from penstock.subscription import subscription

PUBLIC = TableSelection()
both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def held_by(connection: Connection, publication: str) -> list[str]:
    rows = connection.execute(
        "select tablename from pg_publication_tables where pubname = %s order by 1", [publication]
    )
    return [name for (name,) in rows]


@both_versions
def test_tables_without_identity_get_their_inserts_published_and_stay_writable(connection: Connection) -> None:
    connection.execute("create table public.keyed (a int primary key); create table public.bare (a int)")
    subscription.create(connection, "shop", PUBLIC)
    assert (held_by(connection, "shop"), held_by(connection, "shop_inserts")) == (["keyed"], ["bare"])
    connection.execute("insert into public.bare values (1); update public.bare set a = 2; delete from public.bare")


@both_versions
def test_the_slot_reads_both_publications_from_the_first_transaction_on(connection: Connection) -> None:
    made = subscription.create(connection, "shop", PUBLIC)
    connection.execute("create table public.bare (a int); create table public.keyed (a int primary key)")
    subscription.reconcile_tables(connection, "shop", PUBLIC)
    for table in ("bare", "keyed"):
        connection.execute(f"insert into public.{table} values (1)")
        connection.execute(f"update public.{table} set a = 2")
        connection.execute(f"delete from public.{table}")
    rows = connection.execute(
        "select get_byte(data, 0) from pg_logical_slot_get_binary_changes(%s, null, null, 'proto_version', '1', "
        "'publication_names', %s)",
        [made.slot, ",".join(made.publications)],
    )
    changes = [chr(tag) for (tag,) in rows if chr(tag) in "RIUD"]
    assert changes == ["R", "I", "R", "I", "U", "D"]


@both_versions
def test_reconciling_adds_removes_and_moves(connection: Connection) -> None:
    connection.execute(
        "create table public.stays (a int primary key); create table public.leaves (a int primary key);"
        "create table public.gains (a int not null); create table public.loses (a int primary key)"
    )
    subscription.create(connection, "shop", PUBLIC)
    connection.execute(
        "create table public.comes (a int primary key); alter table public.gains add primary key (a);"
        "alter table public.loses replica identity nothing"
    )
    selection = TableSelection(exclude=("leaves",))
    done = subscription.reconcile_tables(connection, "shop", selection)
    assert done == subscription.Reconciliation(
        added=("public.comes",), removed=("public.leaves",), moved=("public.gains", "public.loses")
    )
    assert held_by(connection, "shop") == ["comes", "gains", "stays"]
    assert held_by(connection, "shop_inserts") == ["loses"]
    assert subscription.reconcile_tables(connection, "shop", selection) == subscription.Reconciliation()


def test_reconciling_leaves_penstocks_own_tables_alone(connection: Connection) -> None:
    connection.execute("create schema penstock; create table penstock.schema_log (id int primary key)")
    subscription.create(connection, "shop", PUBLIC)
    connection.execute("alter publication shop add table penstock.schema_log")
    assert subscription.reconcile_tables(connection, "shop", PUBLIC) == subscription.Reconciliation()
    assert held_by(connection, "shop") == ["schema_log"]


def test_reconciling_what_was_never_made_says_so(connection: Connection) -> None:
    with pytest.raises(SourceRefused, match='"shop" does not exist'):
        subscription.reconcile_tables(connection, "shop", PUBLIC)


def test_odd_names_are_quoted(connection: Connection) -> None:
    names = sorted(["Capital", "dot.ted", 'quo"te', "select", "🐘", "drop table; --", "100%", "{brace}"])
    connection.execute('create schema "Odd.Schema"')
    for name in names:
        connection.execute(sql.SQL("create table {} (a int primary key)").format(sql.Identifier("Odd.Schema", name)))
    subscription.create(connection, "shop", TableSelection(include=("Odd*.*",)))
    assert held_by(connection, "shop") == names
    subscription.reconcile_tables(connection, "shop", TableSelection(include=("nothing.*",)))
    assert held_by(connection, "shop") == []


def test_partitions_come_with_their_root_and_heirs_only_by_name(connection: Connection) -> None:
    connection.execute(
        "create table public.root (a int primary key) partition by list (a);"
        "create table public.one partition of public.root for values in (1);"
        "create table public.parent (a int primary key); create table public.heir () inherits (public.parent)"
    )
    subscription.create(connection, "shop", TableSelection(exclude=("heir",)))
    assert held_by(connection, "shop") == ["parent", "root"]


def test_stored_generated_columns_are_published_and_full_rows_stay_writable(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int, b int generated always as (a + 1) stored);"
        "alter table public.t replica identity full"
    )
    subscription.create(connection, "shop", PUBLIC)
    assert connection.execute("select attnames from pg_publication_tables").fetchall() == [(["a", "b"],)]
    connection.execute("insert into public.t values (1); update public.t set a = 2")
