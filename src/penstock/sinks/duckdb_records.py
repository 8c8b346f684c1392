"""What Penstock keeps about itself in a DuckDB file: the tables of schema ``penstock``, made where they are missing."""

from __future__ import annotations

from penstock.sinks.duckdb_file import CATALOG

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
         source_schema VARCHAR, source_table VARCHAR, target_schema VARCHAR, target_table VARCHAR, columns VARCHAR,
         replayed VARCHAR);
    CREATE TABLE IF NOT EXISTS {CATALOG}.penstock.import_parts
        (pipeline VARCHAR, sink VARCHAR, job BIGINT, number BIGINT);
"""
