"""Which commands leave rows that a sink has to import again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from penstock.lsn import LSN
from penstock.schema.log.recomputations import recomputations
from penstock.sinks.contract import Sink
from penstock.sinks.duckdb.sink import DuckDBSink
from penstock.sinks.file.sink import FileSink
from penstock.sinks.postgres.sink import PostgresSink
from tests.postgres.logged_session import LoggedSession, logged_session

BEFORE = """
create type mood as enum ('sad', 'ok'); create type part as (a int, b text); create domain small as int;
create table direct (id int, m mood, p part, n small); create table listed (id int, ms mood[], ps part[], ns small[]);
create table none (id int)
"""


@pytest.fixture
def session(database: str) -> Iterator[LoggedSession]:
    with logged_session(database) as made:
        made.run(BEFORE)
        yield made


def again(session: LoggedSession, sink: Sink[Any, Any]) -> set[str]:
    """The tables that are imported into the sink again."""
    names: dict[int, str] = dict(session.ours.execute("select oid::bigint, relname::text from pg_class").fetchall())
    found = recomputations(session.ours, LSN(1))
    return {
        names[oid]
        for command in found
        if command.computed or not all(sink.recomputes(change, command.nested) for change in command.changes)
        for oid in command.oids
    }


@pytest.mark.parametrize("database", [16, 18], indirect=True)
@pytest.mark.parametrize(
    ("command", "in_duckdb"),
    [
        ("alter type part add attribute c int", {"direct", "listed"}),
        ("alter type part drop attribute b", {"direct", "listed"}),
        ("alter type part rename attribute b to c", set()),
        ("alter type part rename to piece", set()),
        ("alter type mood rename value 'sad' to 'blue'", {"listed"}),
        ("alter type mood add value 'glad'", set()),
        ("alter domain small set default 5", set()),
        ("alter table direct alter n type numeric(6,2)", set()),
        ("alter table direct alter id type text", set()),
    ],
)
def test_a_sink_imports_again_what_it_does_not_recompute(
    session: LoggedSession, tmp_path: Path, command: str, in_duckdb: set[str]
) -> None:
    session.run(command)
    assert again(session, DuckDBSink(DuckDBSink.Settings(name="lake", path=tmp_path))) == in_duckdb
    assert again(session, PostgresSink(PostgresSink.Settings(name="replica", url=SecretStr("")))) == set()
    assert again(session, FileSink(FileSink.Settings(name="events", path=tmp_path))) == set()
