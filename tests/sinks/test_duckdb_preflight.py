"""What ``check`` says of columns that may meet a value which a DuckDB file cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.findings import Finding
from penstock.postgres.connection import connect
from penstock.sinks.duckdb.sink import DuckDBSink

TABLES = """
create domain public.price as numeric(10,2);
create table public.orders (id int primary key, at timestamptz, price public.price, tags int[][], total numeric, note text);
create table public.days (id int primary key, day date)
"""


@pytest.fixture
def tables(database: str) -> list[tuple[str, str]]:
    with connect(database) as connection:
        connection.execute(TABLES.encode())
    return [("public", "orders"), ("public", "days")]


def findings(tmp_path: Path, database: str, tables: list[tuple[str, str]], unrepresentable: object) -> list[Finding]:
    settings = {"name": "lake", "type": "duckdb", "path": tmp_path / "lake.duckdb", "unrepresentable": unrepresentable}
    sink = DuckDBSink(DuckDBSink.Settings.model_validate(settings))
    sink.source, sink.source_tables = database, tables
    return sink.check()


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_columns_that_may_stop_the_sink_are_named_with_the_setting_that_helps(
    tmp_path: Path, database: str, tables: list[tuple[str, str]]
) -> None:
    (found,) = findings(tmp_path, database, tables, "error")
    assert found.ok is True
    assert "Columns of such types: public.days.day, public.orders.at, public.orders.price." in found.message
    assert "unrepresentable: {tables: {public.days: {day: text}}}" in found.message
    assert "NaN or Infinity in a numeric(p,s)" in found.message


def test_columns_that_the_setting_covers_are_not_named(
    tmp_path: Path, database: str, tables: list[tuple[str, str]]
) -> None:
    assert findings(tmp_path, database, tables, "text") == []
    (found,) = findings(tmp_path, database, tables, {"tables": {"orders": None, "days": {"id": "text"}}})
    assert "Columns of such types: public.days.day." in found.message


def test_a_name_that_the_source_does_not_have_is_a_warning_with_the_nearest(
    tmp_path: Path, database: str, tables: list[tuple[str, str]]
) -> None:
    mistaken = {"default": "text", "tables": {"ordrs": "text", "days": {"dai": "text"}}}
    table, column = findings(tmp_path, database, tables, mistaken)
    assert (table.ok, table.remedy) == (None, "Did you mean public.orders?")
    assert (column.ok, column.remedy) == (None, "Did you mean day?")
    assert "names column dai of public.days, which the source does not have" in column.message
