"""What a Postgres target may answer, and whether the sink tries again or stops: real errors of a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo

from penstock.error_policy import Verdict, policy_for
from penstock.errors import PenstockError, SinkRefused, SinkUnavailable
from penstock.testing.change_batches import changes, relation
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.sinks.test_postgres_sink import Replica, account, accounts
from tests.target_roles import as_superuser, new_role, role_of

pytestmark = pytest.mark.process

NewReplica = Callable[..., Replica]


@pytest.fixture
def new_replica(tmp_path: Path) -> Iterator[NewReplica]:
    with ExitStack() as made:

        def new(url: str, **settings: Any) -> Replica:
            found = Replica(url, tmp_path, **settings)
            made.callback(found.sink.close)
            return found

        yield new


@pytest.fixture
def replica(database: str, new_replica: NewReplica) -> Replica:
    """With one row."""
    found = new_replica(database, lock_timeout="100ms")
    found.execute("create table accounts (id int primary key, email text, note text)")
    found.deliver(accounts(("insert", account(1, "a"))))
    return found


def one_more(replica: Replica) -> None:
    """The batch after the first one."""
    replica.deliver(accounts(("update", account(1, "b")), ("insert", account(2, "c")), lsn=0x1010))


def why_not(action: Callable[[], object]) -> PenstockError:
    with pytest.raises((SinkRefused, SinkUnavailable)) as problem:
        action()
    return problem.value


def is_tried_again(error: PenstockError) -> bool:
    return policy_for(error).verdict is Verdict.RETRY


def goes_on(replica: Replica) -> None:
    """As delivery does after an error: looks anew, and the batch comes again."""
    replica.sink.prepare()
    one_more(replica)
    assert replica.rows("select id, email from accounts order by id") == [(1, "b"), (2, "c")]
    assert replica.rows("select lsn::text from penstock.progress") == [("0/2000",)]


def raising(replica: Replica, sqlstate: str) -> None:
    """A trigger that answers every write with this, until it is dropped; it fires whatever the replication role is."""
    replica.execute(
        f"""
        create function refuse() returns trigger language plpgsql as
        $$ begin raise 'as if it were so' using errcode = '{sqlstate}'; end $$;
        create trigger refusing before insert or update on accounts execute function refuse();
        alter table accounts enable always trigger refusing
        """
    )


@pytest.mark.parametrize("sqlstate", ["40001", "53100", "53200", "57014", "58030"])
def test_what_passes_is_tried_again_and_nothing_of_the_batch_stays(replica: Replica, sqlstate: str) -> None:
    raising(replica, sqlstate)
    error = why_not(lambda: one_more(replica))
    assert is_tried_again(error)
    assert "as if it were so" in str(error)
    assert replica.rows("select id, email from accounts") == [(1, "a")]
    replica.execute("drop trigger refusing on accounts")
    goes_on(replica)


def test_a_full_disk_says_what_to_do(replica: Replica) -> None:
    raising(replica, "53100")
    assert policy_for(why_not(lambda: one_more(replica))).advice.startswith("Make room on the target's disk")


@pytest.mark.parametrize("sqlstate", ["22003", "23514", "42501", "P0001"])
def test_what_does_not_pass_stops_the_sink_and_nothing_of_the_batch_stays(replica: Replica, sqlstate: str) -> None:
    raising(replica, sqlstate)
    error = why_not(lambda: one_more(replica))
    assert not is_tried_again(error)
    assert "as if it were so" in str(error)
    replica.execute("drop trigger refusing on accounts")
    goes_on(replica)


@pytest.mark.parametrize("mode", ["access exclusive", "share", "exclusive"])
def test_a_lock_that_somebody_holds_is_named_and_waited_for(replica: Replica, mode: str) -> None:
    with psycopg.connect(replica.url, application_name="a report") as user:
        user.execute(f"lock table accounts in {mode} mode".encode())
        error = why_not(lambda: one_more(replica))
        assert is_tried_again(error)
        assert error.advice is not None
        assert f"process {user.info.backend_pid} (user postgres, application a report, " in error.advice
        assert f"{mode.title().replace(' ', '')}Lock on public.accounts" in error.advice
    goes_on(replica)


def test_a_row_that_somebody_holds_is_waited_for(replica: Replica) -> None:
    with psycopg.connect(replica.url) as user:
        user.execute("update accounts set note = 'mine' where id = 1")
        error = why_not(lambda: one_more(replica))
        assert is_tried_again(error)
        assert "RowExclusiveLock on public.accounts" in (error.advice or "")
        user.rollback()
    goes_on(replica)


def test_a_deadlock_with_somebody_is_tried_again(database: str, new_replica: NewReplica) -> None:
    """The other one does not look for deadlocks, so that it is always ours that ends."""
    replica = new_replica(database)
    replica.execute("create table accounts (id int primary key, email text, note text)")
    replica.deliver(accounts(("insert", account(1, "a"))))
    with psycopg.connect(database) as user:
        user.execute("set deadlock_timeout = '1h'")
        user.execute("select from accounts where id = 1 for update")
        waiting = threading.Thread(target=lambda: user.execute("select from penstock.progress for update"))
        problems: list[PenstockError] = []
        ours = threading.Thread(target=lambda: problems.append(why_not(lambda: one_more(replica))))
        ours.start()
        blocked = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        wait_until(lambda: replica.rows(blocked), what="our transaction to wait")
        waiting.start()
        ours.join(30)
        waiting.join(30)
        user.rollback()
    assert "deadlock detected" in str(problems[0])
    assert is_tried_again(problems[0])
    goes_on(replica)


@pytest.mark.parametrize("setting", ["array_nulls = off", "quote_all_identifiers = on"])
def test_settings_that_change_how_text_is_read_or_types_are_named_do_not_hold(
    database: str, new_replica: NewReplica, setting: str
) -> None:
    replica = new_replica(new_role(database, "alter role {role} superuser", f"alter role {{role}} set {setting}"))
    as_superuser(
        database, "create table lists (id int primary key, v text[])", "create view seen as select * from public.lists"
    )
    lists = relation("public", "lists", id="integer", v="text[]", key=("id",))
    replica.deliver([changes(lists, [("insert", {"id": 1, "v": "{x,NULL}"})], lsn=0x10)])
    with psycopg.connect(database) as connection:
        assert connection.execute("select v from lists").fetchall() == [(["x", None],)]


@pytest.mark.parametrize(
    "setting",
    [
        "statement_timeout = '250ms'", "lock_timeout = '250ms'", "transaction_timeout = '250ms'",
        "idle_session_timeout = '250ms'",
        "default_transaction_isolation = 'serializable'", "synchronous_commit = off", "DateStyle = 'German'",
    ],
)  # fmt: skip
def test_settings_of_the_role_do_not_hold_for_the_sink(database: str, new_replica: NewReplica, setting: str) -> None:
    url = new_role(database, "alter role {role} superuser", f"alter role {{role}} set {setting}")
    replica = new_replica(url)
    as_superuser(
        database,
        "create table accounts (id int primary key, email text, note text)",
        "create table seen (setting text)",
        """
        create function look() returns trigger language plpgsql as $$ begin
            perform pg_sleep(0.3);
            insert into public.seen select current_setting(name) from pg_settings
            where name in ('synchronous_commit', 'default_transaction_isolation') order by name;
            return new;
        end $$;
        create trigger looking before insert on accounts for each row execute function look();
        alter table accounts enable always trigger looking
        """,
    )
    replica.deliver(accounts(("insert", account(1, "a"))))
    with psycopg.connect(database) as connection:
        assert connection.execute("select id from accounts").fetchall() == [(1,)]
        assert connection.execute("select * from seen").fetchall() == [("read committed",), ("on",)]


def test_a_target_that_is_made_read_only_is_tried_again_until_it_is_not(replica: Replica) -> None:
    name = conninfo.conninfo_to_dict(replica.url)["dbname"]
    replica.execute(f'alter database "{name}" set default_transaction_read_only = on')
    replica.sink.close()
    for action in (replica.sink.check, replica.sink.prepare, lambda: one_more(replica)):
        error = why_not(action)
        assert is_tried_again(error)
        assert "read-only: a standby, or default_transaction_read_only is on" in (error.advice or "")
    with psycopg.connect(replica.url, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        connection.execute(f'alter database "{name}" reset default_transaction_read_only'.encode())
    replica.sink.close()
    goes_on(replica)


def test_a_standby_is_tried_again_until_it_is_promoted(server_directory: Path, new_replica: NewReplica) -> None:
    with EmbeddedPostgres(server_directory / "primary") as primary:
        replica = new_replica(primary.create_database("target"))
        replica.execute("create table accounts (id int primary key, email text, note text)")
        replica.deliver(accounts(("insert", account(1, "a"))))
        with primary.standby(server_directory / "standby") as standby:
            url = standby.url_of("target")
            error = why_not(lambda: new_replica(url))
            assert is_tried_again(error)
            assert "Point `url` at the primary" in (error.advice or "")
            standby.execute("select pg_promote()")
            promoted = new_replica(url)
            promoted._number = replica._number
            goes_on(promoted)


def test_no_connection_left_is_tried_again(database: str, new_replica: NewReplica) -> None:
    url = new_role(database, 'grant create on database "{database}" to {role}', "grant all on schema public to {role}")
    replica = new_replica(url)
    replica.deliver(accounts(("insert", account(1, "a"))))
    as_superuser(database, f"alter role {role_of(url)} connection limit 0")
    replica.sink.close()
    error = why_not(lambda: one_more(replica))
    assert is_tried_again(error)
    assert "too many connections" in str(error)
    as_superuser(database, f"alter role {role_of(url)} connection limit -1")
    goes_on(replica)


def test_a_password_that_was_changed_stops_the_sink_and_is_not_shown(
    server_directory: Path, new_replica: NewReplica
) -> None:
    with EmbeddedPostgres(server_directory) as server:
        target = server.create_database("target")
        url = conninfo.make_conninfo(
            new_role(target, "alter role {role} superuser password 'old-secret'"), password="old-secret"
        )
        rules = Path(server.execute("show hba_file")[0][0])
        rules.write_text(f"host all {role_of(url)} all scram-sha-256\n{rules.read_text()}")
        server.execute("select pg_reload_conf()")
        replica = new_replica(url)
        replica.deliver(accounts(("insert", account(1, "a"))))
        as_superuser(target, f"alter role {role_of(url)} password 'new-secret'")
        replica.sink.close()
        error = why_not(lambda: one_more(replica))
        assert not is_tried_again(error)
        assert "password authentication failed" in str(error)
        assert "the password or the database in the sink's `url`" in (error.advice or "")
        assert "secret" not in f"{error} {error.advice}"


def test_a_database_that_is_dropped_stops_the_sink(postgres18: EmbeddedPostgres, new_replica: NewReplica) -> None:
    replica = new_replica(postgres18.create_database("dropped_target"))
    replica.deliver(accounts(("insert", account(1, "a"))))
    postgres18.drop_database("dropped_target")
    first = why_not(lambda: one_more(replica))  # the session ended
    error = why_not(replica.sink.prepare) if is_tried_again(first) else first
    assert not is_tried_again(error)
    assert 'database "dropped_target" does not exist' in str(error)
