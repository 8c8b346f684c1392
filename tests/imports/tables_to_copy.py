"""What the tests of reading chunks share: a table, its layout, its chunks, and what comes of reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg import sql

from penstock.changes.batch import ChangeBatch
from penstock.lsn import LSN, ZERO
from penstock.postgres.connection import Connection
from penstock.postgres.reading.chunks import Chunk, plan_chunks
from penstock.postgres.reading.layout import TableLayout, table_layout
from penstock.postgres.reading.read_chunk import ChunkReader
from penstock.postgres.replication_stream import ReplicationStream
from penstock.testing.conditions import wait_until
from tests.pgoutput.reference_decoder import decode_one

FROM = LSN(0x16B3748)
Rows = list[list[str | None]]

_XLOG_DATA_HEADER = 25  # w, start, end, clock


class Table:
    """A published table ``public.t`` of the test's database, and the plan to copy it."""

    def __init__(self, url: str, connection: Connection, chunk_bytes: int = 1 << 30) -> None:
        self.url, self.connection = url, connection
        row = connection.execute("select 'public.t'::regclass::oid").fetchone()
        assert row is not None
        layout = table_layout(connection, row[0], ["pub"])
        assert layout is not None
        self.layout: TableLayout = layout
        self.chunks: Sequence[Chunk] = plan_chunks(connection, layout, chunk_bytes)

    def reader(self, chunk: Chunk | None = None, url: str | None = None, most_bytes: int = 1 << 30) -> ChunkReader:
        return ChunkReader(
            url or self.url, self.layout, chunk or self.chunks[0], FROM, ["pub"], most_bytes=most_bytes
        )  # fmt: skip

    def read(self, chunk: Chunk | None = None) -> Rows:
        return rows_of(self.reader(chunk).batches())


def published(url: str, connection: Connection, *statements: str, chunk_bytes: int = 1 << 30) -> Table:
    """Runs the statements, one of which creates ``public.t``, and publishes it."""
    for statement in statements:
        connection.execute(sql.SQL(statement))
    connection.execute("create publication pub for table public.t with (publish_via_partition_root = true)")
    return Table(url, connection, chunk_bytes)


def rows_of(batches: Iterator[ChangeBatch]) -> Rows:
    return [list(row) for batch in batches for row in zip(*(c.to_pylist() for c in batch.new), strict=True)]


def sessions(connection: Connection) -> list[str]:
    """The states of the sessions that read chunks in this database."""
    rows = connection.execute(
        "select state from pg_stat_activity where application_name = 'penstock copy' and datname = current_database()"
    )
    return [state for (state,) in rows]


def wait_for_a_waiting_reader(connection: Connection) -> None:
    def waiting() -> bool:
        rows = connection.execute(
            "select 1 from pg_stat_activity where application_name = 'penstock copy' and wait_event_type = 'Lock' "
            "and datname = current_database()"
        )
        return bool(rows.fetchall())

    wait_until(waiting, what="a chunk's reader to wait for a lock")


def streamed(url: str, connection: Connection, table: Table, insert: str, count: int) -> Rows:
    """The rows of an insert as capture receives them."""
    row = connection.execute("select 'slot_' || current_database()").fetchone()
    assert row is not None
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [row[0]])
    connection.execute(sql.SQL(insert))
    messages: list[bytes] = []
    with ReplicationStream(url, row[0], ["pub"], ZERO) as stream:

        def inserts() -> list[bytes]:
            stream.receive(messages, 1 << 20)
            payloads = [message[_XLOG_DATA_HEADER:] for message in messages]
            return [payload for payload in payloads if payload[:1] == b"I"]

        wait_until(lambda: len(inserts()) == count, what="the inserts to arrive")
        changes = [decode_one(table.layout.relation, payload) for payload in inserts()]
    return [[str(value) if value is not None else None for value in change.new or []] for change in changes]
