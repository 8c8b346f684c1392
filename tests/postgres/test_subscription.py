from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from penstock.errors import NoFreeSlot, SlotBusy, SourceRefused, SourceUnavailable
from penstock.postgres import slot
from penstock.postgres import transactions as locks
from penstock.postgres.connection import Connection, connect
from penstock.settings.tables import TableSelection
from penstock.subscription import subscription
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres

pytestmark = pytest.mark.process

PUBLIC = TableSelection()
both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def held_by(connection: Connection, publication: str) -> list[str]:
    rows = connection.execute(
        "select tablename from pg_publication_tables where pubname = %s order by 1", [publication]
    )
    return [name for (name,) in rows]


def as_role(database: str, role: str) -> str:
    return database.replace("postgres@", f"{role.replace(' ', '%20')}@")


@both_versions
def test_publications_and_slot_are_made_together_and_named_together(connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key)")
    made = subscription.create(connection, "shop", PUBLIC)
    assert made.slot == f"shop_{made.id}"
    assert made.publications == ("shop", "shop_inserts")
    comment = connection.execute("select obj_description(oid) from pg_publication where pubname = 'shop'").fetchone()
    assert comment == (f"penstock id={made.id}",)
    assert connection.execute("select bool_and(pubviaroot) from pg_publication").fetchone() == (True,)
    state = subscription.slot_state(connection, made.slot)
    assert state is not None
    assert (state.plugin, state.active, state.lost_because) == ("pgoutput", False, None)
    assert state.confirmed_flush_lsn == made.consistent_point
    assert held_by(connection, "shop") == ["t"]


@both_versions
def test_a_second_create_changes_nothing(connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key)")
    first = subscription.create(connection, "shop", PUBLIC)
    before = connection.execute("select xmin, oid from pg_publication order by oid").fetchall()
    again = subscription.create(connection, "shop", PUBLIC)
    assert (again.id, again.slot, again.consistent_point) == (first.id, first.slot, None)
    assert connection.execute("select xmin, oid from pg_publication order by oid").fetchall() == before
    assert subscription.find(connection, "shop") == again


def test_a_publication_left_without_its_slot_gets_one(connection: Connection) -> None:
    first = subscription.create(connection, "shop", PUBLIC)
    connection.execute("select pg_drop_replication_slot(%s)", [first.slot])
    again = subscription.create(connection, "shop", PUBLIC)
    assert again.slot == first.slot
    assert again.consistent_point is not None


def test_a_recreated_publication_gets_a_fresh_slot(connection: Connection) -> None:
    first = subscription.create(connection, "shop", PUBLIC)
    subscription.destroy(connection, "shop")
    assert subscription.create(connection, "shop", PUBLIC).slot != first.slot


@pytest.mark.parametrize("taken", ["shop", "shop_inserts"])
def test_a_publication_of_somebody_else_is_not_touched(connection: Connection, taken: str) -> None:
    connection.execute("create table public.t (id int primary key)")
    connection.execute(f"create publication {taken}; comment on publication {taken} is 'mine'")
    for act in (
        lambda: subscription.create(connection, "shop", PUBLIC),
        lambda: subscription.destroy(connection, "shop"),
    ):
        with pytest.raises(SourceRefused, match=f'"{taken}" that does not belong'):
            act()
    assert connection.execute("select pubname, obj_description(oid) from pg_publication").fetchall() == [
        (taken, "mine")
    ]
    assert held_by(connection, taken) == []


def test_the_companion_of_one_pipeline_is_not_the_publication_of_another(connection: Connection) -> None:
    subscription.create(connection, "shop", PUBLIC)
    with pytest.raises(SourceRefused, match='"shop_inserts" that does not belong'):
        subscription.create(connection, "shop_inserts", PUBLIC)


def test_destroy_says_what_it_removed_and_leaves_the_data(connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key); insert into public.t values (1)")
    made = subscription.create(connection, "shop", PUBLIC)
    assert subscription.destroy(connection, "shop") == [
        f"replication slot {made.slot}", "publication shop", "publication shop_inserts",
    ]  # fmt: skip
    assert subscription.destroy(connection, "shop") == []
    assert subscription.find(connection, "shop") is None
    assert connection.execute("select id from public.t").fetchall() == [(1,)]


def test_a_slot_in_use_is_not_dropped(connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = subscription.create(connection, "shop", PUBLIC)
    monkeypatch.setattr(slot, "_RELEASE_PATIENCE", 0.2)
    with closing(connect(f"{database}?replication=database")) as reader:
        reader.pgconn.send_query(
            f"START_REPLICATION SLOT {made.slot} LOGICAL 0/0 (proto_version '1', publication_names 'shop')".encode()
        )
        state = wait_until(
            lambda: s if (s := subscription.slot_state(connection, made.slot)) and s.active else None, what="a reader"
        )
        assert state
        with pytest.raises(SlotBusy, match=f"server process {state.active_pid};"):
            subscription.destroy(connection, "shop")
        assert subscription.find(connection, "shop") is not None


@both_versions
def test_two_creators_at_the_same_moment_make_one_subscription(database: str, connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key)")
    together = threading.Barrier(4)

    def creator(_: int) -> str:
        with connect(database) as session:
            together.wait()
            return subscription.create(session, "shop", PUBLIC).slot

    with ThreadPoolExecutor(4) as pool:
        slots = set(pool.map(creator, range(4)))
    assert len(slots) == 1
    found = connection.execute(
        "select slot_name from pg_replication_slots where database = current_database()"
    ).fetchall()
    assert found == [(slots.pop(),)]
    assert connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


def test_a_lock_that_another_holds_too_long_is_a_clear_error(database: str, connection: Connection) -> None:
    with (
        connect(database) as other,
        locks.subscription_lock(other, "shop", 5),
        pytest.raises(SourceUnavailable, match=r"Another process has been working on the subscription shop"),
    ):
        subscription.create(connection, "shop", PUBLIC, patience=0.1)
    assert subscription.find(connection, "shop") is None
    assert connection.execute("show lock_timeout").fetchone() == ("0",)


def test_a_connection_that_breaks_while_it_holds_the_lock_reports_what_broke_and_frees_the_lock(
    database: str, connection: Connection
) -> None:
    def break_while_locked(doomed: Connection) -> None:
        with locks.subscription_lock(doomed, "shop", 5):
            connection.execute("select pg_terminate_backend(%s, 10000)", [doomed.info.backend_pid])
            raise ValueError("what broke")

    with connect(database) as doomed, pytest.raises(ValueError, match="what broke"):
        break_while_locked(doomed)
    subscription.create(connection, "shop", PUBLIC, patience=5)


def test_a_locked_table_is_waited_for_briefly_and_tried_again(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("create table public.t (id int primary key)")
    monkeypatch.setattr(locks, "_LOCK_TIMEOUT", "50ms")
    with psycopg.connect(database) as holder:
        holder.execute("lock table public.t in access exclusive mode")
        with pytest.raises(
            SourceUnavailable, match="Editing the publication shop failed: canceling statement due to lock"
        ):
            subscription.create(connection, "shop", PUBLIC)
        holder.rollback()
    assert subscription.create(connection, "shop", PUBLIC).consistent_point is not None
    assert held_by(connection, "shop") == ["t"]


def test_a_slot_that_waits_for_a_transaction_says_for_whom(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_FIRST_WORD_AFTER", 0.05)
    words: list[str] = []
    spoken = threading.Event()

    def hear(text: str) -> None:
        words.append(text)
        spoken.set()

    with psycopg.connect(database) as holder, ThreadPoolExecutor(1) as pool:
        pid = holder.info.backend_pid
        holder.execute("select pg_current_xact_id()")
        making = pool.submit(subscription.create, connection, "shop", PUBLIC, report=hear)
        assert spoken.wait(30)
        holder.commit()
        assert making.result(30).consistent_point is not None
    assert f"pid {pid} of postgres" in words[0]


def test_existing_publications_are_used_as_they_are(connection: Connection) -> None:
    connection.execute('create publication "Mine"; create publication theirs for all tables')
    with pytest.raises(SourceRefused, match='no publication "nobodys"'):
        subscription.create(connection, "shop", PUBLIC, ["Mine", "nobodys"])
    assert subscription.find(connection, "shop", ["theirs", "Mine"]) is None
    made = subscription.create(connection, "shop", PUBLIC, ["theirs", "Mine"])
    assert (made.publications, made.managed) == (("Mine", "theirs"), False)
    again = subscription.find(connection, "shop", ["Mine", "theirs"])
    assert again is not None
    assert again.slot == made.slot
    assert subscription.create(connection, "shop", PUBLIC, ["Mine"]).slot == made.slot
    connection.execute("create publication shop")  # of somebody else
    assert subscription.create(connection, "shop", PUBLIC, ["Mine"]).slot == made.slot
    connection.execute("drop publication theirs")
    assert subscription.destroy(connection, "shop", ["Mine", "theirs"]) == [f"replication slot {made.slot}"]
    assert connection.execute("select pubname from pg_publication order by 1").fetchall() == [("Mine",), ("shop",)]


def test_without_create_on_the_database_the_exact_grant_is_named(
    database: str, connection: Connection, guest: str
) -> None:
    with connect(as_role(database, guest)) as session:
        with pytest.raises(SourceRefused, match="Creating the publication shop failed: permission denied") as caught:
            subscription.create(session, "shop", PUBLIC)
        expected = f'GRANT CREATE ON DATABASE "{connection.info.dbname}" TO "{guest}";'
        assert caught.value.advice == f"As an administrator run: {expected}"
        connection.execute(expected.encode())
        # The next thing that it lacks is the right to make slots.
        with pytest.raises(SourceRefused, match="Creating the replication slot") as caught:
            subscription.create(session, "shop", PUBLIC)
        expected = f'ALTER ROLE "{guest}" REPLICATION;'
        assert caught.value.advice == f"As an administrator run: {expected}"
        connection.execute(expected.encode())
    with connect(as_role(database, guest)) as session:
        assert subscription.create(session, "shop", PUBLIC).consistent_point is not None
        subscription.destroy(session, "shop")


def test_tables_of_another_owner_need_the_exact_grant_that_is_named(
    database: str, connection: Connection, guest: str
) -> None:
    owner = f"owner_{uuid.uuid4().hex[:8]}"
    connection.execute(
        sql.SQL(
            "create role {0}; create table public.t (id int primary key); alter table public.t owner to {0}"
        ).format(sql.Identifier(owner))
    )
    connection.execute(
        sql.SQL("grant create on database {} to {}; alter role {} replication").format(
            sql.Identifier(connection.info.dbname), sql.Identifier(guest), sql.Identifier(guest)
        )
    )
    with connect(as_role(database, guest)) as session:
        with pytest.raises(SourceRefused, match="must be owner of table t") as caught:
            subscription.create(session, "shop", PUBLIC)
        expected = f'GRANT "{owner}" TO "{guest}";'
        assert str(caught.value.advice).endswith(f"run: {expected}")
        connection.execute(expected.encode())
        subscription.create(session, "shop", PUBLIC)
        assert held_by(session, "shop") == ["t"]
        subscription.destroy(session, "shop")
    connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(owner)))


def test_a_wal_level_below_logical_is_refused_with_the_exact_line() -> None:
    with EmbeddedPostgres(settings={"wal_level": "replica"}) as server, connect(server.url) as connection:
        with pytest.raises(SourceRefused, match="wal_level = replica") as caught:
            subscription.create(connection, "shop", PUBLIC)
        assert "ALTER SYSTEM SET wal_level = 'logical';" in str(caught.value.advice)
        assert connection.execute("select count(*) from pg_publication").fetchone() == (0,)


def test_no_free_slot_is_told_apart_and_mended_by_dropping_one() -> None:
    with EmbeddedPostgres(settings={"max_replication_slots": "1"}) as server, connect(server.url) as connection:
        subscription.create(connection, "first", PUBLIC)
        with pytest.raises(NoFreeSlot, match="no room for the slot second_"):
            subscription.create(connection, "second", PUBLIC)
        subscription.destroy(connection, "first")
        assert subscription.create(connection, "second", PUBLIC).consistent_point is not None


@pytest.mark.parametrize("version", [16, 18])
def test_a_slot_whose_wal_was_removed_is_lost_and_says_why(version: int) -> None:
    settings = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with EmbeddedPostgres(version=version, settings=settings) as server, connect(server.url) as connection:
        made = subscription.create(connection, "shop", PUBLIC)
        good = subscription.slot_state(connection, made.slot)
        assert good is not None
        assert good.lost_because is None
        assert 0 <= good.retained_bytes < 1 << 20
        for _ in range(3):
            connection.execute("select pg_logical_emit_message(false, 'filler', 'x'); select pg_switch_wal()")
        connection.execute("checkpoint")
        lost = subscription.slot_state(connection, made.slot)
        assert lost is not None
        assert lost.wal_status == "lost"
        assert "max_slot_wal_keep_size" in str(lost.lost_because)
        assert subscription.slot_state(connection, "no_such_slot") is None


def test_a_slot_on_a_standby_serves_the_primarys_publication(
    postgres18: EmbeddedPostgres, standby18: EmbeddedPostgres
) -> None:
    database = postgres18.create_database("for_standby")
    there = standby18.url_of("for_standby")
    with connect(database) as primary:
        primary.execute("create table public.t (id int primary key)")
        made = subscription.create(primary, "shop", PUBLIC)
        end = primary.execute("select pg_current_wal_flush_lsn()").fetchall()
        wait_until(lambda: standby18.execute("select pg_last_wal_replay_lsn() >= %s", end[0])[0][0], what="replay")
        with connect(there) as standby, ThreadPoolExecutor(1) as pool:
            with pytest.raises(SourceRefused, match="is a standby and the publication nobodys does not exist"):
                subscription.create(standby, "nobodys", PUBLIC)
            making = pool.submit(subscription.create, standby, "shop", PUBLIC)
            wait_until(
                lambda: primary.execute("select pg_log_standby_snapshot()") and making.done(), what="the standby's slot"
            )
            mirrored = making.result()
            assert (mirrored.slot, mirrored.publications) == (made.slot, made.publications)
            assert subscription.destroy(standby, "shop") == [f"replication slot {made.slot}"]
        assert subscription.find(primary, "shop") is not None
    postgres18.drop_database("for_standby")
