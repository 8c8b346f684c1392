"""What `check` finds in the modes that copy tables."""

from __future__ import annotations

import pytest
from psycopg import sql

from penstock.findings import Finding
from penstock.postgres.connection import Connection, connect
from penstock.settings.sections import CopySettings
from penstock.settings.tables import TableSelection
from penstock.subscription import migrations
from penstock.subscription.preflight.server import check_source, failures
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.postgres.test_preflight import as_role, named

PUBLIC = TableSelection()
COPYING = CopySettings()


def checked(url: str, *publications: str, copying: CopySettings | None = COPYING) -> list[Finding]:
    return check_source(url, "shop", PUBLIC, publications, copying)


def remedies(findings: list[Finding]) -> list[str]:
    """The statements that an administrator is told to run."""
    return [finding.remedy.partition("run: ")[2] for finding in findings]


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_a_source_that_can_be_copied_has_nothing_to_complain_of(database: str, connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key)")
    findings = checked(database)
    assert [f for f in findings if not f.ok] == []
    assert {"schema", "connections"} <= {f.name for f in findings}
    assert connection.execute("select to_regnamespace('penstock') is null").fetchone() == (True,)


def test_what_only_imports_need_is_not_looked_at_in_mode_stream(database: str, connection: Connection) -> None:
    connection.execute("create table public.bare (id int)")
    found = {f.name for f in checked(database, copying=None)}
    assert found & {"schema", "connections", "imports", "key"} == set()


def test_a_table_that_may_not_be_read_is_a_failure_and_the_grant_mends_it(
    database: str, connection: Connection, guest: str
) -> None:
    connection.execute(
        'create schema "Sales"; create table "Sales"."Big Orders" (id int primary key);'
        'create publication mine for table "Sales"."Big Orders"'
    )
    url = as_role(database, guest)
    (finding,) = named(checked(url, "mine"), "reading")
    assert finding.ok is False
    assert "Sales.Big Orders" in finding.message
    connection.execute(remedies([finding])[0].encode())
    assert named(checked(url, "mine"), "reading") == []
    with connect(url) as session:
        assert session.execute('select count(*) from "Sales"."Big Orders"').fetchone() == (0,)


def test_row_security_is_a_failure_and_the_remedy_shows_all_rows(
    database: str, connection: Connection, guest: str
) -> None:
    connection.execute(
        sql.SQL(
            "create table public.t (id int primary key); insert into public.t values (1), (2);"
            "create policy half on public.t using (id = 1); alter table public.t enable row level security;"
            "create publication mine for table public.t; grant select on public.t to {}"
        ).format(sql.Identifier(guest))
    )
    url = as_role(database, guest)
    (finding,) = named(checked(url, "mine"), "row security")
    assert finding.ok is False
    assert "public.t" in finding.message
    connection.execute(remedies([finding])[0].encode())
    assert named(checked(url, "mine"), "row security") == []
    with connect(url) as session:
        assert session.execute("select count(*) from public.t").fetchone() == (2,)


def test_row_security_that_is_forced_on_the_owner_is_found_too(
    database: str, connection: Connection, guest: str
) -> None:
    connection.execute(
        sql.SQL(
            "create table public.t (id int primary key); alter table public.t owner to {};"
            "alter table public.t enable row level security; create publication mine for table public.t"
        ).format(sql.Identifier(guest))
    )
    url = as_role(database, guest)
    assert named(checked(url, "mine"), "row security") == []
    connection.execute("alter table public.t force row level security")
    (finding,) = named(checked(url, "mine"), "row security")
    assert finding.ok is False


def test_a_role_that_may_not_create_the_schema_is_told_the_grant_and_it_suffices(
    database: str, connection: Connection, guest: str
) -> None:
    connection.execute("create publication mine")
    url = as_role(database, guest)
    (finding,) = named(checked(url, "mine"), "schema")
    assert finding.ok is False
    assert "may not create the schema penstock" in finding.message
    connection.execute(remedies([finding])[0].encode())
    assert named(checked(url, "mine"), "schema")[0].ok is True
    with connect(url) as session:
        migrations.migrate(session)
    assert named(checked(url, "mine"), "schema")[0].message.endswith("is there.")


def test_a_schema_of_another_role_is_told_with_the_grant_that_suffices(
    database: str, connection: Connection, guest: str
) -> None:
    owner = sql.Identifier(f"{guest} owner")
    connection.execute(sql.SQL("create publication mine; create role {}").format(owner))
    migrations.migrate(connection)
    connection.execute(sql.SQL("alter schema penstock owner to {}").format(owner))
    for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'penstock'").fetchall():
        connection.execute(sql.SQL("alter table {} owner to {}").format(sql.Identifier("penstock", name), owner))
    url = as_role(database, guest)
    try:
        (finding,) = named(checked(url, "mine"), "schema")
        assert finding.ok is False
        connection.execute(remedies([finding])[0].encode())
        assert named(checked(url, "mine"), "schema")[0].ok is True
        with connect(url) as session:
            assert migrations.installed(session)
    finally:
        connection.execute(sql.SQL("drop owned by {0} cascade; drop role {0}").format(owner))


def test_a_role_that_was_granted_all_that_imports_do_may_use_the_schema(
    database: str, connection: Connection, guest: str
) -> None:
    connection.execute("create publication mine")
    migrations.migrate(connection)
    role, url = sql.Identifier(guest), as_role(database, guest)
    connection.execute(
        sql.SQL("grant usage on schema penstock to {0}; grant select on all tables in schema penstock to {0}").format(
            role
        )
    )
    assert named(checked(url, "mine"), "schema")[0].ok is False
    connection.execute(sql.SQL("grant insert, update, delete on all tables in schema penstock to {}").format(role))
    assert named(checked(url, "mine"), "schema")[0].ok is True


def test_too_few_connections_are_warned_of(database: str, connection: Connection, guest: str) -> None:
    connection.execute("create publication mine")
    (many,) = named(checked(database, copying=CopySettings(workers=5000)), "connections")
    assert many.ok is None
    assert "imports use up to 5003" in many.message
    assert "source.copy.workers" in many.remedy
    limited = CopySettings(workers=5000, max_connections=2)
    assert named(checked(database, copying=limited), "connections")[0].ok is True
    connection.execute(sql.SQL("alter role {} connection limit 4").format(sql.Identifier(guest)))
    (few,) = named(checked(as_role(database, guest), "mine"), "connections")
    assert few.ok is None
    assert few.message.startswith("3 more connections are possible")  # this check's own is the fourth


def test_a_standby_cannot_be_copied_from(standby18: EmbeddedPostgres) -> None:
    findings = checked(standby18.url)
    (finding,) = [f for f in failures(findings) if f.name == "imports"]
    assert "imports keep their queue in the source" in finding.message
    assert finding.remedy == "Use the primary, or mode: stream."
    assert named(checked(standby18.url, copying=None), "imports") == []


def test_tables_without_a_key_are_warned_of(database: str, connection: Connection) -> None:
    connection.execute(
        "create table public.good (id int primary key); create table public.bare (id int);"
        "create table public.whole (id int); alter table public.whole replica identity full"
    )
    (finding,) = named(checked(database), "key")
    assert finding.ok is None
    assert finding.message.startswith("Without a key: public.bare, public.whole.")
    assert "in one transaction" in finding.message


def test_what_is_left_out_under_public_is_listed(database: str, connection: Connection) -> None:
    connection.execute(
        "create table public.plain (id int primary key); create unlogged table public.fast (id int primary key);"
        "create view public.looked as select 1 as id; create materialized view public.kept as select 1 as id;"
        "create foreign data wrapper nowhere; create server far foreign data wrapper nowhere;"
        "create foreign table public.away (id int) server far; create temp table basket (id int);"
        "create schema other; create table other.root (id int primary key) partition by list (id);"
        "create table public.part partition of other.root for values in (1)"
    )
    findings = checked(database)
    assert failures(findings) == []
    assert sorted(f.message.removeprefix("Not captured: ").split()[0] for f in named(findings, "left out")) == [
        "pg_temp.basket", "public.away", "public.fast", "public.kept", "public.looked", "public.part",
    ]  # fmt: skip
    assert named(findings, "tables")[0].message == "Tables captured: 1."


def test_the_rights_to_read_many_tables_are_two_statements(database: str, connection: Connection, guest: str) -> None:
    connection.execute("create schema shut")
    for number in range(6):
        connection.execute(f"create table shut.t{number} (id int primary key)".encode())
    connection.execute("create publication mine for tables in schema shut")
    (finding,) = named(checked(as_role(database, guest), "mine"), "reading")
    assert finding.remedy.count("GRANT USAGE") == finding.remedy.count("GRANT SELECT") == 1
    connection.execute(finding.remedy.partition("run: ")[2].encode())
    assert named(checked(as_role(database, guest), "mine"), "reading") == []
