from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.errors import ConfigError, NoFreeSlot, SlotBusy, SourceError, SourceRefused, SourceUnavailable
from penstock.postgres.connection import connect, redacted, translated_errors
from penstock.testing.embedded_postgres import EmbeddedPostgres

FEW_CONNECTIONS = {
    "max_connections": "3", "superuser_reserved_connections": "0", "max_wal_senders": "2",
}  # fmt: skip


@pytest.fixture(scope="module")
def strict_server() -> Iterator[EmbeddedPostgres]:
    """Few connections, and passwords asked of everyone but postgres."""
    with EmbeddedPostgres(settings=FEW_CONNECTIONS) as server:
        server.execute("create role guest login password 'correct horse'")
        access = server.directory / "data" / "pg_hba.conf"
        access.write_text("host all postgres 127.0.0.1/32 trust\nhost all guest 127.0.0.1/32 scram-sha-256\n")
        server.restart()
        yield server


def as_guest(server: EmbeddedPostgres, login: str) -> str:
    return server.url.replace("postgres@", f"{login}@")


def test_the_session_is_pinned_whatever_the_role_and_the_database_say(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as session:
        name = session.info.dbname
        for setting in (
            "DateStyle = 'German'",
            "search_path = public",
            "statement_timeout = '1s'",
            "TimeZone = 'Asia/Tokyo'",
        ):
            session.execute(f"alter database {name} set {setting}")
    with connect(database) as connection:
        row = connection.execute(
            "select now()::text ~ '^\\d{4}-\\d\\d-\\d\\d.*\\+00$', current_setting('search_path'), "
            "current_setting('statement_timeout'), current_setting('application_name')"
        ).fetchone()
    assert row == (True, "", "0", "penstock")


def test_the_settings_outlive_a_rollback_of_the_first_transaction(database: str) -> None:
    with connect(database, autocommit=False) as connection:
        connection.rollback()
        assert connection.execute("show bytea_output").fetchone() == ("hex",)
        assert connection.execute("show row_security").fetchone() == ("off",)


def test_a_replication_connection_is_pinned_as_well(postgres18: EmbeddedPostgres) -> None:
    with connect(f"{postgres18.url}?replication=database") as connection:
        assert connection.execute("show DateStyle").fetchone() == ("ISO, MDY",)
        assert connection.execute("IDENTIFY_SYSTEM").fetchone() is not None


def test_the_url_overrules_our_defaults(database: str) -> None:
    with connect(f"{database}?application_name=mine") as connection:
        assert connection.execute("show application_name").fetchone() == ("mine",)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@db.example:5433/shop?sslpassword=s3cret", "postgresql://me@db.example:5433/shop"),
        ("host=db.example user=me password='s3cret word'", "postgresql://me@db.example/me"),
        ("postgresql://me:s3 cret@db.example/shop", "(a URL that cannot be read)"),
        ("postgresql:///shop?host=/run/postgresql&password=s3cret", "postgresql:///run/postgresql/shop"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_a_url_that_cannot_be_read_is_a_config_error_that_does_not_quote_it() -> None:
    with pytest.raises(ConfigError) as caught:
        connect("postgresql://me:s3 cret@db.example/shop")
    assert "s3" not in f"{caught.value} {caught.value.advice} {caught.value.__cause__}"


def test_nobody_at_the_address_is_worth_another_try() -> None:
    with pytest.raises(SourceUnavailable, match=r"Connecting to postgresql://me@127.0.0.1:1/shop failed"):
        connect("postgresql://me:s3cret@127.0.0.1:1/shop")


@pytest.mark.server
@pytest.mark.parametrize("login", ["guest:wrong", "guest", "stranger:s3cret"])
def test_a_refused_login_is_not_tried_again(strict_server: EmbeddedPostgres, login: str) -> None:
    with pytest.raises(SourceRefused, match="Connecting to postgresql://") as caught:
        connect(as_guest(strict_server, login))
    assert "wrong" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.server
def test_the_right_password_is_let_in(strict_server: EmbeddedPostgres) -> None:
    with connect(as_guest(strict_server, "guest:correct%20horse")) as connection:
        assert connection.execute("select current_user").fetchone() == ("guest",)


@pytest.mark.server
def test_a_database_that_does_not_exist_is_refused(strict_server: EmbeddedPostgres) -> None:
    with pytest.raises(SourceRefused, match="no_such_database"):
        connect(strict_server.url_of("no_such_database"))


@pytest.mark.server
def test_too_many_clients_is_worth_another_try(strict_server: EmbeddedPostgres) -> None:
    sessions = [strict_server.connect() for _ in range(3)]
    with pytest.raises(SourceUnavailable):
        connect(strict_server.url)
    for session in sessions:
        session.close()


def test_a_server_that_goes_away_in_mid_session_is_worth_another_try(postgres18: EmbeddedPostgres) -> None:
    with connect(postgres18.url) as connection, connect(postgres18.url) as other:
        other.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(SourceUnavailable, match="Reading the catalog failed: terminating connection"):
            read_something(connection)
        with pytest.raises(SourceUnavailable):
            read_something(connection)


def read_something(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with translated_errors("Reading the catalog"):
        connection.execute("select 1")


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("08006", SourceUnavailable), ("40P01", SourceUnavailable), ("53300", SourceUnavailable), ("53400", NoFreeSlot),
        ("55006", SlotBusy), ("55P03", SourceUnavailable), ("57P03", SourceUnavailable), ("57P04", SourceRefused),
        ("42501", SourceRefused), ("42P01", SourceRefused), ("55000", SourceRefused), ("XX000", SourceError),
    ],
)  # fmt: skip
def test_each_sqlstate_has_its_kind(postgres18: EmbeddedPostgres, sqlstate: str, kind: type[SourceError]) -> None:
    with (
        connect(postgres18.url) as connection,
        pytest.raises(SourceError, match=r"Trying failed: no\. a detail\. a hint\.") as caught,
        translated_errors("Trying"),
    ):
        connection.execute(
            f"do $$ begin raise 'no' using errcode = '{sqlstate}', detail = 'a detail.', hint = 'a hint'; end $$"
        )
    assert type(caught.value) is kind


def test_a_mistake_of_our_own_is_not_dressed_up_as_the_servers(postgres18: EmbeddedPostgres) -> None:
    with connect(postgres18.url) as connection, pytest.raises(psycopg.ProgrammingError), translated_errors("Trying"):
        connection.execute("select %s", [1, 2])
