"""A seeded load on the source: everything that Postgres can do to a row, on tables of every kind.

Transaction number n of a seed is always the same SQL, whatever happened before it: a statement picks its rows by key, and
what it finds there is the server's business. So a server that dies in the middle needs no bookkeeping here; the source's
own tables are the truth that sinks are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import psycopg
from psycopg import sql

from penstock.testing.conditions import wait_until

ODD_SCHEMA, ODD_TABLE = 'We ird"Schema', "drop table; --"


@dataclass(frozen=True)
class Table:
    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


ACCOUNTS = Table("public", "accounts", ("id", "name", "balance", "active", "seen", "body"), ("id",))
PAIRS = Table("public", "pairs", ("a", "b", "value"), ("a", "b"))
ODD = Table(ODD_SCHEMA, ODD_TABLE, ("Sel ect", "Übung"), ("Sel ect",))
UPPER = Table("public", "Accounts", ("id", "Id"), ("id",))
BAG = Table("public", "bag", ("a", "b", "body"), ())
EVENTS = Table("public", "events", ("number", "payload"), ())
SPLIT = Table("public", "split", ("id", "value"), ("id",))
WIDE = Table("public", "wide", ("id", "value", "body"), ("id",))
ROUNDS = Table("public", "rounds", ("number",), ("number",))
TABLES = (ACCOUNTS, PAIRS, ODD, UPPER, BAG, EVENTS, SPLIT, WIDE, ROUNDS)

_SCHEMA = f"""
create table accounts (id int primary key, name text, balance numeric(12,2), active bool, seen timestamp, body text);
alter table accounts alter body set storage external;
create table pairs (a int, b text, value bigint, primary key (a, b));
create schema "We ird""Schema";
create table "We ird""Schema"."{ODD_TABLE}" ("Sel ect" int primary key, "Übung" text);
create table "Accounts" (id int primary key, "Id" text);
create table bag (a int, b text, body text);
alter table bag alter body set storage external, replica identity full;
create table events (number int, payload jsonb);
create table split (id int primary key, value text) partition by hash (id);
create table split_0 partition of split for values with (modulus 2, remainder 0);
create table split_1 partition of split for values with (modulus 2, remainder 1);
create table wide (id int primary key, value int, body text);
alter table wide alter body set storage external, replica identity full;
create table rounds (number int primary key);
"""

_KEYS = 60  # few, so that the same rows change again and again
_BODY = "(select string_agg(md5(%s::text || n), '') from generate_series(1, 90) n)"  # 2,880 bytes: kept out of line

Statement = tuple[str, Sequence[object]]


def create_tables(connection: psycopg.Connection) -> None:
    connection.execute(_SCHEMA)


def transaction(seed: int, number: int) -> list[Statement]:
    """The statements of one transaction, without BEGIN and COMMIT."""
    random = Random(f"{seed}:{number}")
    kinds: list[Callable[[Random], list[Statement]]] = [
        _accounts, _accounts, _accounts, _move_key, _move_key, _pairs, _odd, _bag, _bag, _events, _split, _wide, _many_tables,
        _many_tables, _rolled_back, _toast_untouched, _toast_untouched,
    ]  # fmt: skip
    if number % 29 == 17:
        return _large(random)
    if number % 53 == 31:
        return _truncate(random)
    return random.choice(kinds)(random)


def _upsert(random: Random) -> Statement:
    key = random.randrange(_KEYS)
    row = [key, random.choice(["", "ä", 'Ω\n\t"', None]), random.randrange(10**9) / 100, random.random() < 0.5]
    return (
        f"insert into accounts values (%s, %s, %s, %s, '2026-01-01'::timestamp + %s * interval '1.5 seconds', {_BODY}) "
        "on conflict (id) do update set name = excluded.name, balance = excluded.balance, body = excluded.body",
        [*row, random.randrange(10**6), random.randrange(10**6)],
    )


def _accounts(random: Random) -> list[Statement]:
    statements = [_upsert(random) for _ in range(random.randrange(1, 4))]
    if random.random() < 0.4:
        statements.append(("delete from accounts where id = %s", [random.randrange(_KEYS)]))
    return statements


def _move_key(random: Random) -> list[Statement]:
    """An update of the key; of several in a row, the same row may move on and on."""
    old, new, last = random.sample(range(_KEYS), 3)
    moves = [(old, new), (new, last)] if random.random() < 0.4 else [(old, new)]
    return [
        statement
        for source, target in moves
        for statement in (
            ("delete from accounts where id = %s", [target]),
            ("update accounts set id = %s, name = 'moved' where id = %s", [target, source]),
        )
    ]


def _toast_untouched(random: Random) -> list[Statement]:
    low = random.randrange(_KEYS)
    bounds = [low, low + random.randrange(1, 15)]
    return [
        ("update accounts set balance = balance + 1 where id between %s and %s", bounds),
        ("update wide set value = value + 1 where id between %s and %s", bounds),
    ]


def _pairs(random: Random) -> list[Statement]:
    a, b = random.randrange(6), random.choice("xyzÄ")
    return [
        ("insert into pairs values (%s, %s, %s) on conflict (a, b) do update set value = excluded.value",
         [a, b, random.randrange(-(2**62), 2**62)]),
        ("delete from pairs where a = %s and b = %s", [random.randrange(6), random.choice("xyzÄ")]),
    ]  # fmt: skip


def _odd(random: Random) -> list[Statement]:
    key, text = random.randrange(_KEYS), random.choice(["'", '"', "\\", "NULL", None])
    name = f'"We ird""Schema"."{ODD_TABLE}"'
    return [
        (f'insert into {name} values (%s, %s) on conflict ("Sel ect") do update set "Übung" = excluded."Übung"', [key, text]),
        ('insert into "Accounts" values (%s, %s) on conflict (id) do update set "Id" = excluded."Id"', [key, text]),
        ('delete from "Accounts" where id = %s', [random.randrange(_KEYS)]),
    ]  # fmt: skip


def _bag(random: Random) -> list[Statement]:
    """No key, many equal rows; an update or a delete hits some of them, with NULLs and values out of line."""
    row = [random.randrange(4), random.choice(["same", None]), random.randrange(2)]
    one = "(select ctid from bag where a = %s limit 1)"
    statements: list[Statement] = [(f"insert into bag values (%s, %s, {_BODY})", row)] * random.randrange(1, 4)
    statements.append((f"update bag set a = a + 1 where ctid = {one}", [random.randrange(5)]))
    statements.append((f"delete from bag where ctid = {one}", [random.randrange(6)]))
    return statements


def _events(random: Random) -> list[Statement]:
    count = random.randrange(1, 20)
    return [
        (
            "insert into events select n, jsonb_build_object('n', n, 'ü', null) from generate_series(1, %s::int) n",
            [count],
        )
    ]


def _split(random: Random) -> list[Statement]:
    old, new = random.sample(range(_KEYS), 2)
    return [
        ("insert into split values (%s, %s) on conflict (id) do update set value = excluded.value", [old, str(new)]),
        ("delete from split where id = %s", [new]),
        ("update split set id = %s where id = %s", [new, old]),
    ]


def _wide(random: Random) -> list[Statement]:
    return [
        (f"insert into wide values (%s, 0, {_BODY}) on conflict (id) do update set value = wide.value + 1",
         [random.randrange(_KEYS), random.randrange(10**6)]),
    ]  # fmt: skip


def _many_tables(random: Random) -> list[Statement]:
    parts = [_accounts, _pairs, _odd, _bag, _events, _split, _wide, _move_key]
    return [statement for part in random.sample(parts, 4) for statement in part(random)]


def _rolled_back(random: Random) -> list[Statement]:
    """What happens within the savepoint never happened; around it, it did."""
    inside = [("savepoint s", []), *_accounts(random), *_bag(random), ("rollback to savepoint s", [])]
    return [*_accounts(random), *inside, *_events(random)]


def _large(random: Random) -> list[Statement]:
    """Far larger than a segment: it spans several."""
    base, count = 1000 * random.randrange(1, 5), random.randrange(300, 1500)
    series = [base, base + count]
    return [
        ("delete from wide where id >= 1000", []),
        (f"insert into wide select n, 0, {_BODY} || n from generate_series(%s::int, %s::int) n", [base, *series]),
        ("update wide set value = id where id between %s and %s and id %% 3 = 0", series),
        ("delete from wide where id between %s and %s and id %% 2 = 0", series),
        *_accounts(random),
    ]


def _truncate(random: Random) -> list[Statement]:
    tables = random.choice(["accounts", "bag", "accounts, bag, events", "split", "events, pairs"])
    return [*_accounts(random), (f"truncate {tables}", []), *_many_tables(random)]


class Load:
    """Runs the transactions of a seed one after the other, through server crashes. Not thread-safe."""

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._seed = url, seed
        self._connection: psycopg.Connection | None = None
        self.done = 0

    def run(self, count: int) -> None:
        for _ in range(count):
            self._run(transaction(self._seed, self.done))
            self.done += 1

    def mark(self, number: int) -> None:
        """A row that says: when a sink has this, it has all before it."""
        self._run([("insert into rounds values (%s) on conflict do nothing", [number])])
        if self._found("select 1 from rounds where number = %s", number) is None:
            self.mark(number)  # the server died with it

    def _found(self, query: str, number: int) -> object:
        return self._connected().execute(query.encode(), [number]).fetchone()

    def _run(self, statements: Sequence[Statement]) -> None:
        """A transaction that the server's death ended is not tried again: whether it was committed, the source knows."""
        try:
            connection = self._connected()
            with connection.transaction():
                for statement, values in statements:
                    connection.execute(statement.encode(), values)
        except psycopg.OperationalError:
            self.close()

    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = wait_until(self._try_to_connect, what="the source to come back")
        return self._connection

    def _try_to_connect(self) -> psycopg.Connection | None:
        try:
            return psycopg.connect(self._url, autocommit=True, connect_timeout=10)
        except psycopg.OperationalError:
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
