"""What Penstock keeps about itself in a DuckDB file: the tables of schema ``penstock``, made where they are missing.

Tables of a DuckDB file that somebody else made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import duckdb

from penstock.sinks.duckdb.file import CATALOG
from penstock.sinks.duckdb.target import Target
from penstock.sinks.mirror.owner import ExistingRows, Owner, needs_key, table_of_others
from penstock.sinks.mirror.records import Dialect, Records

# Up to where the file holds all changes.
PROGRESS = f"""
    CREATE SCHEMA IF NOT EXISTS {CATALOG}.penstock;
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.progress
        (pipeline VARCHAR, sink VARCHAR, lsn VARCHAR, committed_at TIMESTAMPTZ, source VARCHAR);
"""

# Which source table is which target table, and which column is which. ``kept``: columns that the source has no more.
# ``enums``: the oids of columns' enum types, whose labels may be renamed. ``shared``: it has rows of somebody else's.
TABLES = f"""
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.tables
        (pipeline VARCHAR, sink VARCHAR, source_schema VARCHAR, source_table VARCHAR, target_table VARCHAR, columns VARCHAR);
    ALTER TABLE {CATALOG}.penstock.tables ADD COLUMN IF NOT EXISTS oid BIGINT;
    ALTER TABLE {CATALOG}.penstock.tables ADD COLUMN IF NOT EXISTS kept VARCHAR[];
    ALTER TABLE {CATALOG}.penstock.tables ADD COLUMN IF NOT EXISTS enums VARCHAR;
    ALTER TABLE {CATALOG}.penstock.tables ADD COLUMN IF NOT EXISTS shared BOOLEAN;
"""

# Tables whose import is complete, and up to where that brought them. Imports under way, each with the table that it
# fills and the numbers of the parts which that table holds.
IMPORTS = f"""
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.imports
        (pipeline VARCHAR, sink VARCHAR, source VARCHAR, subscription VARCHAR, oid BIGINT, job BIGINT, lsn VARCHAR);
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.imports_under_way
        (pipeline VARCHAR, sink VARCHAR, source VARCHAR, subscription VARCHAR, oid BIGINT, job BIGINT,
         source_schema VARCHAR, source_table VARCHAR, target_schema VARCHAR, target_table VARCHAR, details VARCHAR,
         replayed VARCHAR);
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.import_parts
        (pipeline VARCHAR, sink VARCHAR, job BIGINT, number BIGINT);
"""

_HAS_RECORDS = f"""
    SELECT count(*) FROM duckdb_tables() WHERE database_name = '{CATALOG}' AND schema_name = 'penstock'
    AND table_name IN ('progress', 'imports', 'imports_under_way')
"""


def has_records(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a sink, whichever, has prepared the file."""
    return connection.execute(_HAS_RECORDS).fetchall() == [(3,)]


# DuckDB's names do not tell capitals apart.
_DIALECT = Dialect(schema=f"{CATALOG}.penstock", name="lower({})")


def records_of(
    connection: duckdb.DuckDBPyConnection, owner: Owner, origin: str = "", subscription: str = ""
) -> Records:
    def execute(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return connection.execute(statement, list(values)).fetchall()

    return Records(execute, _DIALECT, owner, origin, subscription)


def has_records_of(connection: duckdb.DuckDBPyConnection, owner: Owner) -> bool:
    return has_records(connection) and bool(records_of(connection, owner).origins())


def in_the_file(
    connection: duckdb.DuckDBPyConnection,
    schema: str,
    kind: Literal["tables and views", "views"] = "tables and views",
) -> set[str]:
    """Names in small letters."""
    tables = "" if kind == "views" else "SELECT lower(table_name) FROM duckdb_tables() WHERE {} UNION "
    query = f"{tables}SELECT lower(view_name) FROM duckdb_views() WHERE {{}}"
    where = "database_name = $1 AND lower(schema_name) = lower($2)"
    return {name for (name,) in connection.execute(query.replace("{}", where), [CATALOG, schema]).fetchall()}


def refuse_foreign(
    connection: duckdb.DuckDBPyConnection,
    owner: Owner,
    target: Target,
    existing_rows: ExistingRows = "refuse",
    key: Sequence[str] = (),
) -> None:
    """SinkRefused if somebody else made what has the target's name, and ``existing_rows`` does not say what becomes of it."""
    name = target.table.lower()
    if name not in in_the_file(connection, target.schema):
        return
    shown = f"{target.schema}.{target.table}"
    is_view = name in in_the_file(connection, target.schema, "views")
    if is_view or existing_rows == "refuse":
        raise table_of_others(owner.sink, shown, is_view)
    if existing_rows == "keep" and not key:
        raise needs_key(owner.sink, shown)
