"""Rows of an import are read at different times, so what is unique in the source may be double in the target for a while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.sinks.postgres.sink import PostgresSink
from penstock.testing.change_batches import changes, relation

TABLES = """
CREATE TABLE accounts (id integer PRIMARY KEY, email text UNIQUE);
CREATE UNIQUE INDEX accounts_lower ON accounts (lower(email));
"""


class Import:
    """Of the source's table ``accounts``, whose key and indexes the target's gets."""

    def __init__(self, source: str, target: str, directory: Path, on_error: str) -> None:
        self._target, self._directory = target, directory
        settings = {"name": "replica", "type": "postgres", "url": SecretStr(target), "on_error": on_error}
        self.sink = PostgresSink(PostgresSink.Settings.model_validate(settings))
        self.sink.source = source
        self.sink.prepare()
        with psycopg.connect(source) as connection:
            connection.execute(TABLES)
            found = connection.execute("SELECT 'accounts'::regclass::oid::bigint").fetchone()
        assert found is not None
        self.accounts: Relation = replace(
            relation("public", "accounts", id="integer", email="text", key=("id",)), oid=found[0]
        )

    def part(self, phase: Any, *rows: tuple[Any, ...], lsn: int = 0x10, **members: Any) -> None:
        batch = Batch(-1, LSN(0), LSN(0), str(self._directory), ImportPart(1, self.accounts, phase, **members))
        some: list[ChangeBatch] = [changes(self.accounts, list(rows), lsn=lsn)] if rows else []
        self.sink.commit(batch, [self.sink.write(batch, iter(some))])

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._target) as connection:
            return connection.execute(query.encode()).fetchall()

    def unique_indexes(self) -> list[tuple[Any, ...]]:
        return self.query(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'accounts'::regclass AND indisunique "
            "ORDER BY 1"
        )


@pytest.fixture(params=["stop", "dead_letter"])
def accounts(database: str, target_database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Import]:
    found = Import(database, target_database, tmp_path, request.param)
    yield found
    found.sink.close()


def account(id: int, email: str) -> dict[str, Any]:
    return {"id": id, "email": email}


ALL_UNIQUE = [("accounts_email_key",), ("accounts_lower",), ("accounts_pkey",)]


def test_a_value_that_passed_on_between_two_reads_is_double_until_the_changes_are_replayed(accounts: Import) -> None:
    accounts.part("begin")
    accounts.part("rows", ("read", account(1, "a")), number=1)
    accounts.part("rows", ("read", account(2, "A")), ("read", account(3, "a")), number=2)
    accounts.part("changes", ("update", account(1, "b")), ("update", account(3, "c")), upto=LSN(0x100))
    accounts.part("end", upto=LSN(0x100))
    assert accounts.query("SELECT * FROM accounts ORDER BY id") == [(1, "b"), (2, "A"), (3, "c")]
    assert accounts.unique_indexes() == ALL_UNIQUE


def test_a_replayed_change_may_double_a_value_that_a_later_one_sets_right(accounts: Import) -> None:
    accounts.part("begin")
    accounts.part("rows", ("read", account(2, "c")), number=1)
    accounts.part("changes", ("insert", account(3, "c")), upto=LSN(0x100))
    accounts.part("changes", ("update", account(3, "d")), ("update", account(2, "c")), lsn=0x110, upto=LSN(0x200))
    accounts.part("end", upto=LSN(0x200))
    assert accounts.query("SELECT * FROM accounts ORDER BY id") == [(2, "c"), (3, "d")]
    assert accounts.unique_indexes() == ALL_UNIQUE


def test_a_row_that_was_read_twice_is_there_once(accounts: Import) -> None:
    accounts.part("begin")
    accounts.part("rows", ("read", account(1, "a")), ("read", account(2, "b")), number=1)
    accounts.part("rows", ("read", account(1, "z")), number=2)
    accounts.part("changes", ("update", account(1, "z")), upto=LSN(0x100))
    accounts.part("end", upto=LSN(0x100))
    assert accounts.query("SELECT * FROM accounts ORDER BY id") == [(1, "z"), (2, "b")]
    assert accounts.unique_indexes() == ALL_UNIQUE


def test_what_is_double_at_the_end_is_refused(accounts: Import) -> None:
    accounts.part("begin")
    accounts.part("rows", ("read", account(1, "a")), ("read", account(2, "a")), number=1)
    accounts.part("changes", upto=LSN(0x100))
    with pytest.raises(SinkRefused, match="accounts"):
        accounts.part("end", upto=LSN(0x100))
