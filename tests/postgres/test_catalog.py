from __future__ import annotations

import psycopg
import pytest

from penstock.lsn import LSN
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, connect
from penstock.testing.embedded_postgres import EmbeddedPostgres

TYPES = """
create schema odd;
create type odd."Mood" as enum ('sad', 'ok');
create domain odd.price as numeric(10, 2);
create domain odd.nested as odd.price check (value > 0);
create domain odd.prices as numeric(8, 3)[];
create domain odd.feeling as odd."Mood";
create type odd.pair as (a int, b text);
create type odd.span as range (subtype = float8);
"""


@pytest.mark.parametrize("database", [16, 18], indirect=True)
@pytest.mark.parametrize(
    ("declared", "name", "base", "modifier", "element"),
    [
        ("int", "integer", "int4", -1, None),
        ("timestamptz", "timestamp with time zone", "timestamptz", -1, None),
        ("odd.price", "odd.price", "numeric", 655366, None),
        ("odd.nested", "odd.nested", "numeric", 655366, None),
        ("int[]", "integer[]", "array", -1, "int4"),
        ("odd.prices", "odd.prices", "array", 524295, "numeric"),
        ("odd.nested[]", "odd.nested[]", "array", 655366, "numeric"),
        ("odd.prices[]", "odd.prices[]", "other", -1, None),
        ('odd."Mood"', 'odd."Mood"', "enum", -1, None),
        ("odd.feeling", "odd.feeling", "enum", -1, None),
        ('odd."Mood"[]', 'odd."Mood"[]', "array", -1, "enum"),
        ("odd.pair", "odd.pair", "other", -1, None),
        ("odd.pair[]", "odd.pair[]", "array", -1, "other"),
        ("odd.span", "odd.span", "other", -1, None),
        ("int4range", "int4range", "other", -1, None),
        ("int2vector", "int2vector", "int2vector", -1, None),
        ("box[]", "box[]", "other", -1, None),
        ("jsonb", "jsonb", "jsonb", -1, None),
    ],
)
def test_a_type_is_resolved_through_domains_and_arrays(
    connection: Connection, declared: str, name: str, base: str, modifier: int, element: str | None
) -> None:
    connection.execute(TYPES)
    ((oid,),) = connection.execute("select %s::regtype::oid", [declared]).fetchall()
    assert catalog.resolve_types(connection, [oid]) == {oid: catalog.TypeInfo(oid, name, base, modifier, element)}


def test_a_type_that_is_gone_is_absent(connection: Connection) -> None:
    assert set(catalog.resolve_types(connection, {23, 4_000_000_000})) == {23}
    assert catalog.resolve_types(connection, []) == {}


def test_types_are_named_as_declared(connection: Connection) -> None:
    names = catalog.type_names(connection, {(1700, 655366), (1043, 14), (23, -1), (1007, -1)})
    assert names == {
        (1700, 655366): "numeric(10,2)", (1043, 14): "character varying(10)", (23, -1): "integer",
        (1007, -1): "integer[]",
    }  # fmt: skip


def test_the_primary_key_comes_in_its_own_order(connection: Connection) -> None:
    connection.execute('create table public.t ("B b" int, a int, c int, primary key (a, "B b") include (c))')
    connection.execute("create table public.none (a int unique)")
    oids = [row[0] for row in connection.execute("values ('public.t'::regclass::oid), ('public.none'::regclass::oid)")]
    assert [catalog.primary_key(connection, oid) for oid in oids] == [("a", "B b"), ()]


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_a_server_says_who_it_is(connection: Connection) -> None:
    identity = catalog.server_identity(connection)
    assert identity.system_identifier > 1 << 60
    assert identity.timeline == 1
    assert identity.version_num == connection.info.server_version
    assert not identity.in_recovery


def test_a_role_that_may_not_read_the_control_file_learns_it_from_a_walsender(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "drop role if exists replicator; create role replicator login replication;"
        "revoke execute on function pg_control_system() from public"
    )
    with connect(database.replace("postgres@", "replicator@")) as limited:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            limited.execute("select pg_control_system()")
        assert catalog.server_identity(limited) == catalog.server_identity(connection)
    connection.execute("drop role replicator")


def test_the_marker_lies_at_or_above_everything_committed_before(connection: Connection) -> None:
    connection.execute("create table public.t (a int); set synchronous_commit = off")
    before = catalog.current_lsn(connection)
    connection.execute("insert into public.t values (1)")
    ((inserted,),) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchall()
    marker = catalog.wal_marker(connection)
    assert before < LSN.parse(inserted) < marker
    assert marker <= catalog.current_lsn(connection)
    assert connection.execute("show synchronous_commit").fetchone() == ("off",)


def test_a_standby_has_a_position_and_the_primarys_identity(
    postgres18: EmbeddedPostgres, standby18: EmbeddedPostgres
) -> None:
    with connect(postgres18.url) as primary, connect(standby18.url) as standby:
        here, there = catalog.server_identity(primary), catalog.server_identity(standby)
        assert (there.system_identifier, there.timeline) == (here.system_identifier, here.timeline)
        assert there.in_recovery
        assert LSN(0) < catalog.wal_marker(standby) <= catalog.wal_marker(primary)
