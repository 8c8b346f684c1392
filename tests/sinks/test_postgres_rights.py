"""What the role of a Postgres sink may do: what it lacks is named as the statement that gives it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from penstock.errors import SinkRefused
from penstock.findings import Finding
from penstock.sinks.postgres.sink import PostgresSink
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.sinks.test_postgres_sink import Replica, account, accounts
from tests.target_roles import as_superuser, new_role, role_of

pytestmark = pytest.mark.process

MINIMUM = (
    'grant create, temporary on database "{database}" to {role}',
    "grant usage, create on schema public to {role}",
)


@pytest.fixture
def closed(database: str) -> str:
    """A target in which nobody may do anything without being told so."""
    name = database.rpartition("/")[2]
    as_superuser(database, f'revoke all on database "{name}" from public', "revoke all on schema public from public",
                 f'grant connect on database "{name}" to public')  # fmt: skip
    return database


NewSink = Callable[..., PostgresSink]
NewReplica = Callable[[str], Replica]


@pytest.fixture
def sink() -> Iterator[NewSink]:
    """Makes sinks, which are closed at the end."""
    with ExitStack() as made:

        def new(url: str, **settings: Any) -> PostgresSink:
            wanted = PostgresSink.Settings(name="replica", type="postgres", url=SecretStr(url), **settings)
            return made.enter_context(closing(PostgresSink(wanted)))

        yield new


@pytest.fixture
def new_replica(tmp_path: Path) -> Iterator[NewReplica]:
    with ExitStack() as made:

        def new(url: str) -> Replica:
            found = Replica(url, tmp_path)
            made.callback(found.sink.close)
            return found

        yield new


def refusal(action: Callable[[], object]) -> list[str]:
    """The statements that it asks for."""
    with pytest.raises(SinkRefused) as refused:
        action()
    advice = refused.value.advice or ""
    assert advice.startswith("Run there, as owner or superuser: ")
    return advice.removeprefix("Run there, as owner or superuser: ").removesuffix("; then start again.").split("; ")


def test_what_is_missing_on_the_database_is_named_and_enough(closed: str, sink: NewSink) -> None:
    url = new_role(closed)
    name, role = closed.rpartition("/")[2], role_of(url)
    asked = refusal(sink(url).check)
    assert asked == [f'GRANT TEMPORARY, CREATE ON DATABASE "{name}" TO "{role}"']
    assert refusal(sink(url).prepare) == asked
    as_superuser(closed, *asked)
    assert sink(url).prepare() is None


def test_a_schema_penstock_that_somebody_else_made_is_not_enough(closed: str, sink: NewSink) -> None:
    url = new_role(closed, 'grant temporary on database "{database}" to {role}')
    sink(closed).prepare()
    asked = refusal(sink(url).prepare)
    assert asked[0] == f'GRANT USAGE ON SCHEMA "penstock" TO "{role_of(url)}"'
    assert f'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "penstock"."progress" TO "{role_of(url)}"' in asked
    as_superuser(closed, *asked)
    assert sink(url).prepare() is None


def test_a_schema_in_which_it_may_not_create_is_refused_with_the_grant(closed: str, new_replica: NewReplica) -> None:
    replica = new_replica(new_role(closed, MINIMUM[0]))
    asked = refusal(lambda: replica.deliver(accounts(("insert", account(1, "a")))))
    assert asked == [f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role_of(replica.url)}"']
    as_superuser(closed, *asked)
    replica.sink.prepare()
    replica.deliver(accounts(("insert", account(1, "a"))))
    assert replica.rows("select id from accounts") == [(1,)]


def test_a_table_that_it_may_not_write_to_is_refused_with_the_grant(closed: str, new_replica: NewReplica) -> None:
    as_superuser(closed, "create table accounts (id int primary key, email text, note text)")
    replica = new_replica(new_role(closed, *MINIMUM, "grant select, insert on accounts to {role}"))
    deliver = accounts(("insert", account(1, "a")))
    asked = refusal(lambda: replica.deliver(deliver))
    assert asked == [f'GRANT UPDATE, DELETE, TRUNCATE ON TABLE "public"."accounts" TO "{role_of(replica.url)}"']
    as_superuser(closed, *asked)
    replica.sink.prepare()
    replica.deliver(deliver)
    assert replica.rows("select id from accounts") == [(1,)]


@pytest.mark.parametrize(
    "taken",
    ["insert on table public.accounts", "usage on schema public", "update on table penstock.progress"],
)
def test_a_right_that_is_taken_away_between_two_batches_is_named(
    closed: str, new_replica: NewReplica, taken: str
) -> None:
    as_superuser(closed, "create table accounts (id int primary key, email text, note text)")
    new_replica(closed)  # so that none of the tables belongs to the role
    grants = "grant all on all tables in schema penstock, public to {role}", "grant usage on schema penstock to {role}"
    replica = new_replica(new_role(closed, *MINIMUM, *grants))
    replica.deliver(accounts(("insert", account(1, "a"))))
    as_superuser(closed, f"revoke {taken} from {role_of(replica.url)}")
    asked = refusal(lambda: replica.deliver(accounts(("insert", account(2, "b")), lsn=0x1010)))
    right, kind, *name = taken.replace(" on ", " ").split()
    quoted = ".".join(f'"{part}"' for part in name[0].split("."))
    assert asked == [f'GRANT {right.upper()} ON {kind.upper()} {quoted} TO "{role_of(replica.url)}"']


def test_a_table_that_has_to_be_altered_and_belongs_to_somebody_else_is_refused(
    closed: str, new_replica: NewReplica
) -> None:
    as_superuser(closed, "create table accounts (id int primary key, email text)")
    replica = new_replica(new_role(closed, *MINIMUM, "grant all on accounts to {role}"))
    with pytest.raises(SinkRefused, match='belongs to role "postgres"') as refused:
        replica.deliver(accounts(("insert", account(1, "a"))))
    assert refused.value.advice is not None
    as_superuser(closed, refused.value.advice.removeprefix("Run there: ").split(" (or ")[0])
    replica.sink.prepare()
    replica.deliver(accounts(("insert", account(1, "a"))))
    assert replica.rows("select id, note from accounts") == [(1, "")]


@pytest.mark.parametrize("copies", [True, False])
def test_a_check_names_what_is_missing_for_the_sources_tables(closed: str, sink: NewSink, copies: bool) -> None:
    as_superuser(closed, "create schema shop", "create table shop.orders (id int)", "create table shop.other (id int)")
    url = new_role(closed, MINIMUM[0])
    role, checked = role_of(url), sink(url)
    checked.source_tables, checked.source_is_copied = [("shop", "orders"), ("new", "made"), ("public", "fresh")], copies
    rights = "USAGE, CREATE" if copies else "USAGE"
    assert refusal(checked.check) == [
        f'GRANT {rights} ON SCHEMA "shop" TO "{role}"',
        f'GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON TABLE "shop"."orders" TO "{role}"',
        f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role}"',
    ]


def test_a_check_names_all_that_is_missing_at_once(closed: str, sink: NewSink) -> None:
    url = new_role(closed)
    checked = sink(url)
    checked.source_tables, checked.source_is_copied = [("public", "orders")], True
    on_database, on_schema = refusal(checked.check)
    assert "CREATE ON DATABASE" in on_database
    assert on_schema == f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role_of(url)}"'


def test_a_check_of_existing_tables_names_one_that_is_not_there(closed: str, sink: NewSink) -> None:
    checked = sink(closed, schema="existing")
    checked.source_tables = [("public", "absent")]
    with pytest.raises(SinkRefused, match=r"the target has no table public\.absent"):
        checked.check()


def test_a_check_says_which_server_it_is_and_that_nothing_is_at_work(closed: str, sink: NewSink) -> None:
    assert sink(closed).check() == [Finding("sink replica", True, "The target runs Postgres 18.")]


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_a_check_warns_where_foreign_keys_are_at_work_and_the_remedy_helps(
    closed: str, sink: NewSink, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_role(closed, *MINIMUM)
    _, warning = sink(url).check()
    assert warning.ok is None
    assert "triggers and foreign keys of the target are at work" in warning.message
    with caplog.at_level(logging.WARNING):
        sink(url).prepare()
    assert "session_replication_role" in caplog.text
    as_superuser(closed, warning.remedy.removeprefix("Run there as superuser: ").removesuffix("."))
    assert len(sink(url).check()) == 1


def test_the_sources_own_database_is_refused_whatever_it_is_called(
    database: str, target_database: str, sink: NewSink
) -> None:
    own, other = sink(database.replace("127.0.0.1", "localhost")), sink(target_database)
    own.source = other.source = database
    for action in (own.check, own.prepare):
        with pytest.raises(SinkRefused, match="is the source's own database"):
            action()
    assert other.prepare() is None


def test_a_copy_of_the_sources_server_is_no_source_but_a_primary_of_it_is(
    server_directory: Path, sink: NewSink
) -> None:
    """All three say that they are the same system."""
    with EmbeddedPostgres(server_directory / "primary") as primary:
        url = primary.create_database("shop")
        with primary.standby(server_directory / "standby") as standby:
            reading = sink(url)
            reading.source = standby.url_of("shop")
            with pytest.raises(SinkRefused, match="is the source's own database"):
                reading.check()
            standby.execute("select pg_promote()")
            copied = sink(standby.url_of("shop"))
            copied.source = url
            assert copied.prepare() is None


def test_a_source_that_does_not_answer_is_no_reason_to_stop(database: str, sink: NewSink) -> None:
    found = sink(database)
    found.source = "postgresql://nobody@127.0.0.1:1/nowhere"
    assert found.prepare() is None
