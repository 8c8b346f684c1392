"""Tables, columns and publications may be called anything. What is printed of them stays one line, and moves no cursor."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import sql

from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.state.pipeline_state import SinkState, now
from tests.cli.command import Here, write_config
from tests.cli.conftest import capture_until

NAME = "orders\n13:00:00 error: forged \x1b[31m\x9b1m\u202e [red]x[/red]"
ESCAPED = "public.orders\\n13:00:00 error: forged \\x1b[31m\\x9b1m\\u202e [red]x[/red]"


@pytest.fixture
def hostile(database: str, tmp_path: Path) -> Path:
    """A pipeline over such a table, with a log and a sink that has failed because of it."""
    file = write_config(tmp_path, database)
    pipeline = Pipeline.from_file(file)
    table = sql.Identifier("public", NAME)
    with connect(database) as connection:
        connection.execute(sql.SQL("create table {} ({} int)").format(table, sql.Identifier(NAME)))
        pipeline.init()
        connection.execute(sql.SQL("insert into {} values (1)").format(table))
        connection.execute(sql.SQL("alter table {} add more text").format(table))
        upto = catalog.wal_marker(connection)
    capture_until(pipeline, upto)
    pipeline.state.save(SinkState(None, now(), "failed", f"The sink refused {NAME}."), "files")
    return file


@pytest.mark.parametrize(
    "words",
    [
        ("check",), ("status",), ("tables", "list"), ("log", "show", "--segments"), ("log", "schema"),
        ("log", "query", 'select "table" from changes'), ("tables", "resync", "other"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_name_with_control_characters_is_printed_escaped(
    words: tuple[str, ...], hostile: Path, penstock: Here
) -> None:
    group = words[0] in ("tables", "log")
    outcome = penstock(words[0], hostile, *words[1:]) if group else penstock(*words, hostile)
    said = outcome.out + outcome.err
    assert [line for line in said.splitlines() if line.startswith("13:00:00") or not line.isprintable()] == []
    if words != ("tables", "resync", "other"):
        assert ESCAPED.removeprefix("public.") in said.replace("\n", "")
