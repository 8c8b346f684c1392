"""Tables that are hard to make again: DDL, by what is hard about it."""

from __future__ import annotations

LONG = "x" * 63  # bytes: the longest name
UNICODE = "ß" * 31 + "z"  # 63 bytes as well

EVERYTHING = """
create schema "Odd ""one"" s";
create type public.mood as enum ('sad', 'it''s ok', 'back\\slash', '{}', '%s', 'HAPPY');
create domain public.price as numeric(10, 2) default 1.5 not null constraint positive check (value > 0);
create domain "Odd ""one"" s".cheap as public.price constraint "below %" check (value < 100);
create type public.pair as (a int, "B b" text collate "C");
create type "Odd ""one"" s".nested as (p public.pair, many public.pair[], m public.mood);
create type public.floats as range (subtype = float8, subtype_diff = float8mi);
create table public.parent (id int primary key, code text unique);
create table "Odd ""one"" s"."drop table; --" (
    id bigint generated always as identity (start 100 increment 10 minvalue 50 maxvalue 5000 cache 3 cycle) primary key,
    gone int,
    "select" int not null default 7,
    serial serial,
    m public.mood default 'it''s ok',
    moods public.mood[] not null default '{sad,HAPPY}',
    p "Odd ""one"" s".cheap,
    n "Odd ""one"" s".nested,
    many "Odd ""one"" s".nested[],
    f public.floats,
    fs public.floats_multirange,
    "Ünï ""q"" 'a' %s {}" varchar(20) collate "C" default 'a%s{}''b\\',
    amount numeric(12, 3) check (amount > 0 and amount::text <> '%s'),
    double numeric generated always as (amount * 2) stored,
    at timestamptz(3) default '2020-01-01 00:00:00+02',
    during tstzrange,
    parent int references public.parent on update cascade on delete set null deferrable initially deferred,
    boss bigint references "Odd ""one"" s"."drop table; --",
    code text,
    bits bit varying(5)[],
    constraint "Unique %" unique nulls not distinct ("select", code) include (at) with (fillfactor = 60) deferrable,
    constraint "it's free" exclude using gist (during with &&) with (fillfactor = 80) where (amount > 1) initially deferred
) with (fillfactor = 75, autovacuum_enabled = false);
alter table "Odd ""one"" s"."drop table; --" drop column gone;
create index on "Odd ""one"" s"."drop table; --" (lower(code) text_pattern_ops desc nulls last,
    "Ünï ""q"" 'a' %s {}" collate "POSIX")
    include (id) with (fillfactor = 50) where code <> ' USING btree (';
create unique index "I ON x USING (" on "Odd ""one"" s"."drop table; --" ((amount + 1), "select");
create index on "Odd ""one"" s"."drop table; --" using hash (code);
create unique index identity on "Odd ""one"" s"."drop table; --" ("select", serial);
alter table "Odd ""one"" s"."drop table; --" replica identity using index identity;
alter table "Odd ""one"" s"."drop table; --" add constraint later check (code <> 'x') not valid;
alter table "Odd ""one"" s"."drop table; --" add constraint unchecked
    foreign key (code) references public.parent (code) not valid;
comment on table "Odd ""one"" s"."drop table; --" is 'it''s %s {} \\';
comment on column "Odd ""one"" s"."drop table; --"."select" is 'a "word"';
select nextval('"Odd ""one"" s"."drop table; --_serial_seq"') from generate_series(1, 5);
select nextval('"Odd ""one"" s"."drop table; --_id_seq"') from generate_series(1, 3);
"""
ODD = ('Odd "one" s', "drop table; --")
PARENT = ("public", "parent")

AWKWARD = {
    "self reference": "create table public.t (id int primary key, up int references public.t on delete cascade)",
    "circular references": """
        create table public.t (id int primary key, other int);
        create table public.u (id int primary key, other int references public.t);
        alter table public.t add foreign key (other) references public.u deferrable""",
    "composite reference": """
        create table public.u (a int, b int, c int, unique (b, a));
        create table public.t (x int, y int, z int default 3,
            foreign key (y, x) references public.u (b, a) match full on update set default on delete restrict,
            constraint partly foreign key (x, y) references public.u (a, b) on delete set null (y))""",
    "no key": "create table public.t (a int, b text); alter table public.t replica identity full",
    "identity nothing": "create table public.t (a int primary key); alter table public.t replica identity nothing",
    "no columns": "create table public.t ()",
    "deferrable key": "create table public.t (a int, b int, primary key (b, a) deferrable initially deferred)",
    "key with options": "create table public.t (a int, b int, primary key (b) include (a) with (fillfactor = 30))",
    "enum default": "create type public.e as enum ('a'); create table public.t (a public.e[] default array['a']::public.e[])",
    "empty enum": "create type public.e as enum (); create table public.t (a public.e)",
    "empty composite": "create type public.c as (); create table public.t (a public.c)",
    "type in an expression alone": """
        create type public.e as enum ('a', 'b'); create domain public.d as int check (value > 0);
        create table public.t (a text default 'a'::public.e::text, b int check (b::public.d > 2));
        create index on public.t ((b > 1 and 'a'::public.e < 'b'::public.e))""",
    "types of one name in two schemas": """
        create schema one; create schema two;
        create type one.x as enum ('a'); create type two.x as (x one.x); create domain public.text as int;
        create table public.t (a one.x, b two.x, c public.text, d text)""",
    "domain over domain over array of composite": """
        create type public.c as (a int, b numeric(4, 1)[]);
        create domain public.d as public.c[] check (array_length(value, 1) < 4);
        create domain public.dd as public.d default '{}' not null constraint "a b" check (value is not null);
        create type public.cc as (d public.dd, e public.d[]);
        create table public.t (a public.cc, b public.cc[], c public.dd[])""",
    "domain with a collation": """
        create domain public.d as varchar(7) collate "C"; create table public.t (a public.d, b public.d collate "POSIX")""",
    "range of domains": """
        create domain public.d as int; create type public.r as range (subtype = public.d, multirange_type_name = public."M M");
        create table public.t (a public."M M"[])""",
    "range with a collation": """
        create type public.r as range (subtype = text, collation = "C", subtype_opclass = text_pattern_ops);
        create table public.t (a public.r)""",
    "identity that goes down": """
        create table public.t (a smallint generated by default as identity (increment -2 start -5 minvalue -9 maxvalue -1));
        insert into public.t default values""",
    "sequence that was set but not called": """
        create table public.t (a bigserial, b int generated always as identity);
        select setval('public.t_a_seq', 42, false), setval('public.t_b_seq', 43, false)""",
    "sequence at the ends of bigint": """
        create sequence public.s minvalue -9223372036854775808 start -9223372036854775808;
        create table public.t (a bigint default nextval('public.s'), b bigint default nextval('public.s') * 2)""",
    "serial that two tables share": """
        create table public.t (id serial primary key); insert into public.t select from generate_series(1, 9);
        create table public.u (id int default nextval('public.t_id_seq'))""",
    "serial of a table that is not taken": """
        create table public.other (id serial); create table public.t (id int default nextval('public.other_id_seq'))""",
    "sequence in another schema": """
        create schema "S'"; create sequence "S'"."q""'"; create table public.t (a int default nextval('"S''"."q""''"'))""",
    "renamed sequence": """
        create table public.t (a serial, b int generated always as identity);
        alter sequence public.t_a_seq rename to "A"; alter sequence public.t_b_seq rename to "B" """,
    "one letter": 'create schema s; create table s.t ("ä" int primary key, b int unique, " " int check (" " > 0))',
    "the longest names": f"""
        create table public.{LONG} ({LONG} serial primary key, "{UNICODE}" int not null unique check ("{UNICODE}" > 0));
        create table public."{UNICODE}" ({LONG} int generated always as identity references public.{LONG}, b int);
        create index on public."{UNICODE}" ({LONG}, b); create index on public."{UNICODE}" (b, {LONG})""",
    "dropped columns": """
        create table public.t (a int, b text, c int, d int generated always as (c + 1) stored);
        alter table public.t drop column b; alter table public.t drop column a; alter table public.t add primary key (d)""",
    "inherited": """
        create table public.base (a int not null, b int check (b > 0));
        create table public.t (c int) inherits (public.base)""",
    "partitioned": """
        create table public.u (id int primary key) partition by range (id);
        create table public.u1 partition of public.u for values from (0) to (10);
        create table public.t (a int generated by default as identity, b int references public.u, c serial, primary key (a, b))
            partition by list (b);
        create table public.t1 partition of public.t for values in (1);
        create index "By c" on public.t (c desc) where a > 0; alter table public.t add unique (b, a)""",
    "types with modifiers": """
        create table public.t (a char(3), b bit(4), c interval day to second(3), d time(2) with time zone, e numeric(5, -2),
            f "char", g name, h varchar, i timestamp(0)[], j interval year, k int2vector, l oid,
            m pg_lsn, n int4multirange)""",
    "text search": """
        create table public.t (a text, b tsvector generated always as (to_tsvector('pg_catalog.english', a)) stored);
        create index on public.t using gin (b); create index on public.t using brin (a) with (pages_per_range = 16);
        create index on public.t using gist (b tsvector_ops (siglen = 100))""",
    "expressions with values of many types": """
        create table public.t (a interval default '1 mon -2 days 03:00:00.5', b float8 default 0.1::float8 + 1e-300::float8,
            c bytea default '\\x00ff5c', d date default '0044-03-15 BC', e timestamptz default now(),
            f text default E'\\n\\\\''',
            g text[] default array['a"b', null, '{}'], h jsonb default '{"a": "%s {0}"}', i float4 default 'NaN',
            j text default current_user, k int default (random() * 3)::int, l text default ';;--/*')""",
}  # fmt: skip

NEWEST = {
    "virtual column": "create table public.t (a int, b int generated always as (a * 2) virtual, c int not null)",
    "not-null with a name": "create table public.t (a int constraint \"My %\" not null, b int primary key)",
    "not-null that is not valid": """
        create table public.t (a int); insert into public.t values (null);
        alter table public.t add constraint later not null a not valid""",
    "constraints that are not enforced": """
        create table public.u (a int primary key);
        create table public.t (a int references public.u not enforced, b int check (b > 0) not enforced)""",
    "temporal keys": """
        create table public.u (id int4range, valid tstzrange, primary key (id, valid without overlaps));
        create table public.t (id int4range, valid tstzrange, unique (id, valid without overlaps),
            foreign key (id, period valid) references public.u (id, period valid))""",
}  # fmt: skip
