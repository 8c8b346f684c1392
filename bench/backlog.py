"""Backlogs to drain: a table of seven mixed columns, filled in transactions of 1,000 rows."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from penstock.config.model import Config
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.testing.embedded_postgres import EmbeddedPostgres

# The load must not be what is measured, so the server is quick about durability and roomy.
SERVER = {
    "fsync": "off",
    "synchronous_commit": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "20GB",
    "checkpoint_timeout": "1h",
    "logical_decoding_work_mem": "256MB",
    "autovacuum": "off",
}

_COLUMNS = "id bigint primary key, quantity int, name text, price numeric(12,2), at timestamptz, paid bool, extra jsonb"
_ROW = (
    "{id}, {id} % 1000, 'customer number ' || {id}, ({id} % 100000) / 100.0, "
    "timestamptz '2026-01-01' + {id} * interval '1 second', {id} % 2 = 0, "
    "jsonb_build_object('source', 'web', 'score', {id} % 7)"
)


def create_table(postgres: EmbeddedPostgres, name: str) -> None:
    postgres.execute(f"CREATE TABLE {name} ({_COLUMNS})")


def fill(postgres: EmbeddedPostgres, table: str, rows: int, first: int = 1, per_transaction: int = 1000) -> LSN:
    """Returns the position below which all of it is committed."""
    postgres.execute(
        f"""
        DO $$ BEGIN
            FOR start IN {first}..{first + rows - 1} BY {per_transaction} LOOP
                INSERT INTO {table} SELECT {_ROW.format(id="g")}
                FROM generate_series(start, least(start + {per_transaction - 1}, {first + rows - 1})) g;
                COMMIT;
            END LOOP;
        END $$
        """
    )
    with connect(postgres.url) as connection:
        return catalog.wal_marker(connection)


def pipeline(
    postgres: EmbeddedPostgres, directory: Path, name: str, tables: str, copies: bool = False, target: str | None = None
) -> Pipeline:
    """Into DuckDB, or into the Postgres database ``target``."""
    lake = {"name": "lake", "type": "duckdb", "path": str(directory / "lake.duckdb")}
    replica = {"name": "replica", "type": "postgres", "url": target}
    return Pipeline(
        Config.model_validate(
            {
                "name": name,
                "state_dir": str(directory / "state"),
                "source": {
                    "url": postgres.url,
                    "tables": {"include": [tables]},
                    "mode": "copy_and_stream" if copies else "stream",
                },
                "sinks": [replica if target is not None else lake],
            }
        )
    )


def pg_recvlogical_seconds(postgres: EmbeddedPostgres, slot: str, publications: tuple[str, ...], end: LSN) -> float:
    """The limit that the server sets: its own client, throwing everything away. Reads a copy of the slot.

    It stops at a message past its end position, so that lies a little before the mark: else it would wait for a keepalive.
    """
    copy = f"{slot}_copy"
    postgres.execute(f"SELECT pg_copy_logical_replication_slot('{slot}', '{copy}')")
    names = ",".join(publications)
    command = [
        str(postgres.binary("pg_recvlogical")), "-d", postgres.url, "-S", copy, "--start", "--no-loop", "-f", "/dev/null",
        "--endpos", str(LSN(end - 4096)), "-o", "proto_version=1", "-o", f"publication_names={names}", "-o", "messages=true",
    ]  # fmt: skip
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - begun
    postgres.execute(f"SELECT pg_drop_replication_slot('{copy}')")
    return seconds
