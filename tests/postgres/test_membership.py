"""Whether a table was published the same way at every moment between two looks."""

from __future__ import annotations

import pytest

from penstock.lsn import LSN, ZERO
from penstock.postgres.connection import Connection
from penstock.subscription.membership import Membership, Route, memberships

both_versions = pytest.mark.parametrize("database", [16, 18], indirect=True)

TABLES = (
    "set search_path = public",
    "create schema sales",
    "create schema attic",
    "create table t (id int primary key, v int, w int)",
    "create table u (id int primary key)",
    "create table sales.s (id int primary key)",
    "create table parted (id int primary key) partition by range (id)",
    "create table leaf partition of parted for values from (0) to (10)",
    "create publication mine for table t where (v > 1), u",
    "create publication listed for table t (id, v)",
    "create publication in_schema for tables in schema sales",
    "create publication everything for all tables",
    "create publication leaves for table parted with (publish_via_partition_root = false)",
    "create publication roots for table parted with (publish_via_partition_root = true)",
)
EVERY_OPERATION = "(publish = 'insert, update, delete, truncate')"

# By what was done: the publication, the table, the statements. Each ends as it began.
INTERRUPTED = {
    "taken out and put back": ("mine", "u", "alter publication mine drop table u", "alter publication mine add table u"),
    "another row filter for a while": (
        "mine", "t",
        "alter publication mine set table t where (v > 2), u", "alter publication mine set table t where (v > 1), u",
    ),
    "another column list for a while": (
        "listed", "t", "alter publication listed set table t (id, w)", "alter publication listed set table t (id, v)",
    ),
    "fewer operations for a while": (
        "mine", "u", "alter publication mine set (publish = 'insert')", f"alter publication mine set {EVERY_OPERATION}",
    ),
    "the publication had another name for a while": (
        "mine", "u", "alter publication mine rename to other", "alter publication other rename to mine",
    ),
    "the publication was dropped and made again": (
        "mine", "u", "drop publication mine", "create publication mine for table t where (v > 1), u",
    ),
    "the schema was taken out and put back": (
        "in_schema", "sales.s",
        "alter publication in_schema drop tables in schema sales", "alter publication in_schema add tables in schema sales",
    ),
    "the table was in another schema for a while": (
        "in_schema", "sales.s", "alter table sales.s set schema attic", "alter table attic.s set schema sales",
    ),
    "a publication of all tables was made again": (
        "everything", "u", "drop publication everything", "create publication everything for all tables",
    ),
    "a publication of all tables had fewer operations for a while": (
        "everything", "u",
        "alter publication everything set (publish = 'insert')", f"alter publication everything set {EVERY_OPERATION}",
    ),
    "a partition was detached and attached again": (
        "leaves", "leaf",
        "alter table parted detach partition leaf", "alter table parted attach partition leaf for values from (0) to (10)",
    ),
    "a partition was published with its root for a while": (
        "leaves", "leaf",
        "alter publication leaves set (publish_via_partition_root = true)",
        "alter publication leaves set (publish_via_partition_root = false)",
    ),
    "the root was taken out and put back": (
        "roots", "parted", "alter publication roots drop table parted", "alter publication roots add table parted",
    ),
}  # fmt: skip

UNDISTURBED = {
    "another table was added": ("mine", "t", "alter publication mine add table sales.s"),
    "another table was taken out": ("mine", "t", "alter publication mine drop table u"),
    "the same was set": ("mine", "t", "alter publication mine set table t where (v > 1), u, sales.s"),
    "the publication got a comment": ("mine", "t", "comment on publication mine is 'note'"),
    "the table was altered": (
        "everything", "t",
        "alter table t add x int, alter w type bigint", "alter table t rename to t2", "alter table t2 rename to t",
    ),
    "a table of a published schema was altered": (
        "in_schema", "sales.s", "alter table sales.s add x int default 7", "create index on sales.s (x)", "truncate sales.s",
    ),
    "catalogs were frozen and rewritten": (
        "in_schema", "sales.s", "vacuum freeze pg_publication", "vacuum full pg_publication", "vacuum full pg_publication_rel",
        "vacuum full pg_publication_namespace", "vacuum full pg_depend",
    ),
    "the table was rewritten": ("mine", "t", "vacuum full t", "analyze t"),
    "a table of a published schema was rewritten": (
        "in_schema", "sales.s", "vacuum full sales.s", "cluster sales.s using s_pkey",
    ),
    "another partition was attached": (
        "leaves", "leaf", "create table more partition of parted for values from (10) to (20)",
    ),
    "a column of the filter was renamed": ("mine", "t", "alter table t rename v to value"),
}  # fmt: skip


@pytest.fixture
def tables(connection: Connection) -> Connection:
    for statement in TABLES:
        connection.execute(statement.encode())
    return connection


def membership(connection: Connection, publication: str, table: str) -> Membership:
    (oid,) = connection.execute("select %s::regclass::oid", [table]).fetchone() or (0,)
    return memberships(connection, {publication: ZERO})[oid]


def continues(connection: Connection, publication: str, table: str, *statements: str) -> bool:
    before = membership(connection, publication, table)
    for statement in statements:
        connection.execute(statement.encode())
    return membership(connection, publication, table).continues(before)


@both_versions
def test_a_table_that_was_published_otherwise_for_a_while_is_noticed(tables: Connection) -> None:
    assert [what for what, done in INTERRUPTED.items() if continues(tables, *done)] == []


@both_versions
def test_what_does_not_interrupt_a_tables_publication_is_no_alarm(tables: Connection) -> None:
    assert [what for what, done in UNDISTURBED.items() if not continues(tables, *done)] == []


@both_versions
def test_a_membership_is_the_same_when_it_is_read_back(tables: Connection) -> None:
    for found in memberships(
        tables, dict.fromkeys(["mine", "listed", "in_schema", "everything", "leaves", "roots"], ZERO)
    ).values():
        assert Membership.from_json(found.to_json()) == found


def test_a_publication_that_was_not_read_for_a_while_is_another_route(tables: Connection) -> None:
    (before,), (now,) = (memberships(tables, {"listed": lsn}).values() for lsn in (ZERO, LSN(1)))
    assert not now.continues(before)


ALL = ("insert", "update", "delete", "truncate")
PLAIN, OTHER = Route("1", None, None, ALL), Route("2", None, None, ALL)
FILTERED, LISTED = Route("3", "(v > 1)", None, ALL), Route("4", None, "1 2", ALL)
INSERTS = Route("5", None, None, ("insert",))

CONTINUES = {
    "one more publication that publishes no more": ((PLAIN,), (PLAIN, OTHER)),
    "one publication less, and the other publishes as much": ((PLAIN, OTHER), (PLAIN,)),
    "a row filter beside a publication of all rows": ((PLAIN,), (PLAIN, FILTERED)),
    "operations that another publication publishes too": ((PLAIN,), (PLAIN, INSERTS)),
}
DOES_NOT = {
    "another publication": ((PLAIN,), (OTHER,)),
    "one more that lets more rows through": ((FILTERED,), (FILTERED, PLAIN)),
    "one less, so that fewer rows pass": ((FILTERED, PLAIN), (FILTERED,)),
    "one more with more operations": ((INSERTS,), (INSERTS, PLAIN)),
    "one less with more operations": ((INSERTS, PLAIN), (INSERTS,)),
    "another list of columns": ((PLAIN,), (LISTED,)),
    "the wider one of two was interrupted": ((FILTERED, PLAIN), (FILTERED, OTHER)),
}


@pytest.mark.parametrize("what", CONTINUES)
def test_what_is_published_without_a_gap_continues(what: str) -> None:
    before, now = CONTINUES[what]
    assert Membership(now).continues(Membership(before))


@pytest.mark.parametrize("what", DOES_NOT)
def test_what_was_not_published_or_is_published_otherwise_does_not_continue(what: str) -> None:
    before, now = DOES_NOT[what]
    assert not Membership(now).continues(Membership(before))
