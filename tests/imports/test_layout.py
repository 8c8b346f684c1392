from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.changes.batch import Relation
from penstock.errors import SourceError, SourceUnavailable
from penstock.pgoutput.messages import RelationMessage, parse
from penstock.postgres.connection import Connection, connect
from penstock.postgres.describe import RelationDescriber
from penstock.postgres.reading.layout import TableLayout, table_layout
from penstock.settings.tables import TableSelection
from penstock.subscription import subscription
from penstock.testing.conditions import wait_until

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)


def oid_of(connection: Connection, name: str = "public.t") -> int:
    row = connection.execute("select %s::regclass::oid", [name]).fetchone()
    assert row is not None
    return int(row[0])


def layout_of(connection: Connection, name: str = "public.t", *publications: str) -> TableLayout:
    found = table_layout(connection, oid_of(connection, name), publications or ("pub",))
    assert found is not None
    return found


def captured(url: str, connection: Connection, insert: str, *publications: str) -> Relation:
    """The relation that capture makes of what pgoutput says when a row is inserted."""
    connection.execute("select pg_create_logical_replication_slot('slot_' || current_database(), 'pgoutput')")
    connection.execute(insert)
    rows = connection.execute(
        "select data from pg_logical_slot_peek_binary_changes('slot_' || current_database(), null, null, "
        "'proto_version', '1', 'publication_names', %s)",
        [",".join(f'"{name}"' for name in publications or ("pub",))],
    ).fetchall()
    # Of a partitioned table, its root comes first, and then the partition.
    message = next(parse(bytes(data)) for (data,) in rows if data[:1] == b"R")
    assert isinstance(message, RelationMessage)
    describer = RelationDescriber(url)
    try:
        return describer(message, {})
    finally:
        describer.close()


TABLES = {
    "plain": ("create table public.t (a int primary key, b text, c numeric(10,2), d varchar(7))", "values (1)"),
    "plain with key": ("create table public.t (b int, a int, primary key (a, b))", "values (1, 2)"),
    "no key": ("create table public.t (a int, b text)", "values (1)"),
    "full": ("create table public.t (a int, b text); alter table public.t replica identity full", "values (1)"),
    "full with primary key": (
        "create table public.t (a int, b int, c text, primary key (b, a)); alter table public.t replica identity full",
        "values (1, 2)",
    ),
    "nothing": ("create table public.t (a int primary key); alter table public.t replica identity nothing", "values (1)"),
    "index": (
        "create table public.t (a int primary key, b int not null, c int not null, d int);"
        "create unique index i on public.t (c, b) include (d); alter table public.t replica identity using index i",
        "values (1, 2, 3)",
    ),
    "index that was dropped": (
        "create table public.t (a int primary key, b int not null); create unique index i on public.t (b);"
        "alter table public.t replica identity using index i; drop index public.i",
        "values (1, 2)",
    ),
    "deferrable key": ("create table public.t (a int primary key deferrable, b int)", "values (1)"),
    "generated": (
        "create table public.t (a int primary key, b int generated always as (a + 1) stored, c text)", "values (1)",
    ),
    "types": (
        "create type public.mood as enum ('sad', 'happy'); create domain public.price as numeric(12, 4);"
        "create domain public.prices as public.price[]; create type public.pair as (x int, y text);"
        "create type public.\"Odd Type\" as enum ('a');"
        "create table public.t (a public.mood primary key, b public.price, c public.prices, d public.mood[], e public.pair, "
        "f int[][], g varchar(5)[], h timestamptz(3), i char(4), j bit(3), k interval day to second, l \"char\", "
        "m box[], n int4range, o public.\"Odd Type\", p bpchar, q uuid, r jsonb, s public.price[], t numeric(3)[])",
        "values ('sad')",
    ),
    "dropped columns": (
        "create table public.t (x int, a int, y text, b int, z int, primary key (b, a));"
        "alter table public.t drop column x; alter table public.t drop column y; alter table public.t add c text",
        "values (1, 2)",
    ),
    "partition root": (
        "create table public.t (a int, day int, b text, primary key (day, a)) partition by list (day);"
        "create table public.one (b text, gone int, day int not null, a int not null); alter table public.one drop gone;"
        "alter table public.t attach partition public.one for values in (1)",
        "values (1, 1)",
    ),
    "partition root with a key of its own only": (
        "create table public.t (a int not null, b text) partition by list (a);"
        "create table public.one partition of public.t for values in (1);"
        "alter table only public.t add primary key (a)",
        "values (1)",
    ),
    "odd names": (
        'create table public.t (a int primary key, "with space" int, "quo""te" text, "Capital" int, "100%" int, '
        '"{brace}" int, "🐘" int); alter table public.t rename a to "select"',
        "values (1)",
    ),
    "no columns": ("create table public.t ()", "default values"),
}  # fmt: skip


@both_versions
@pytest.mark.parametrize("name", TABLES)
def test_the_relation_is_the_one_that_capture_sees(connection: Connection, database: str, name: str) -> None:
    definition, insert = TABLES[name]
    connection.execute(definition)
    made = subscription.create(connection, "shop", TableSelection(include=("public.t",)))
    layout = layout_of(connection, "public.t", *made.publications)
    assert layout.relation == captured(database, connection, f"insert into public.t {insert}", *made.publications)


@both_versions
@pytest.mark.parametrize("table", ["dot.ted", 'quo"te', "apos'trophe", "100%", "back\\slash", "{brace}", "🐘"])
def test_the_relation_of_a_table_with_an_odd_name_is_the_one_that_capture_sees(
    connection: Connection, database: str, table: str
) -> None:
    name = sql.Identifier("Odd {schema}", table)
    connection.execute(
        sql.SQL('create schema "Odd {{schema}}"; create table {0} (a int primary key);').format(name)
        + sql.SQL("create publication pub for table {0}").format(name)
    )
    text = name.as_string(connection)
    relation = captured(database, connection, f"insert into {text} values (1)")
    assert layout_of(connection, text).relation == relation
    assert (relation.schema, relation.table) == ("Odd {schema}", table)


USERS_PUBLICATIONS = {
    "list of columns": "create publication pub for table public.t (c, a)",
    "list of columns without the key": "create publication pub for table public.t (c) with (publish = 'insert')",
    "row filter": "create publication pub for table public.t where (a > 0)",
    "all tables": "create publication pub for all tables",
    "all tables of a schema": "create publication pub for tables in schema public",
}


@both_versions
@pytest.mark.parametrize("name", USERS_PUBLICATIONS)
def test_the_relation_in_a_users_publication_is_the_one_that_capture_sees(
    connection: Connection, database: str, name: str
) -> None:
    connection.execute(
        "create table public.t (a int, b int generated always as (a + 1) stored, c text, d int, primary key (a))"
    )
    connection.execute(USERS_PUBLICATIONS[name])
    assert layout_of(connection).relation == captured(database, connection, "insert into public.t values (1)")


@pytest.mark.parametrize(
    "publication",
    [
        "for table public.t with (publish_generated_columns = stored)",
        "for all tables with (publish_generated_columns = stored)",
        "for table public.t with (publish_generated_columns = none)",
        "for table public.t (b, a) with (publish_generated_columns = none)",
    ],
)
def test_generated_columns_are_those_that_the_publication_asks_for(
    connection: Connection, database: str, publication: str
) -> None:
    connection.execute(
        "create table public.t (a int primary key, b int generated always as (a + 1) stored,"
        "c int generated always as (a + 2) virtual, d int);"
        f"create publication pub {publication}"
    )
    relation = captured(database, connection, "insert into public.t values (1)")
    assert layout_of(connection).relation == relation
    assert any(column.name == "b" for column in relation.columns) == ("none" not in publication or "(b" in publication)


@both_versions
def test_a_row_goes_out_if_any_publication_lets_it_through(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int primary key, b text); create publication odd for table public.t where (a % 2 = 1);"
        "create publication named for table public.t where (b = 'x' or b is null);"
        "create publication everything for table public.t;"
        "create publication of_schema for tables in schema public"
    )
    connection.execute(
        "insert into public.t select i, case when i < 5 then 'x' else 'y' end from generate_series(1, 8) i"
    )

    def rows(*publications: str) -> int:
        text = layout_of(connection, "public.t", *publications).row_filter or "true"
        return len(connection.execute(f"select from public.t where {text}").fetchall())

    assert (rows("odd"), rows("named"), rows("odd", "named"), rows("odd", "everything")) == (4, 4, 6, 8)
    assert layout_of(connection, "public.t", "odd", "of_schema").row_filter is None


@both_versions
def test_another_table_that_is_dropped_while_the_publication_is_looked_up_is_no_reason_to_stop(
    connection: Connection, database: str
) -> None:
    connection.execute(
        "create table public.t (a int primary key); create table public.dropped (a int primary key);"
        "create publication pub for table public.t, public.dropped"
    )
    oid, outcome = oid_of(connection), list[object]()

    def look() -> None:
        with connect(database, application_name="looking") as session:
            try:
                outcome.append(table_layout(session, oid, ["pub"]))
            except SourceError as error:
                outcome.append(error)

    with connect(database, autocommit=False) as dropping:
        dropping.execute("drop table public.dropped")
        looking = threading.Thread(target=look)
        looking.start()
        waiting = "select 1 from pg_stat_activity where application_name = 'looking' and wait_event_type = 'Lock'"
        wait_until(lambda: connection.execute(waiting).fetchone(), what="the look to wait for the table's lock")
        dropping.commit()
    looking.join(30)
    assert [type(found) for found in outcome] == [SourceUnavailable]
    assert table_layout(connection, oid, ["pub"]) is not None


@both_versions
def test_what_is_not_there_or_not_published_has_no_layout(connection: Connection) -> None:
    connection.execute("create table public.t (a int primary key); create publication pub for table public.t")
    oid = oid_of(connection)
    assert table_layout(connection, oid, ["pub"]) is not None
    assert table_layout(connection, oid, ["another"]) is None
    assert table_layout(connection, oid, []) is None
    connection.execute("alter publication pub drop table public.t")
    assert table_layout(connection, oid, ["pub"]) is None
    connection.execute("alter publication pub add table public.t; drop table public.t")
    assert table_layout(connection, oid, ["pub"]) is None


PARTITIONED = """
create table public.t (a int, day int, primary key (day, a)) partition by list (day);
create table public.one partition of public.t for values in (1);
create table public.two partition of public.t for values in (2) partition by list (a);
create table public.two_a partition of public.two for values in (1);
create unlogged table public.fast partition of public.t for values in (3);
"""


@both_versions
def test_the_leaves_of_a_partitioned_table_are_its_logged_partitions(connection: Connection) -> None:
    connection.execute(PARTITIONED)
    connection.execute(
        "create foreign data wrapper nowhere; create server far foreign data wrapper nowhere;"
        "create table public.f (a int, day int) partition by list (day);"
        "create foreign table public.away partition of public.f for values in (4) server far;"
        "create publication pub for table public.t, public.f with (publish_via_partition_root = true)"
    )
    layout = layout_of(connection)
    assert [leaf.table for leaf in layout.leaves] == ["one", "two_a"]
    assert (layout.partitioned, layout.leaves_out, layout.by_pages) == (True, True, True)
    foreign = layout_of(connection, "public.f")
    assert (foreign.leaves, foreign.leaves_out) == ((), True)
    connection.execute("drop table public.fast")
    assert not layout_of(connection).leaves_out


@both_versions
def test_a_partition_is_a_table_of_its_own_only_where_it_is_published_as_one(connection: Connection) -> None:
    connection.execute(PARTITIONED)
    connection.execute(
        "create publication leaves for table public.t;"
        "create publication root for table public.t with (publish_via_partition_root = true)"
    )
    assert [leaf.table for leaf in layout_of(connection, "public.two_a", "leaves").leaves] == ["two_a"]
    assert table_layout(connection, oid_of(connection), ["leaves"]) is None
    assert table_layout(connection, oid_of(connection, "public.two_a"), ["root"]) is None
    assert table_layout(connection, oid_of(connection, "public.two_a"), ["leaves", "root"]) is None


def test_old_style_children_are_tables_of_their_own(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int primary key); create table public.child () inherits (public.t);"
        "create publication pub for all tables"
    )
    layout = layout_of(connection)
    assert ([leaf.table for leaf in layout.leaves], layout.partitioned, layout.leaves_out) == (["t"], False, False)


@both_versions
def test_a_leaf_has_its_real_size_analysed_or_not(connection: Connection) -> None:
    connection.execute(
        "create table public.t (a int primary key, b text); alter table public.t set (autovacuum_enabled = off);"
        "alter table public.t alter b set storage external; create publication pub for table public.t"
    )
    empty = layout_of(connection)
    assert (empty.rows_estimated, empty.bytes, empty.leaves[0].pages) == (0, 0, 0)
    connection.execute("insert into public.t select i, repeat('x', 5000) from generate_series(1, 1000) i")
    unknown = layout_of(connection)
    assert unknown.rows_estimated is None
    pages = connection.execute("select pg_relation_size('public.t') / 8192").fetchone()
    assert (unknown.leaves[0].pages,) == pages
    assert unknown.bytes == unknown.leaves[0].bytes > 5_000_000
    connection.execute("analyze public.t")
    assert layout_of(connection).rows_estimated == 1000
    connection.execute("insert into public.t select i, repeat('x', 5000) from generate_series(1001, 2000) i")
    assert layout_of(connection).rows_estimated == pytest.approx(2000, rel=0.1)


def test_a_partition_that_the_role_may_not_read_is_read_through_its_root(
    connection: Connection, database: str, guest: str
) -> None:
    connection.execute(PARTITIONED + "create publication pub for all tables with (publish_via_partition_root = true)")
    role = sql.Identifier(guest)
    with connect(make_conninfo(database, user=guest)) as session:
        # Without any right, the reader gets the same error either way.
        assert layout_of(session).by_pages
        connection.execute(sql.SQL("grant usage on schema public to {0}; grant select on public.t to {0}").format(role))
        assert not layout_of(session).by_pages
        connection.execute(sql.SQL("grant select on public.one, public.two_a to {}").format(role))
        assert layout_of(session).by_pages
        connection.execute("alter table public.one enable row level security")
        assert not layout_of(session).by_pages
        connection.execute("alter table public.t enable row level security")
        assert layout_of(session).by_pages


def test_a_role_that_may_read_some_columns_does_not_read_by_pages(
    connection: Connection, database: str, guest: str
) -> None:
    connection.execute(
        "create table public.t (a int primary key, b int); create publication pub for table public.t (a)"
    )
    connection.execute(
        sql.SQL("grant usage on schema public to {0}; grant select (a) on public.t to {0}").format(
            sql.Identifier(guest)
        )
    )
    with connect(make_conninfo(database, user=guest)) as session:
        layout = layout_of(session)
        assert ([column.name for column in layout.relation.columns], layout.by_pages) == (["a"], False)


def test_a_table_of_another_access_method_is_not_read_by_pages(connection: Connection) -> None:
    connection.execute(
        "create access method pile type table handler heap_tableam_handler;"
        "create table public.t (a int primary key) using pile; create publication pub for table public.t"
    )
    assert not layout_of(connection).by_pages


STILL_VALID = {
    "rows": "insert into public.t values (2, 1); update public.t set b = b + 1; delete from public.t where a = 1",
    "vacuum": "vacuum analyze public.t",
    "an index": "create index on public.t (b)",
}
NOT_VALID = {
    "vacuum full": "vacuum full public.t",
    "cluster": "cluster public.t using t_pkey",
    "truncate": "truncate public.t",
    "a new column": "alter table public.t add c int",
    "a dropped column": "alter table public.t drop b",
    "another type": "alter table public.t alter b type bigint",
    "another name": "alter table public.t rename to u",
    "a column's other name": "alter table public.t rename b to c",
    "another key": "alter table public.t replica identity full",
    "a row filter": "alter publication pub set table public.t where (a > 0)",
}


def two_looks(connection: Connection, between: str) -> tuple[TableLayout, TableLayout]:
    connection.execute(
        "create table public.t (a int primary key, b int); insert into public.t values (1, 1);"
        "create publication pub for table public.t"
    )
    oid = oid_of(connection)
    before = table_layout(connection, oid, ["pub"])
    for statement in between.split(";"):
        connection.execute(statement)
    after = table_layout(connection, oid, ["pub"])
    assert before is not None
    assert after is not None
    return before, after


@pytest.mark.parametrize("what", STILL_VALID)
def test_chunks_stay_valid_after(connection: Connection, what: str) -> None:
    before, after = two_looks(connection, STILL_VALID[what])
    assert before.fingerprint == after.fingerprint


@pytest.mark.parametrize("what", NOT_VALID)
def test_chunks_are_void_after(connection: Connection, what: str) -> None:
    before, after = two_looks(connection, NOT_VALID[what])
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        "create table public.four partition of public.t for values in (4)",
        "alter table public.t detach partition public.one",
        "truncate public.two_a",
        "alter table public.one rename to uno",
        "alter table public.fast set logged",
    ],
)
def test_chunks_of_a_partitioned_table_are_void_after(connection: Connection, change: str) -> None:
    connection.execute(PARTITIONED + "create publication pub for all tables with (publish_via_partition_root = true)")
    before = layout_of(connection)
    connection.execute(change)
    assert layout_of(connection).fingerprint != before.fingerprint


def test_a_layout_survives_json(connection: Connection) -> None:
    connection.execute(PARTITIONED + "create publication pub for all tables with (publish_via_partition_root = true)")
    layout = layout_of(connection)
    copy = TableLayout.from_json(json.loads(json.dumps(layout.to_json())))
    assert copy == layout
    assert copy.fingerprint == layout.fingerprint


def test_the_order_of_leaves_says_nothing_about_chunks(connection: Connection) -> None:
    connection.execute(PARTITIONED + "create publication pub for all tables with (publish_via_partition_root = true)")
    layout = layout_of(connection)
    assert replace(layout, leaves=layout.leaves[::-1]).fingerprint == layout.fingerprint
