"""A large table with indexes into a Postgres target, against pg_dump and pg_restore of the same."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from bench.replica import run
from penstock.testing.embedded_postgres import EmbeddedPostgres


def dump_and_restore_seconds(postgres: EmbeddedPostgres, table: str, directory: Path) -> float:
    """Both with two jobs, one after the other, the way a directory dump works."""
    target, dump = postgres.create_database("restored"), directory / "dump"
    begun = time.monotonic()
    run(postgres, "pg_dump", "-Fd", "-j2", "-t", table, "-f", str(dump), postgres.url)
    run(postgres, "pg_restore", "-j2", "-d", target, str(dump))
    seconds = time.monotonic() - begun
    postgres.execute("DROP DATABASE restored")
    shutil.rmtree(dump)
    return seconds
