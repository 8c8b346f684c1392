"""What a DuckDB file and a Postgres target hold, table by table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import psycopg

Rows = list[tuple[Any, ...]]


def in_any_order(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def in_file(path: Path, columns: Mapping[str, str], made: Callable[[Rows], Rows] = in_any_order) -> dict[str, Rows]:
    """``columns``: of each table, those to look at. ``made``: rows as they are compared."""
    with duckdb.connect(str(path), read_only=True) as lake:
        return {
            table: made(lake.execute(f"select {names} from {table}").fetchall()) for table, names in columns.items()
        }


def in_target(url: str, columns: Mapping[str, str], made: Callable[[Rows], Rows] = in_any_order) -> dict[str, Rows]:
    with psycopg.connect(url) as target:
        queries = {table: f"select {names} from {table}".encode() for table, names in columns.items()}
        return {table: made(target.execute(query).fetchall()) for table, query in queries.items()}
