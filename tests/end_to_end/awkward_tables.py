"""Tables that go wrong in pipelines: what is there before, and two rounds of changes."""

from __future__ import annotations

_LONG_KEY = "(select string_agg(md5(n::text), '') from generate_series(1, 80) n)"
_LONG_TEXT = "(select string_agg(md5((n + 1000)::text), '') from generate_series(1, 400) n)"

SETUP = (
    # Names.
    'create schema "a.b"', "create schema a", 'create schema "drop table; --"', 'create schema "Ünï 🐘 ""x"" y"',
    'create schema "select"',
    'create table "a.b"."c" (id int primary key, "at" text)',
    'create table a."b.c" (id int primary key, "at" text)',
    'create table "drop table; --"."drop table; --" ("drop table; --" int primary key, "order" text, "quo""te" text, '
    '"it\'s" text, "with space" text, "🐘" text, "a.b" text, "back\\slash" text, "%s {0}" text)',
    'create table "Ünï 🐘 ""x"" y"."Ta""ble" ("Capital" int primary key, "lower" text)',
    'create table "select"."from" ("table" int primary key, "group" text, "c0" text, "u1" text)',
    'create table "Users" (id int primary key, "Name" text, "name" text)',
    "create table users (id int primary key, staged text, rowid text)",
    # Values.
    "create table nulls (id int primary key, v text, w text)",
    "create schema bare", "create table bare.nothing ()",
    "create table wide (" + ", ".join(f"c{n} int" for n in range(1600)) + ", primary key (c0))",
    # Keys.
    "create table bag (v text, n int)", "alter table bag replica identity full",
    "create table lines (v text)",
    "create table by_index (a int not null, b text not null, c text)",
    "create unique index by_index_key on by_index (b, a)",
    "alter table by_index replica identity using index by_index_key",
    "create table long_keys (k text primary key, v int, big text)",
    "alter table long_keys alter k set storage external",
    "create table swapped (id int primary key deferrable initially deferred, v text)",
    "alter table swapped replica identity full",
    "create table full_rows (id int primary key, v text, big text)", "alter table full_rows replica identity full",
    "create table large (id int primary key, v int, big text)",
    # Kinds of tables and columns.
    "create table parted (id int primary key, v text) partition by range (id)",
    "create table parted_low partition of parted for values from (0) to (100)",
    "create table parted_high partition of parted for values from (100) to (200)",
    "create table computed (id int primary key, a int, b int generated always as (a * 2) stored)",
    "create domain positive as int check (value > 0)", "create domain more_positive as positive",
    "create domain code as varchar(5)", "create type mood as enum ('sad', 'happy, or so', '\"quoted\"')",
    "create table typed (id int primary key, p more_positive, c code, m mood, ms mood[], ps positive[])",
    # Transactions and definitions.
    "create table saved (id int primary key)",
    "create table evolving (id int primary key, a text)",
    "create table evolving_later (id int primary key, a int, gone text)",
)  # fmt: skip

FIRST = (
    """insert into "a.b"."c" values (1, 'one'); insert into a."b.c" values (1, 'uno'), (2, 'dos')""",
    """insert into "drop table; --"."drop table; --" values (1, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')""",
    """insert into "drop table; --"."drop table; --" values (2)""",
    """insert into "Ünï 🐘 ""x"" y"."Ta""ble" values (1, 'x'), (2, 'y')""",
    """insert into "select"."from" values (1, 'x', 'y', 'z'), (2, null, null, null)""",
    """insert into "Users" values (1, 'Ada', 'ada'); insert into users values (1, 's', 'r'), (2, null, '')""",
    """insert into nulls values (1, null, ''), (2, '', null), (3, 'NULL', '\\N'), (4, 'null', '""'), (5, E'\\t\\n\\r', ' ')""",
    "insert into bare.nothing default values",
    f"insert into wide values ({', '.join(str(n) for n in range(1600))})",
    "insert into wide (c0, c1599) values (-1, 7)",
    "insert into bag values ('x', 1), ('x', 1), ('x', 1), (null, null), (null, null), ('', 0)",
    "insert into lines values ('a'), ('a'), (null)",
    "insert into by_index values (1, 'x', 'c'), (2, 'y', null), (3, 'z', 'c')",
    f"insert into long_keys values ({_LONG_KEY}, 1, 'big')",
    "insert into swapped values (1, 'one'), (2, 'two'), (3, 'three')",
    f"insert into full_rows values (1, 'a', {_LONG_TEXT}), (2, 'b', {_LONG_TEXT})",
    f"insert into large values (1, 1, {_LONG_TEXT}), (2, 2, {_LONG_TEXT}), (3, 3, 'short')",
    "insert into parted values (1, 'low'), (150, 'high')",
    "insert into computed (id, a) values (1, 21), (2, null)",
    """insert into typed values (1, 7, 'abc', 'happy, or so', '{sad,"happy, or so",NULL,"\\"quoted\\""}', '{1,NULL,3}'),
        (2, null, '', '"quoted"', '{}', null)""",
    "begin; insert into saved values (1); savepoint s; insert into saved values (2); rollback to s; "
    "insert into saved values (3); savepoint t; insert into saved values (4); release t; commit",
    "begin; insert into saved values (99); rollback",
    "begin; select txid_current(); commit",
    "begin; insert into evolving values (1, 'a'); alter table evolving add b int; insert into evolving values (2, 'a', 2); "
    "alter table evolving drop a; insert into evolving values (3, 3); alter table evolving alter b type bigint; "
    "update evolving set b = 9223372036854775807 where id = 2; insert into evolving values (4, null); commit",
    "insert into evolving_later values (1, 1, 'x'), (2, 2, 'y')",
    "begin; select pg_logical_emit_message(true, 'note', 'in a transaction'); insert into saved values (5); commit",
    "select pg_logical_emit_message(false, 'note', 'Grüße')",
    "select pg_logical_emit_message(true, 'penstock', 'of its own')",
)  # fmt: skip

SECOND = (
    """truncate "a.b"."c" """,
    """update "drop table; --"."drop table; --" set "quo""te" = 'new', "drop table; --" = 3 where "drop table; --" = 1""",
    """delete from "Ünï 🐘 ""x"" y"."Ta""ble" where "Capital" = 2""",
    """update "select"."from" set "group" = null, "u1" = '' where "table" = 1""",
    """update "Users" set "Name" = 'Countess'; delete from users where id = 1""",
    "update nulls set v = w, w = v",
    "update wide set c1599 = null where c0 = 0",
    "delete from bag where ctid = (select min(ctid) from bag where v = 'x'); "
    "update bag set n = 2 where ctid = (select max(ctid) from bag where v is null); insert into bag values ('x', 1)",
    "update by_index set b = 'w' where a = 1; delete from by_index where a = 2; update by_index set c = null where a = 3",
    "update long_keys set v = 2; update long_keys set v = 3, big = 'bigger'",
    "update swapped set id = 4 - id; update swapped set v = v || '!'",
    "update full_rows set v = 'c' where id = 1; update full_rows set id = 20 where id = 2",
    # The long text is not sent again; the key changes by way of another one, which is reused.
    "update large set v = 10 where id = 1; update large set id = 30 where id = 2; update large set id = 2 where id = 1; "
    "update large set id = 1, v = 11 where id = 30; delete from large where id = 3; insert into large values (3, 0, 'new')",
    "update parted set id = 160 where id = 1; update parted set v = 'up' where id = 150",
    "update computed set a = 5 where id = 1",
    "update typed set m = 'sad', ms = ms || 'sad'::mood, p = 8 where id = 1",
    "alter table evolving_later add b text",
    "alter table evolving_later drop gone",
    "alter table evolving_later alter a type text",
    "insert into evolving_later values (3, 'three', 'b'); update evolving_later set b = 'two' where id = 2",
    "begin; truncate saved, lines; insert into saved values (7); insert into lines values ('after'); commit",
    "begin; insert into evolving values (5, 5); alter table evolving add c text; update evolving set c = 'x'; commit",
)  # fmt: skip
