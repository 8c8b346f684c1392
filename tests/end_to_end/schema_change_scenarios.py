"""What people do to tables, each in a schema of its own, which is the only one on the session's search_path.

A scenario is what there is before, and transactions, each a list of statements that are sent one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql


@dataclass(frozen=True)
class Scenario:
    before: str
    transactions: tuple[tuple[str, ...], ...]


FIVE = "select n, 'row ' || n from generate_series(1, 5) n"
T = "create table t (id int primary key, v text); insert into t " + FIVE

SCENARIOS = {
    "created_as_a_query": Scenario(
        T, (("create table made as select id, v as w from t",), ("insert into made values (9, 'x')",))
    ),
    "selected_into": Scenario(
        T,
        (
            ("select id + 100 as id, v into made from t", "alter table made add primary key (id)"),
            ("delete from made where id = 101",),
        ),
    ),
    "enum_value": Scenario(
        "create type mood as enum ('sad', 'ok'); create table t (id int primary key, m mood); insert into t values (1, 'ok')",
        (
            ("alter type mood add value 'happy' after 'sad'",),
            ("insert into t values (2, 'happy')",),
            ("alter type mood rename value 'sad' to 'blue'",),
            ("insert into t values (3, 'blue')",),
        ),
    ),
    "another_enum_of_that_name": Scenario(
        "create type mood as enum ('one', 'two'); create table t (id int primary key, m mood);"
        "insert into t values (1, 'two')",
        (
            ("alter type mood add value 'three'",),
            ("insert into t values (2, 'three')", "update t set m = 'one' where id = 1"),
        ),
    ),
    "composite_reshaped": Scenario(
        "create type part as (a int, b text); create domain checked as part; create type whole as (p part, ps part[]);"
        "create table t (id int primary key, p part, c checked, w whole);"
        """insert into t values (1, '(1,x)', '(1,x)', '("(1,x)","{""(1,x)""}")'), (2, null, '(,)', '(,)')""",
        (
            (
                "insert into t (id, p) values (3, '(3,before)')",
                "alter type part add attribute c int",
                "insert into t (id, p) values (4, '(4,after,4)')",
                "update t set p = '(1,after,1)' where id = 1",
                "alter type part drop attribute a",
                "insert into t (id, p, c) values (5, '(after,5)', '(after,5)')",
            ),
            ("alter type part rename attribute b to bb", "insert into t (id, p) values (6, '(named,6)')"),
            ("alter type part rename to piece", "insert into t (id, p) values (7, '(named,7)')"),
            ("alter table t drop p, drop c, drop w", "alter type piece alter attribute c type text"),
            ("alter table t add p piece", "insert into t (id, p) values (8, '(typed,eight)')"),
        ),
    ),
    "domain_altered": Scenario(
        "create domain small as int constraint above check (value > 0);"
        "create table t (id int primary key, n small); insert into t values (1, 1)",
        (
            ("alter domain small drop constraint above", "insert into t values (2, -2)"),
            ("alter domain small add constraint top check (value < 100)",),
            ("alter domain small set default 7", "insert into t (id) values (3)"),
            ("alter domain small set not null", "alter domain small rename to little", "insert into t values (4, 4)"),
            ("alter domain little drop not null", "insert into t values (5, null)"),
            ("alter domain little add constraint none check (value > 50) not valid",),
            ("update t set id = id + 10",),
        ),
    ),
    "label_renamed_within": Scenario(
        "create type mood as enum ('sad', 'ok'); create type holder as (m mood, n int);"
        "create table t (id int primary key, m mood, h holder); insert into t values (1, 'sad', '(sad,1)')",
        (
            (
                "insert into t values (2, 'sad', '(sad,2)')",
                "alter type mood rename value 'sad' to 'blue'",
                "insert into t values (3, 'blue', '(blue,3)')",
            ),
        ),
    ),
    "unusual_names": Scenario(
        'create table "drop table; --" ("select" int primary key, "Ü ""q"" %s" text);'
        """insert into "drop table; --" values (1, 'it''s'), (2, null)""",
        (
            (
                'alter table "drop table; --" rename "Ü ""q"" %s" to "new.name"',
                'insert into "drop table; --" values (3, $$a\\b$$)',
            ),
            (
                'alter table "drop table; --" rename to "Drop Table"',
                'alter table "Drop Table" add "select 2" text default $$\'$$',
            ),
            ('update "Drop Table" set "select 2" = $$x$$ where "select" = 1',),
        ),
    ),
    "defaults": Scenario(
        T,
        (
            ("alter table t add c int not null default 5", "insert into t (id) values (6)"),
            ("alter table t add u text default to_char(now(), 'US')",),
            ("insert into t (id) values (7)", "alter table t alter c set default 8"),
            (
                "insert into t (id) values (8)",
                "alter table t alter c drop not null",
                "alter table t alter u drop default",
            ),
            ("insert into t (id, c) values (9, null)",),
        ),
    ),
    "volatile_default": Scenario(
        T, (("alter table t add r float8 default random()",), ("insert into t (id) values (6)",))
    ),
    "new_type_by_expression": Scenario(
        T,
        (
            ("alter table t alter v type int using length(v) + id", "insert into t values (6, 60)"),
            ("delete from t where v = 6",),
        ),
    ),
    "new_type_by_cast": Scenario(
        "create table t (id int primary key, v text); insert into t select n, n::text from generate_series(1, 5) n",
        (
            (
                "update t set v = '77' where id = 1",
                "alter table t alter id type bigint",
                "insert into t values (5000000000, '1')",
            ),
            ("alter table t alter id type numeric",),
            ("delete from t where id = 2",),
        ),
    ),
    "new_type_that_rounds": Scenario(
        "create table t (id int primary key, n numeric, j json);"
        """insert into t values (1, 1, '{"a":  1}'), (2, 2.005, '[ ]'), (3, 1e3, null)""",
        (
            ("alter table t alter n type numeric(6,2), alter j type jsonb",),
            ("insert into t values (4, 4, '{}')", "delete from t where id = 3"),
        ),
    ),
    "made_anew": Scenario(
        T,
        (
            (
                "update t set v = 'never seen'",
                "drop table t",
                "create table t (id bigint primary key, other int)",
                "insert into t select n, n from generate_series(3, 8) n",
            ),
            ("update t set other = -other where id > 5",),
        ),
    ),
    "names_swapped": Scenario(
        f"{T}; create table s (id int primary key, v text); insert into s select -n, 's' from generate_series(1, 5) n",
        (
            (
                "update t set v = 'was t'",
                "alter table t rename to aside",
                "alter table s rename to t",
                "alter table aside rename to s",
                "insert into t values (-9, 'was s')",
                "delete from s where id = 1",
            ),
            ("insert into s values (20, 'now s')",),
        ),
    ),
    "another_key": Scenario(
        T,
        (
            ("alter table t drop constraint t_pkey", "alter table t add primary key (v)"),
            ("update t set id = 1", "delete from t where v = 'row 2'"),
            ("insert into t values (1, 'row 6')",),
            (
                "alter table t drop constraint t_pkey, alter id type bigint",
                "alter table t add k serial",
                "alter table t add primary key (k)",
            ),
            ("insert into t values (1, 'row 1')",),
        ),
    ),
    "key_renamed": Scenario(
        T,
        (
            ("alter table t rename id to number", "update t set number = number + 10"),
            ("alter table t rename number to id", "delete from t where id = 12"),
        ),
    ),
    "rolled_back": Scenario(
        T,
        (
            (
                "savepoint a",
                "alter table t rename v to gone",
                "update t set gone = 'gone'",
                "rollback to a",
                "alter table t add w int",
                "savepoint b",
                "alter table t drop w",
                "rollback to b",
                "insert into t values (6, 'six', 6)",
            ),
        ),
    ),
    "in_one_string": Scenario(
        T,
        (
            (
                "alter table t rename v to a; insert into t values (6, 'a');"
                "alter table t rename a to b; insert into t values (7, 'b')",
            ),
            (
                "do $$ begin alter table t rename b to c; alter table t add b text;"
                "insert into t values (8, 'c', 'b'); end $$",
            ),
        ),
    ),
    "a_name_again": Scenario(
        T,
        (
            ("alter table t rename v to old", "alter table t add v int", "update t set v = id"),
            ("alter table t drop v", "alter table t add v text default 'later'", "insert into t values (6, 'o')"),
        ),
    ),
    "moved_away_and_back": Scenario(
        T,
        (
            (
                "create schema if not exists elsewhere",
                "alter table t set schema elsewhere",
                "insert into elsewhere.t values (6, 'there')",
            ),
            ("alter table elsewhere.t set schema moved_away_and_back", "update t set v = 'back' where id = 6"),
        ),
    ),
    "temporary": Scenario(
        T,
        (
            (
                "create temp table t2 (id int)",
                "insert into t2 values (1)",
                "alter table t2 add x int",
                "insert into t values (6, 'kept')",
            ),
        ),
    ),
    "partitioned": Scenario(
        "create table t (id int primary key, v text) partition by range (id);"
        f"create table t1 partition of t for values from (0) to (10); insert into t {FIVE}",
        (
            ("create table t2 partition of t for values from (10) to (20)", "insert into t values (11, 'eleven')"),
            ("alter table t rename v to w", "update t set w = 'all'"),
            ("alter table t add x int default 3", "insert into t values (12, 'z')"),
        ),
    ),
    "label_renamed_beside_a_new_table": Scenario(
        "create type feeling as enum ('blue', 'red'); create table t (id int primary key, m feeling);"
        "insert into t values (1, 'blue'), (2, 'red')",
        (
            ("create table t2 (id int primary key, m feeling)", "insert into t2 values (1, 'blue')"),
            ("alter type feeling rename value 'blue' to 'navy'",),
            ("insert into t values (3, 'navy')",),
        ),
    ),
    "type_renamed_beside_a_new_table": Scenario(
        "create type mood as enum ('sad', 'ok'); create table t (id int primary key, m mood);"
        "insert into t values (1, 'ok'), (2, 'sad')",
        (
            ("alter type mood rename to feeling",),
            ("create table t2 (id int primary key, m feeling)", "insert into t2 values (1, 'ok')"),
            ("insert into t values (3, 'sad')",),
        ),
    ),
    "rewritten_and_renamed": Scenario(
        T,
        (
            ("alter table t add r float8 default random()",),
            ("alter table t rename to t3", "insert into t3 (id) values (6)"),
        ),
    ),
    "referenced_key": Scenario(
        f"{T}; create table kid (id int primary key, pid int references t (id)); insert into kid values (1, 1), (2, 2)",
        (("alter table t alter id type bigint",), ("insert into t values (6, 'six')", "insert into kid values (3, 6)")),
    ),
    "generated": Scenario(
        "create table t (id int primary key, x int, y int generated always as (x + 1) stored, z int);"
        "insert into t (id, x, z) values (1, 1, 1), (2, 2, 2)",
        (("alter table t drop column x cascade",), ("insert into t (id, z) values (3, 3)",)),
    ),
    "no_identity_any_more": Scenario(
        "create table t (id int generated always as identity primary key, v text); insert into t (v) values ('a'), ('b')",
        (("alter table t alter id drop identity",), ("insert into t values (9, 'nine')",)),
    ),
    "gets_a_key": Scenario(
        "create table t (id int, v text); insert into t select n, 'row' from generate_series(1, 5) n",
        (
            ("alter table t add primary key (id)",),
            ("update t set v = 'seen' where id = 3", "delete from t where id = 4"),
        ),
    ),
    "without_a_key": Scenario(
        "create table t (a int, b text); alter table t replica identity full;"
        "insert into t values (1, 'x'), (1, 'x'), (2, 'y')",
        (
            ("alter table t rename a to n", "update t set n = 3 where n = 2"),
            ("alter table t add c int default 1", "insert into t values (4, 'z')"),
            ("update t set c = 2 where n = 3",),
        ),
    ),
}


def prepare(url: str, name: str) -> None:
    _run(url, name, ((f"create schema {name}",), (SCENARIOS[name].before,)))


def perform(url: str, name: str) -> None:
    _run(url, name, SCENARIOS[name].transactions)


def _run(url: str, name: str, transactions: tuple[tuple[str, ...], ...]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("set search_path = {}").format(sql.Identifier(name)))
        for statements in transactions:
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())
