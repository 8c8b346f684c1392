"""Every type that a column can have, with the values of it that go wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A type and values of it: SQL expressions. ``key``: whether it can be part of a primary key."""

    type: str
    values: tuple[str, ...]
    key: bool = True

    @property
    def name(self) -> str:
        """For a test's."""
        return f"{self.type} of a megabyte" if self in _LARGE else self.type

    @property
    def array(self) -> Kind:
        """Of all its values: once in a row with a NULL, from another lower bound, and in two dimensions."""
        some = ", ".join(f"({value})::{self.type}" for value in self.values)
        first = f"({self.values[0]})::{self.type}"
        return Kind(
            f"{self.type}[]",
            (
                f"array[{some}, null]::{self.type}[]",
                "'{}'",
                f"array_fill({first}, '{{2,1}}', '{{-3,7}}')",
                f"array[[{first}, null], [null, {first}]]",
            ),
            self.type in ("integer", "numeric", "text", "mood", "pair", "citext", "ltree"),  # one of each sort
        )


def kind(type: str, *values: str, key: bool = True) -> Kind:
    """Values that are texts to be read as that type."""
    return Kind(type, tuple("'" + value.replace("'", "''") + "'" for value in values), key)


AWKWARD_TEXTS = (
    "", " ", "\\N", "\\.", "\\", "\\\\", "\t", "\n", "\r", "\r\n", "a\tb\nc\rd\\e", "'", '"', '""', "null", "NULL", ",", "{}",
    "()", "\b\f\v\x01\x7f", "é ü ß 日本語 🐘 \u2028 \ufeff", "e\u0301", "$1 %s {0} --", "\n\\.\n",
)  # fmt: skip

BEFORE = (
    """create type mood as enum ('sad', 'happy, or so', '"quoted"', 'it''s', ' ', '\\N')""",
    "create domain positive as int check (value > 0)",
    "create domain more_positive as positive check (value < 1000)",
    "create domain code as varchar(5) collate \"C\"",
    "create domain integers as int[] check (cardinality(value) < 9)",
    "create domain moods as mood[]",
    "create type pair as (a int, b text)",
    """create type "Awkward Type" as ("the ""Number"" x" numeric(20,5), texts text[], inner_pair pair, """
    '"when" timestamptz, p positive)',
    "create type pairs as (all_of_them pair[], and_moods moods)",
    "create domain real_pair as pair check (value is null or (value).a is not null)",
    "create type nothing as ()",
    "create type textrange as range (subtype = text, collation = \"C\", multirange_type_name = textmulti)",
    "create type floatrange as range (subtype = float8, subtype_diff = float8mi)",
    "create schema elsewhere", "create type elsewhere.mood as enum ('other')",
)  # fmt: skip

_SCALARS = (
    kind("boolean", "true", "false"),
    kind("smallint", "-32768", "32767", "0"),
    kind("integer", "-2147483648", "2147483647"),
    kind("bigint", "-9223372036854775808", "9223372036854775807"),
    Kind("numeric", (
        "'NaN'", "'Infinity'", "'-Infinity'", "'0'", "'-0.00'", "'1.0'", "'1.00'", "'100'", "'1e2'", "'1e-16383'",
        "('1e131071'::numeric)", "('9'::numeric / 7)", "'-99999999999999999999999999999999999999.000000000000000001'",
    )),
    kind("numeric(1000,500)", "1e499", "1e-500", "-1.50"),
    kind("numeric(3,-2)", "99900", "-100"),
    kind("numeric(3,5)", "0.00999"),
    kind("real", "NaN", "Infinity", "-Infinity", "-0", "0", "3.4028235e38", "1e-45", "1.17549435e-38", "0.1", "16777217"),
    kind("double precision", "NaN", "Infinity", "-Infinity", "-0", "0", "1.7976931348623157e308", "5e-324", "0.1",
         "0.30000000000000004", "9007199254740993", "1e22", "1e-5"),
    kind("money", "-92233720368547758.08", "92233720368547758.07", "0.01"),
    kind("text", *AWKWARD_TEXTS),
    kind("varchar", *AWKWARD_TEXTS),
    kind("varchar(3)", "", "abc", "🐘🐘🐘", "a  "),
    kind("char(5)", "ab", "", "abcde", "🐘", "a \t"),
    kind("char", "x", ""),
    kind("bpchar", "x  ", "", "a\n "),
    kind('"char"', "a", "", "\\", "\t", "\n", "'", "\\200", "\\377"),
    kind("name", "", "a" * 63, "A name\t\\N", "é" * 31),
    Kind("bytea", (
        "''", "'\\x00'", "'\\x5c4e0a09'", "decode(string_agg_bytes, 'hex')".replace(
            "string_agg_bytes", "(select string_agg(lpad(to_hex(n), 2, '0'), '' order by n) from generate_series(0, 255) n)"
        ),
    )),
    kind("date", "infinity", "-infinity", "4714-11-24 BC", "5874897-12-31", "0001-01-01", "0001-12-31 BC", "2024-02-29"),
    kind("time", "00:00:00", "24:00:00", "23:59:59.999999"),
    kind("time(2)", "23:59:59.99"),
    kind("time with time zone", "24:00:00+15:59", "00:00:00-15:59:59", "12:00:00.000001+05:30"),
    kind("timestamp", "infinity", "-infinity", "4714-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999",
         "0001-01-01 00:00:00", "1999-12-31 24:00:00", "2024-02-29 12:00:00.000001"),
    kind("timestamp(0)", "2024-02-29 12:00:00.6"),
    kind("timestamp with time zone", "infinity", "-infinity", "4714-11-24 00:00:00+00 BC",
         "294276-12-31 23:59:59.999999+00", "2024-03-31 02:30:00 Europe/Berlin", "1883-11-18 12:03:58 America/New_York"),
    kind("interval", "0", "1 year -2 mons +3 days -04:05:06.7", "-178000000 years", "178000000 years",
         "2147483647 days -2562047788:00:54.775807", "-0.000001 s", "1 mon", "30 days", "720:00:00"),
    kind("interval", "infinity", "-infinity"),
    kind("interval day to second(3)", "1 day 00:00:00.123"),
    kind("interval year to month", "-1-2"),
    kind("uuid", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    kind("json", '{"a": 1, "a":  2,\n"b\\t": "\\u00e9\\\\"}', "null", '""', "[]", " 1e999 ", '"\\ud83d\\udc18"', key=False),
    Kind("jsonb", (
        """'{"b": [1, null, "x\\ty", {"a\\"": "\\\\N"}], "a": 1.00, "": -0.0}'""", "'null'", "'\"\"'", "'[]'", "'{}'",
        "'\"🐘\"'",
        "'1e100'", "'123456789012345678901234567890.123456789'",
    )),
    kind("jsonpath", "$", 'strict $."a b"[*] ? (@.x > 1 && @ like_regex "^\\\\d" flag "i").size()',
         "lax $[last to 1]", key=False),
    kind("inet", "::1/128", "10.0.0.1/8", "0.0.0.0/0", "255.255.255.255", "::ffff:1.2.3.4", "2001:db8::/32"),
    kind("cidr", "10.0.0.0/8", "::/0", "192.168.1.1/32", "2001:db8::/32"),
    kind("macaddr", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"),
    kind("macaddr8", "08:00:2b:01:02:03:04:05", "ff:ff:ff:ff:ff:ff:ff:ff"),
    kind("bit(3)", "101", "000"),
    kind("bit", "1"),
    kind("bit varying", "", "1", "0" * 99 + "1"),
    kind("varbit(9)", "", "101010101"),
    kind("point", "(1,-2.5)", "(NaN,Infinity)", "(-0,1e-300)", key=False),
    kind("line", "{1,2,3}", "{0,-1,0.1}", key=False),
    kind("lseg", "[(0,0),(1,1e100)]", key=False),
    kind("box", "(3,4),(1,2)", "(Infinity,0),(-Infinity,-0)", key=False),
    kind("path", "[(0,0),(1,1)]", "((0,0),(1,1),(2,0))", key=False),
    kind("polygon", "((0,0),(1,1),(2,0))", "((0,0))", key=False),
    kind("circle", "<(0,0),0>", "<(1.5,-2),Infinity>", key=False),
    kind("tsvector", "", "'a':1A,3B 'it''s':16383 'b\\\\c' ' ' 'd\te'"),
    kind("tsquery", "", "'a':*AB & !( 'b c' <-> 'd''s' | 'e' ) <5> 'f'", "!'\\\\x'"),
    kind("int4range", "empty", "[1,5)", "(,)", "[-2147483648,)", "(,2147483647)"),
    kind("int8range", "[1,9223372036854775807)", "(,0)"),
    kind("numrange", "[1.0,1.00]", "(NaN,)", "(,Infinity)", "empty"),
    kind("tsrange", '["-infinity","infinity"]', '(,"2024-02-29 12:00:00.000001"]', '["4713-01-01 00:00:00 BC",)'),
    kind("tstzrange", '["2024-02-29 00:00:00+00","2024-02-29 00:00:00+00"]', "empty"),
    kind("daterange", "[2024-02-28,2024-02-29]", "(,infinity)", "[-infinity,)"),
    kind("int4multirange", "{}", "{[1,2),[5,9),[20,)}"),
    kind("int8multirange", "{(,)}"),
    kind("nummultirange", "{[1.0,1.50],(2,NaN]}"),
    kind("tsmultirange", '{(,"2024-02-29 00:00:00"),["2025-01-01 00:00:00",infinity]}'),
    kind("tstzmultirange", '{["2024-02-29 00:00:00+00","2025-01-01 00:00:00+00")}'),
    kind("datemultirange", "{[2024-01-01,2024-02-01),[2025-01-01,)}"),
    kind("pg_lsn", "0/0", "FFFFFFFF/FFFFFFFF"),
    kind("txid_snapshot", "10:20:10,14,15", "1:1:", key=False),
    kind("pg_snapshot", "10:20:10,14,15", "1:1:", key=False),
    kind("oid", "0", "4294967295"),
    kind("xid", "0", "4294967295", key=False),
    kind("xid8", "0", "18446744073709551615"),
    kind("cid", "0", "4294967295", key=False),
    kind("tid", "(0,1)", "(4294967295,65535)"),
    kind("oidvector", "", "1 2 4294967295"),
    kind("int2vector", "", "-32768 0 32767"),
    kind("aclitem", "postgres=r*w/postgres", "=X/postgres", key=False),
    kind("refcursor", "", "a cursor\t", key=False),
    kind("regclass", "pg_class", "-", "pg_catalog.pg_type", "information_schema.tables", "4294967295"),
    kind("regtype", "integer", "-", "numeric", "timestamp with time zone", '"char"', "integer[]"),
    kind("regproc", "now", "-", "pg_catalog.now"),
    kind("regprocedure", "abs(integer)", "-"),
    kind("regoper", "!!", "pg_catalog.||/"),
    kind("regoperator", "+(integer,integer)", "-(NONE,integer)"),
    kind("regnamespace", "pg_catalog", "information_schema"),
    kind("regrole", "postgres"),
    kind("regconfig", "english", "simple"),
    kind("regdictionary", "english_stem"),
    kind("regcollation", '"C"', '"POSIX"'),
    kind("mood", "sad", "happy, or so", '"quoted"', "it's", " ", "\\N"),
    kind("elsewhere.mood", "other"),
    kind("positive", "1", "2147483647"),
    kind("more_positive", "7"),
    kind("code", "", "a\\,\"\t"),
    kind("pair", "(1,x)", "(,)", '(-1,"a,b""c\\\\d\n")', '(,"")'),
    Kind('"Awkward Type"', (
        """row(1.5, array['a,b', null, '', '"', '\\', '{}', 'NULL'], row(1, E'x\\ty'), '4714-11-24 00:00:00+00 BC', 1)""",
        "'(,,,,)'", "row('NaN', '{}', null, 'infinity', null)",
        "row(-0.00001, '[2:3]={a,b}', row(null, '()'), '-infinity', 2)",
    )),
    Kind("pairs", (
        """row(array[row(1, 'a"b'), null, row(null, ''), row(2, '\\N')]::pair[], array['sad', ' ', null]::mood[])""", "'(,)'",
        "row('{}', '{}')",
    )),
    kind("real_pair", "(1,)", '(2,"(\\"\\"{})")'),
    kind("nothing", "()"),
    kind("textrange", "empty", '["a,b","c""]"]', "[,)", '("\\\\",é)', '["",""]', '[\t," "]'),
    kind("textmulti", "{}", '{["a","b\\"}"),[c,)}'),
    kind("floatrange", "[-0,1e300)", "(,NaN]", "[-Infinity,Infinity]"),
)  # fmt: skip

# With dimensions of their own, and what has no array type (a domain's array and domains over arrays do).
_OTHERS = (
    kind("integers", "{}", "{1,NULL,-3}", "[0:1]={1,2}", "{{1,2},{3,4}}"),
    kind("integers[]", '{}', '{"{1,2}",NULL,"{}"}'),
    kind("moods", "{}", '{sad,"happy, or so",NULL," ","\\"quoted\\"","\\\\N"}'),
    kind("int[][][]", "{{{1},{2}},{{3},{NULL}}}", "[-1:0][5:5]={{1},{2}}", "{}"),
    kind("text[]", '{"","NULL",NULL,"a,b","\\"","\\\\"," ","{}","\t","\n","\\\\N","\\\\."}'),
)  # fmt: skip

# A million characters, stored out of line, compressed and not.
_LARGE = (
    Kind("text", ("repeat('0123456789', 100000)",
                  "(select string_agg(md5(n::text) || E'\\t\\\\\\n', '') from generate_series(1, 28000) n)"), key=False),
    Kind("bytea", ("(select string_agg(decode(md5(n::text), 'hex'), '') from generate_series(1, 62500) n)",), key=False),
    Kind("jsonb", ("(select jsonb_agg(md5(n::text)) from generate_series(1, 30000) n)",), key=False),
    Kind("json", ("(select json_agg(md5(n::text)) from generate_series(1, 30000) n)",), key=False),
    Kind("text[]", ("(select array_agg(md5(n::text) || '\"\\,') from generate_series(1, 30000) n)",), key=False),
    Kind("numeric", ("(select string_agg((n % 10)::text, '')::numeric from generate_series(1, 100000) n)",), key=False),
    Kind("bit varying", ("repeat('01', 50000)::varbit",), key=False),
    Kind("tsvector", ("(select array_to_tsvector(array_agg(md5(n::text))) from generate_series(1, 20000) n)",), key=False),
    Kind("int4multirange", ("(select range_agg(int4range(3 * n, 3 * n + 1)) from generate_series(1, 30000) n)",), key=False),
    Kind("polygon", ("(select ('(' || string_agg(format('(%s,%s)', n, n / 7.0), ',') || ')')::polygon "
                     "from generate_series(1, 20000) n)",), key=False),
    Kind("pair[]", ("(select array_agg(row(n, md5(n::text))::pair) from generate_series(1, 20000) n)",), key=False),
)  # fmt: skip

BUILT_IN = (*_SCALARS, *(some.array for some in _SCALARS), *_OTHERS, *_LARGE)

CONTRIB = {
    "citext": [kind("citext", "", "MiXed", "mixed", "MIXED", "É\t\\N")],
    "hstore": [kind("hstore", "", 'a=>1, "b c"=>NULL, "\\"q\\""=>"\\\\x\ty", "NULL"=>"NULL", ""=>""')],
    "ltree": [
        kind("ltree", "", "a.b.c", "Top.Science_2"), kind("lquery", "*.a@*.!b{1,2}.c|d", key=False),
        kind("ltxtquery", "a & !b@ | c%", key=False),
    ],
    "cube": [kind("cube", "(1)", "(1,2,3),(4,5,6)", "()", "(-0,NaN),(Infinity,1e-300)")],
    "seg": [kind("seg", "1", "1.5 .. 2.50", "~6.25", "<1 .. >2", "1 ..", ".. 0.10")],
    "isn": [
        kind("isbn", "978-0-11-000533-1", "1-4028-9462-7"), kind("isbn13", "978-0-393-04002-9"),
        kind("issn", "1436-4522"), kind("ean13", "220-000-000000-2"), kind("upc", "036000291452"),
        kind("ismn", "979-0-060-11561-5"),
    ],
    "lo": [Kind("lo", ("16", "0"))],
    "intarray": [kind("query_int", "1&(2|!3)", key=False)],
}  # fmt: skip


_XML = kind(
    "xml",
    "",
    "<a b='1'>x &amp; y\n\t<c/></a>",
    '<?xml version="1.0" standalone="yes"?><é/>',
    "no <b>root</b>",
    key=False,
)
_OF_CONTRIB = (*(some for kinds in CONTRIB.values() for some in kinds), _XML)  # the wheel's servers have no xml
OF_CONTRIB = (*_OF_CONTRIB, *(some.array for some in _OF_CONTRIB))
