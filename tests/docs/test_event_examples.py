"""The tables of the example events are as Postgres describes them."""

from __future__ import annotations

from penstock.postgres.connection import connect
from penstock.postgres.tables import tables_matching
from penstock.rules.checks.source_tables import source_tables
from penstock.settings.tables import TableSelection
from tests.docs.event_examples import DOCUMENTS, EXAMPLE


def test_the_types_in_the_example_events_are_called_as_the_source_calls_them(database: str) -> None:
    with connect(database) as connection:
        connection.execute("create table public.example (id bigint primary key, msg text)")
        connection.execute("create table public.documents (id bigint primary key, title text, body text)")
        tables = source_tables(connection, tables_matching(connection, TableSelection()))
    types = {table.relation.table: [column.type_name for column in table.relation.columns] for table in tables}
    assert types == {table.table: [column.type_name for column in table.columns] for table in (DOCUMENTS, EXAMPLE)}
