"""``type: duckdb``: a mirror in a DuckDB file."""
