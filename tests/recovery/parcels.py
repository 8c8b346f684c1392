"""A table that is copied in many small chunks, beside one without a key, and a load on both that never ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import psycopg

from tests.recovery.workload import Statement, Table

PARCELS = Table("public", "parcels", ("id", "note", "body"), ("id",))
BAG = Table("public", "bag", ("a", "b"), ())
TABLES = (PARCELS, BAG)

_SCHEMA = """
create table parcels (id int primary key, note text, body text);
alter table parcels alter body set storage external;
"""
_SCHEMA_OF_BAG = """
create table bag (a int, b text);
alter table bag replica identity full;
insert into bag select n % 7, 'same' from generate_series(1, 200) n;
"""
_BODY = "(select string_agg(md5(%s::text || m), '') from generate_series(1, 90) m)"  # 2,880 bytes: kept out of line
_PAUSE_SECONDS = 0.04  # not all of the processor is for the load


def create_parcels(url: str, count: int) -> None:
    """About 3 KiB each."""
    body = _BODY.replace("%s", "n")
    rows = f"insert into parcels select n, repeat('p', 200), {body} from generate_series(1, %s::int) n"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SCHEMA)
        connection.execute(rows.encode(), [count])


def create_bag(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SCHEMA_OF_BAG)


class Load:
    """One small transaction after the other while ``flowing``, through the server's restarts. A seed stands for a load."""

    def __init__(self, url: str, keys: int, seed: int, bag: bool = False) -> None:
        self._url, self._keys, self._seed, self._bag = url, keys, seed, bag
        self.done = 0

    @contextmanager
    def flowing(self) -> Iterator[None]:
        stop, errors = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                while not stop.is_set():
                    self._connected(stop)
            except BaseException as error:  # noqa: BLE001  carried to the test
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)
        if errors:
            raise errors[0]

    def _connected(self, stop: threading.Event) -> None:
        """Until it is stopped, or the server goes away."""
        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                while not stop.wait(_PAUSE_SECONDS):
                    self.done += 1
                    with connection.transaction():
                        for statement, values in self._transaction(Random(f"{self._seed}:{self.done}")):
                            connection.execute(statement.encode(), values)
        except psycopg.OperationalError:
            stop.wait(_PAUSE_SECONDS)

    def _transaction(self, random: Random) -> list[Statement]:
        kinds = [_update, _update, _move, _replace, _delete, _insert, *([_change_bag] if self._bag else [])]
        return random.choice(kinds)(random, self._keys)


def _update(random: Random, keys: int) -> list[Statement]:
    """The row may go to another page, and its long value is not sent."""
    low = random.randrange(1, keys)
    values = [random.choice("qrs"), low, low + random.randrange(1, 20)]
    return [("update parcels set note = repeat(%s, 250) where id between %s and %s", values)]


def _move(random: Random, keys: int) -> list[Statement]:
    old, new = random.sample(range(1, keys + 100), 2)
    return [
        ("delete from parcels where id = %s", [new]),
        ("update parcels set id = %s where id = %s", [new, old]),
    ]


def _replace(random: Random, keys: int) -> list[Statement]:
    return [(f"update parcels set body = {_BODY} where id = %s", [random.random(), random.randrange(1, keys)])]


def _delete(random: Random, keys: int) -> list[Statement]:
    return [("delete from parcels where id = %s", [random.randrange(1, keys)])]


def _insert(random: Random, keys: int) -> list[Statement]:
    values = [random.randrange(1, keys), random.random()]
    return [(f"insert into parcels values (%s, 'new', {_BODY}) on conflict do nothing", values)]


def _change_bag(random: Random, keys: int) -> list[Statement]:
    one = "(select ctid from bag where a = %s limit 1)"
    return [
        ("insert into bag values (%s, 'same')", [random.randrange(7)]),
        (f"update bag set a = a + 1 where ctid = {one}", [random.randrange(7)]),
        (f"delete from bag where ctid = {one}", [random.randrange(7)]),
    ]
