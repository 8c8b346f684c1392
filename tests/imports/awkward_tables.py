"""Tables that go wrong in copies, beside those of ``tests/end_to_end``: kinds of tables, and values of every kind."""

from __future__ import annotations

KINDS = (
    "create table empty (id int primary key, v text)",
    "create table emptied (id int primary key, v text)",
    "insert into emptied select n, 'x' from generate_series(1, 3000) n",
    "delete from emptied",
    "create table parent (id int primary key, v text)",
    "create table child (w text, primary key (id)) inherits (parent)",
    "insert into parent select n, 'parent' from generate_series(1, 30) n",
    "insert into child select n, 'child', 'w' from generate_series(20, 60) n",  # some keys are in both
    "create table by_identity (id int generated always as identity primary key, v text)",
    "insert into by_identity (v) select 'v' from generate_series(1, 20)",
    "create table lone_column (v text primary key)",
    "insert into lone_column values (''), (' '), ('NULL'), ('\\N'), ('\"'), (','), (E'\\n'), (E'\\r\\n'), (E'\\\\.')",
    "insert into lone_column values ('\ufeff')",
    "create table nullable (v text)",
    "insert into nullable values (null), (null), (''), (E'\\\\.')",
    "create table deep (id int, region text, v text, primary key (region, id)) partition by list (region)",
    "create table deep_eu partition of deep for values in ('eu') partition by range (id)",
    "create table deep_eu_1 partition of deep_eu for values from (0) to (50)",
    "create table deep_eu_2 partition of deep_eu for values from (50) to (1000)",
    "create table deep_other partition of deep default",
    "insert into deep select n, case mod(n, 3) when 0 then 'eu' else 'other' end, 'v' from generate_series(1, 300) n",
    "create table hashed (id int primary key, v text) partition by hash (id)",  # and no partition at all
    # What is left out.
    "create unlogged table draft (id int primary key)", "insert into draft values (1)",
    "create view looked as select 1 as id", "create materialized view kept as select 1 as id",
    "create foreign data wrapper nowhere", "create server far foreign data wrapper nowhere",
    "create foreign table away (id int) server far",
)  # fmt: skip

LEFT_OUT = ("public.draft", "public.looked", "public.kept", "public.away", "pg_temp.scratch")

VIRTUAL = (
    "create table virtual_column (id int primary key, a int, b int generated always as (a * 2) virtual)",
    "insert into virtual_column (id, a) select n, n from generate_series(1, 10) n",
)

HUGE = (
    "create table huge (id int primary key, v text)",
    "insert into huge values (1, repeat('0123456789', 10000000)), (2, 'small')",
)

TYPES = (
    "create type feeling as enum ('sad', 'happy, or so')",
    "create type pair as (a int, b text)",
    "create domain natural_number as int check (value > 0)",
    "create domain words as text[]",
    *(
        f"create table {name} (id int primary key, i2 smallint, i8 bigint, f4 real, f8 double precision, n numeric, "
        "n2 numeric(10,2), b boolean, t text, vc varchar(9), c char(5), d date, ti time, ttz timetz, ts timestamp, "
        "tstz timestamptz, iv interval, u uuid, j json, jb jsonb, by bytea, ia int[], ta text[], da date[], m feeling, "
        "ms feeling[], p pair, ps pair[], po natural_number, w words, r int4range, tr tstzrange, mr nummultirange, ip inet, "
        "cidr cidr, mac macaddr, bits bit varying, mo money, pt point, tsv tsvector, o oid)"
        for name in ("copied", "streamed")
    ),
)

# One row after the other; what is not named is NULL.
VALUES = (
    "(id) values (1)",
    """(id, i2, i8, f4, f8, n, n2, b, t, vc, c) values
    (2, -32768, -9223372036854775808, 'NaN', '-Infinity', 'NaN', -0.01, true, '', '', ''),
    (3, 32767, 9223372036854775807, '1e-45', 5e-324, '-Infinity', 99999999.99, false, E'\\\\N', 'NULL', 'ab'),
    (4, 0, 0, 'Infinity', 0.1, 1e-300, 0, null, E'"a",\\n\\r\\t\\\\', ',', E'\\n'),
    (5, 1, 1, '-0', '-0', 123456789012345678901234567890.5, 'NaN', null, '🐘' || chr(160), '\\.', '\\.')""",
    """(id, d, ti, ttz, ts, tstz, iv) values
    (10, 'infinity', '24:00:00', '00:00:00+15:59', 'infinity', '-infinity', '-178000000 years'),
    (11, '4713-01-01 BC', '23:59:59.999999', '24:00:00-15:59', '0044-03-15 12:00:00 BC', '4713-01-01 00:00:00+00 BC',
     '1 year 2 mons -3 days 04:05:06.7'),
    (12, '5874897-12-31', '00:00', '12:00:00.5+05:30', '294276-12-31 23:59:59.999999', '0001-12-31 23:59:59.999999+00 BC',
     '0'),
    (13, '2024-02-29', '12:00', '12:00Z', '2024-02-29 00:00', '2024-03-31 02:30:00 Europe/Berlin', 'P1Y2M3DT4H5M6.789S')""",
    """(id, u, j, jb, by) values
    (20, '00000000-0000-0000-0000-000000000000', '{"a" : [1,  2], "a": null}', '{"z": 1.50, "a": {}}', ''),
    (21, 'ffffffff-ffff-ffff-ffff-ffffffffffff', '"text"', 'null', '\\x00ff5c2c220a'),
    (22, null, ' [] ', '[1e400]', '\\x')""",
    """(id, ia, ta, da, m, ms, p, ps, po, w) values
    (30, '{}', '{}', '{infinity,NULL}', 'happy, or so', '{sad,"happy, or so",NULL}', '(1,"a ""b"", c")',
     '{"(1,x)",NULL,"(,)"}', 7, '{"a,b",NULL}'),
    (31, '{{1,2},{3,NULL}}', '{"",NULL,"NULL","a,b","\\"","\\\\","{}"}', '{}', 'sad', '{}', '(,)', '{}', 1, '{}'),
    (32, '[0:1]={1,2}', '{" "}', '{2024-02-29}', null, null, '(,"")', null, null, null)""",
    """(id, r, tr, mr, ip, cidr, mac, bits, mo, pt, tsv, o) values
    (40, 'empty', '[2024-01-01 00:00+00,)', '{[1.5,2],(3,4)}', '::1/64', '10.0.0.0/8', '08:00:2b:01:02:03', '101',
     -92233720368547758.08, '(1,-2.5)', '''a b'':1A ''c''', 4294967295),
    (41, '[1,5)', '(,)', '{}', '10.0.0.1/8', '::/0', 'ff:ff:ff:ff:ff:ff', '', 0, '(NaN,Infinity)', '', 0)""",
)
