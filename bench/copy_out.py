"""What it costs to read a table by COPY: CPU of this process, and time, per row.

Run it as ``python -m bench.copy_out [rows]``. Each figure is the best of three rounds, since other processes only ever
make it slower.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from psycopg import sql

from bench.backlog import SERVER, create_table, fill
from penstock.changes.batch import ChangeBatch
from penstock.lsn import ZERO
from penstock.postgres.connection import Connection, connect
from penstock.postgres.reading.chunks import chunk_query, plan_chunks
from penstock.postgres.reading.copy_out import past_libpq, through_libpq
from penstock.postgres.reading.csv_rows import read_rows
from penstock.postgres.reading.layout import TableLayout, table_layout
from penstock.postgres.reading.read_chunk import ChunkReader
from penstock.testing.embedded_postgres import EmbeddedPostgres

_ROUNDS = 3


def _layout(connection: Connection) -> TableLayout:
    connection.execute("create publication bench for table public.events")
    row = connection.execute("select 'public.events'::regclass::oid").fetchone()
    assert row is not None
    layout = table_layout(connection, row[0], ["bench"])
    assert layout is not None
    return layout


def _measure(what: str, rows: int, work: Callable[[], object]) -> None:
    best_wall = best_cpu = float("inf")
    for _ in range(_ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        best_wall = min(best_wall, time.perf_counter() - wall)
        best_cpu = min(best_cpu, time.process_time() - cpu)
    print(f"{what:<44}{best_cpu / rows * 1e6:>12.3f}{best_wall / rows * 1e6:>12.3f}", flush=True)


def _run_through(items: Iterator[object]) -> None:
    for _ in items:
        pass


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    pa.set_cpu_count(1)
    with EmbeddedPostgres(settings=SERVER) as postgres, connect(postgres.url) as connection:
        create_table(postgres, "events")
        fill(postgres, "events", rows)
        connection.execute("vacuum analyze public.events")
        layout = _layout(connection)
        chunks = plan_chunks(connection, layout, 64 << 20)
        whole = plan_chunks(connection, layout, 1 << 50)[0]
        command = sql.SQL("copy ({}) to stdout (format csv)").format(chunk_query(layout, whole))
        pieces = list(past_libpq(connection, command))

        def chunk_by_chunk() -> Iterator[ChangeBatch]:
            for chunk in chunks:
                yield from ChunkReader(postgres.url, layout, chunk, ZERO, ["bench"]).batches()

        size = sum(piece.size for piece in pieces)
        print(f"{rows:,} rows of 7 columns, {size / rows:.0f} bytes of CSV each, {len(chunks)} chunks")
        print(f"{'':<44}{'CPU µs/row':>12}{'wall µs/row':>12}")
        _measure("read, past libpq", rows, lambda: _run_through(past_libpq(connection, command)))
        _measure(
            "read, through libpq (encrypted connections)",
            rows,
            lambda: _run_through(through_libpq(connection, command)),
        )
        _measure(
            "parse to change batches", rows, lambda: _run_through(read_rows(layout.relation, iter(pieces), ZERO, 1, 0))
        )
        _measure("chunk by chunk: connect, read, check, parse", rows, lambda: _run_through(chunk_by_chunk()))


if __name__ == "__main__":
    main()
