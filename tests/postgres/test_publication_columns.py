"""Tables of which some columns are not published: lists that follow the wish and the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from penstock.errors import ConfigError
from penstock.postgres.connection import Connection
from penstock.postgres.tables import Table
from penstock.settings.tables import LeftOut, TableSelection
from penstock.subscription import publication, subscription
from penstock.subscription.publication import Reconciliation
from penstock.subscription.publication_columns import published_columns

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


@dataclass(frozen=True)
class Without:
    """All tables of public, without columns of these names."""

    names: tuple[str, ...]

    def selects(self, schema: str, table: str) -> bool:
        return TableSelection().selects(schema, table)

    def left_out(self, oid: int, schema: str, table: str) -> LeftOut | None:
        def found(columns: Mapping[int, str]) -> Mapping[int, str]:
            return {number: name for number, name in columns.items() if name in self.names}

        return found


def held(connection: Connection, name: str = "shop") -> dict[str, list[str]]:
    """The columns that the publication holds, by table."""
    rows = connection.execute("select tablename, attnames from pg_publication_tables where pubname = %s", [name])
    return {table: list(columns) for table, columns in rows}


def reconciled(connection: Connection, *names: str) -> tuple[Reconciliation, list[str]]:
    """And the tables that enter, or have more columns than before: those that have to be imported again."""
    heard: list[Table] = []
    done = publication.reconcile(connection, "shop", Without(names), heard.extend)
    return done, [table.table for table in heard]


@pytest.fixture
def users(connection: Connection) -> Connection:
    connection.execute("create table public.users (id int primary key, email text, ssn text)")
    connection.execute("create table public.other (id int primary key, note text)")
    subscription.create(connection, "shop", Without(("ssn",)))
    return connection


@both_versions
def test_columns_that_are_left_out_are_not_sent(users: Connection) -> None:
    assert held(users) == {"users": ["id", "email"], "other": ["id", "note"]}
    (slot,) = users.execute(
        "select slot_name from pg_replication_slots where database = current_database()"
    ).fetchone() or ("",)
    users.execute("insert into public.users values (1, 'a@b', 's3cr3t'); update public.users set ssn = 's3cr3t-2'")
    rows = users.execute(
        "select data from pg_logical_slot_get_binary_changes(%s, null, null, 'proto_version', '1', "
        "'publication_names', 'shop,shop_inserts')",
        [slot],
    ).fetchall()
    sent = b"".join(bytes(data) for (data,) in rows)
    assert b"a@b" in sent
    assert b"s3cr3t" not in sent
    assert b"ssn" not in sent


@both_versions
def test_a_second_look_changes_nothing(users: Connection) -> None:
    done, entered = reconciled(users, "ssn")
    assert (done, entered) == (Reconciliation(), [])
    assert list(done.left_out.values()) == [{3: "ssn"}]


@both_versions
def test_a_table_that_is_published_whole_gets_its_list_and_need_not_be_imported_again(users: Connection) -> None:
    done, entered = reconciled(users, "ssn", "note")
    assert (done, entered) == (Reconciliation(narrowed=("public.other",)), [])
    assert held(users) == {"users": ["id", "email"], "other": ["id"]}


@both_versions
def test_a_column_that_is_wanted_again_comes_back_and_the_table_is_imported_again(users: Connection) -> None:
    done, entered = reconciled(users)
    assert (done, entered) == (Reconciliation(widened=("public.users",)), ["users"])
    assert held(users)["users"] == ["id", "email", "ssn"]
    assert users.execute("select count(*) from pg_publication_rel where prattrs is not null").fetchone() == (0,)


@both_versions
def test_a_new_column_enters_the_list_and_the_table_is_imported_again(users: Connection) -> None:
    users.execute("alter table public.users add column phone text")
    assert held(users)["users"] == ["id", "email"]
    done, entered = reconciled(users, "ssn")
    assert (done, entered) == (Reconciliation(widened=("public.users",)), ["users"])
    assert held(users)["users"] == ["id", "email", "phone"]


@both_versions
def test_dropping_the_column_that_is_left_out_needs_nothing_and_another_one_brings_the_table_in_again(
    users: Connection,
) -> None:
    users.execute("alter table public.users drop column ssn")
    done, entered = reconciled(users, "ssn")
    assert (done, entered) == (Reconciliation(narrowed=("public.users",)), [])  # without a list, the same is published
    reconciled(users, "email")
    users.execute("alter table public.users add column ssn text")
    reconciled(users, "ssn")
    users.execute("alter table public.users drop column email cascade")  # takes the table out of the publication
    done, entered = reconciled(users, "ssn")
    assert (done, entered) == (Reconciliation(added=("public.users",)), ["users"])
    assert held(users)["users"] == ["id"]


@both_versions
def test_a_table_whose_identity_has_the_column_stays_writable_and_keeps_it_in_the_database(users: Connection) -> None:
    users.execute("insert into public.users values (1, 'a', 'b'); alter table public.users replica identity full")
    done, entered = reconciled(users, "ssn")
    assert (done, entered) == (Reconciliation(moved=("public.users",)), [])
    assert held(users, "shop_inserts") == {"users": ["id", "email"]}
    users.execute("update public.users set email = 'c'")
    users.execute("alter table public.users replica identity default")
    assert reconciled(users, "ssn") == (Reconciliation(moved=("public.users",)), ["users"])
    assert held(users)["users"] == ["id", "email"]


@both_versions
def test_the_identities_of_partitions_count_as_well(connection: Connection) -> None:
    connection.execute("create table public.root (id int primary key, v int, ssn text) partition by list (id)")
    connection.execute("create table public.one (ssn text, v int, id int not null)")
    connection.execute("alter table public.root attach partition public.one for values in (1)")
    subscription.create(connection, "shop", Without(("ssn",)))
    assert held(connection) == {"root": ["id", "v"]}
    connection.execute("insert into public.root values (1, 1, 'x'); update public.root set v = 2")
    connection.execute("alter table public.one replica identity full")
    assert reconciled(connection, "ssn")[0].moved == ("public.root",)
    connection.execute("update public.root set v = 3")


@both_versions
def test_generated_columns_are_in_the_list_where_postgres_takes_them(connection: Connection) -> None:
    connection.execute(
        'create table public.t (id int primary key, "od,d""n" int, ssn text, '
        'double int generated always as ("od,d""n" * 2) stored)'
    )
    subscription.create(connection, "shop", Without(("ssn",)))
    expected = ["id", 'od,d"n', *(["double"] if connection.info.server_version >= 180000 else [])]
    assert held(connection)["t"] == expected
    assert reconciled(connection, "ssn") == (Reconciliation(), [])


def test_a_table_of_which_nothing_is_left_is_refused(connection: Connection) -> None:
    connection.execute("create table public.t (ssn text)")
    with pytest.raises(ConfigError, match=r"leaves no column of public\.t"):
        subscription.create(connection, "shop", Without(("ssn",)))


@both_versions
def test_the_columns_that_a_users_publications_hold_are_known_however_they_name_the_table(
    connection: Connection,
) -> None:
    connection.execute("create table public.t (id int primary key, a int, b int)")
    connection.execute("create publication listed for table public.t (id, a); create publication every for all tables")
    (found,) = published_columns(connection, ["listed", "every"]).values()
    assert found == {"listed": ("id", "a"), "every": ("id", "a", "b")}
