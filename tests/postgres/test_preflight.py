from __future__ import annotations

import pytest
from psycopg import sql

from penstock.findings import Finding
from penstock.postgres.connection import Connection, connect
from penstock.settings.tables import TableSelection
from penstock.subscription import subscription
from penstock.subscription.preflight.server import check_source, failures
from penstock.testing.embedded_postgres import EmbeddedPostgres

PUBLIC = TableSelection()


def as_role(database: str, role: str) -> str:
    return database.replace("postgres@", f"{role.replace(' ', '%20')}@")


def named(findings: list[Finding], name: str) -> list[Finding]:
    return [finding for finding in findings if finding.name == name]


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_a_healthy_source_has_nothing_to_complain_of(database: str, connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key)")
    findings = check_source(database, "shop", PUBLIC)
    assert [f for f in findings if not f.ok] == []
    assert {f.name for f in findings} >= {
        "connection", "version", "wal_level", "slots", "senders", "replication right", "publication right",
        "retention", "encoding", "tables",
    }  # fmt: skip
    assert named(findings, "tables")[0].message == "Tables captured: 1."
    assert connection.execute("select count(*) from pg_publication").fetchone() == (0,)


def test_nobody_at_the_address_is_the_only_finding_and_keeps_the_secret() -> None:
    (finding,) = check_source("postgresql://me:s3cret@127.0.0.1:1/shop", "shop", PUBLIC)
    assert (finding.name, finding.ok) == ("connection", False)
    assert finding.remedy
    assert "s3cret" not in repr(finding)


def test_a_url_that_cannot_be_read_is_a_finding_too() -> None:
    (finding,) = check_source("postgresql://me:s3 cret@db/shop", "shop", PUBLIC)
    assert finding.ok is False
    assert "percent-encode" in finding.remedy


def test_each_right_that_is_missing_comes_with_its_grant_and_the_grants_suffice(
    database: str, connection: Connection, guest: str
) -> None:
    connection.execute("create table public.t (id int primary key)")
    url = as_role(database, guest)
    findings = check_source(url, "shop", PUBLIC)
    assert {f.name for f in failures(findings)} == {"replication right", "publication right", "ownership"}
    assert [f.ok for f in named(findings, "reading")] == [None]
    for finding in [*failures(findings), *named(findings, "reading")]:
        connection.execute(finding.remedy.partition("run: ")[2].encode())
    assert failures(check_source(url, "shop", PUBLIC)) == []
    with connect(url) as session:
        subscription.create(session, "shop", PUBLIC)
        subscription.destroy(session, "shop")


@pytest.mark.process
def test_settings_that_fail_are_found_with_their_remedies() -> None:
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "0"}
    with EmbeddedPostgres(settings=settings) as server:
        server.execute("select pg_create_physical_replication_slot('taken')")
        findings = check_source(server.url, "shop", PUBLIC)
    failed = {f.name: f.remedy for f in failures(findings)}
    assert set(failed) == {"wal_level", "slots", "senders"}
    assert "ALTER SYSTEM SET wal_level = 'logical';" in failed["wal_level"]
    assert "max_replication_slots" in failed["slots"]
    assert "max_wal_senders" in failed["senders"]


def test_limits_on_retention_are_told(database: str) -> None:
    settings = {"max_slot_wal_keep_size": "1GB", "idle_replication_slot_timeout": "2d"}
    with EmbeddedPostgres(settings=settings) as server:
        told = named(check_source(server.url, "shop", PUBLIC), "retention")
    assert "1GB" in told[0].message
    assert told[1].ok is None
    assert "2d" in told[1].message
    assert "watch the source's disk" in named(check_source(database, "shop", PUBLIC), "retention")[0].message


def test_tables_that_are_captured_in_part_or_not_at_all_are_warned_of(database: str, connection: Connection) -> None:
    connection.execute(
        'create table public."Bare" (id int); create unlogged table public.fast (id int);'
        "create view public.looked as select 1 as id; create view public.looked2 as select 1 as id"
    )
    findings = check_source(database, "shop", PUBLIC)
    assert failures(findings) == []
    (bare,) = named(findings, "identity")
    assert (bare.ok, bare.remedy.partition("run: ")[2]) == (None, 'ALTER TABLE "public"."Bare" REPLICA IDENTITY FULL;')
    assert sorted(f.message for f in named(findings, "left out")) == [
        "Not captured: public.fast (unlogged: its changes are not in the WAL).",
        "Not captured: public.looked, public.looked2 (a view: include the tables that it reads).",
    ]
    connection.execute(bare.remedy.partition("run: ")[2].encode())
    assert named(check_source(database, "shop", PUBLIC), "identity") == []


def test_no_table_at_all_is_a_warning(database: str) -> None:
    (finding,) = named(check_source(database, "shop", PUBLIC), "tables")
    assert finding.ok is None


def test_columns_that_stay_text_are_named(database: str, connection: Connection) -> None:
    connection.execute(
        "create type public.pair as (a int, b int);"
        "create table public.t (id int primary key, p public.pair, r int4range, many public.pair[], plain text)"
    )
    (finding,) = named(check_source(database, "shop", PUBLIC), "types")
    assert finding == Finding(
        "types", True,
        "These columns are delivered as text: public.t.p (public.pair), public.t.r (int4range), "
        "public.t.many (public.pair[]).",
    )  # fmt: skip


def test_row_security_is_warned_of(database: str, connection: Connection, guest: str) -> None:
    connection.execute(
        sql.SQL(
            "create table public.t (id int primary key); alter table public.t enable row level security;"
            "grant select on public.t to {}"
        ).format(sql.Identifier(guest))
    )
    (finding,) = named(check_source(as_role(database, guest), "shop", PUBLIC), "row security")
    assert "public.t" in finding.message
    assert named(check_source(database, "shop", PUBLIC), "row security") == []


def test_a_database_without_encoding_is_warned_of(postgres18: EmbeddedPostgres) -> None:
    postgres18.execute("create database ascii template template0 encoding 'SQL_ASCII'")
    (finding,) = named(check_source(postgres18.url_of("ascii"), "shop", PUBLIC), "encoding")
    postgres18.drop_database("ascii")
    assert finding.ok is None


def test_a_slot_is_reported_while_it_is_good_gone_and_the_publication_is_anothers(
    database: str, connection: Connection
) -> None:
    made = subscription.create(connection, "shop", PUBLIC)
    (good,) = named(check_source(database, "shop", PUBLIC), "slot")
    assert good.ok
    assert good.message.startswith(f"The slot {made.slot} is not being read. It holds ")
    connection.execute("select pg_drop_replication_slot(%s)", [made.slot])
    (gone,) = named(check_source(database, "shop", PUBLIC), "slot")
    assert (gone.ok, gone.remedy) == (None, "Run `penstock init`.")
    connection.execute("comment on publication shop is 'mine now'")
    (other,) = named(check_source(database, "shop", PUBLIC), "publication")
    assert other.ok is False


def test_existing_publications_are_checked_for_what_they_hold(database: str, connection: Connection) -> None:
    connection.execute(
        "create table public.in_it (id int primary key); create table public.not_in_it (id int);"
        "create publication mine for table public.in_it"
    )
    findings = check_source(database, "shop", PUBLIC, ["mine"])
    assert named(findings, "tables")[0].message == "Tables captured: 1."
    assert named(findings, "identity") == []
    (missing,) = named(check_source(database, "shop", PUBLIC, ["absent"]), "publication")
    assert "absent" in missing.message


def test_a_standby_is_told_about_its_primary_and_its_feedback(standby18: EmbeddedPostgres) -> None:
    (finding,) = named(check_source(standby18.url, "shop", PUBLIC), "standby")
    assert finding.ok is None
    assert "hot_standby_feedback = on" in finding.remedy
